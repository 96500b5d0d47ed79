// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func executable(s string) *fstest.MapFile {
	f := file(s)
	f.Mode = 0o755
	return f
}

// The places where something sets a queue or a setting, and the ways in which it is written there.
func TestPlaces(t *testing.T) {
	const bbr, tc = "net.ipv4.tcp_congestion_control", "tc qdisc replace dev eth0 root cake bandwidth 20mbit\n"
	const shaped, begin = " cake with 20mbit on eth0", "#!/bin/sh\n"
	for name, test := range map[string]struct {
		files fstest.MapFS
		want  string // "BY FILE:LINE WHAT", those without effect in brackets; separated by "; "
	}{
		"ufw": {fstest.MapFS{"etc/ufw/ufw.conf": file("ENABLED=yes\n"),
			"etc/default/ufw":     file("IPT_SYSCTL=/etc/ufw/sysctl.conf\n"),
			"etc/ufw/sysctl.conf": file("# x\nnet/ipv4/tcp_congestion_control=bbr\n")},
			"ufw /etc/ufw/sysctl.conf:2 " + bbr + "=bbr"},
		"ufw with a file elsewhere": {fstest.MapFS{"etc/ufw/ufw.conf": file("ENABLED=yes\n"),
			"etc/default/ufw": file("IPT_SYSCTL=\"/etc/own.conf\"\n"), "etc/own.conf": file(bbr + " = bbr\n")},
			"ufw /etc/own.conf:1 " + bbr + "=bbr"},
		"drop-ins in order": {fstest.MapFS{"etc/systemd/system/a.service": file("[Service]\nExecStart=/sbin/" + tc),
			"etc/systemd/system/a.service.d/10.conf": file("[Service]\nExecStart=\nExecStart=/sbin/" + tc),
			"run/systemd/system/a.service.d/20.conf": file("[Service]\nExecStart=\nExecStart=/bin/true\n")}, ""},
		"a unit that sets anew": {fstest.MapFS{"etc/systemd/system/a.service": file("[Service]\nExecStart=/sbin/" + tc +
			"ExecStart=\nExecStart=/bin/true\nExecStartPost=/sbin/" + tc)},
			"systemd unit /etc/systemd/system/a.service:5" + shaped},
		"drop-in of an instance": {fstest.MapFS{
			"etc/systemd/system/q@.service": file("[Service]\nExecStart=/sbin/tc qdisc " +
				"add dev %i root fq\n"),
			"etc/systemd/system/multi-user.target.wants/q@e0.service": link("/etc/systemd/system/q@.service"),
			"etc/systemd/system/multi-user.target.wants/q@e1.service": link("/etc/systemd/system/q@.service"),
			"etc/systemd/system/q@e0.service.d/a.conf": file("[Service]\nExecStart=\n" +
				"ExecStart=/sbin/tc qdisc add dev %i root pie\n")},
			"systemd unit /etc/systemd/system/q@.service:2 fq on e1; " +
				"systemd unit /etc/systemd/system/q@e0.service.d/a.conf:3 pie on e0"},
		"a namespace of a drop-in's": {fstest.MapFS{
			"etc/systemd/system/a.service":          file("[Service]\nExecStart=/sbin/" + tc),
			"etc/systemd/system/a.service.d/n.conf": file("[Service]\nNetworkNamespacePath=/run/netns/vpn\n")}, ""},
		"a namespace that a drop-in takes back": {fstest.MapFS{
			"etc/systemd/system/a.service":          file("[Service]\nPrivateNetwork=yes\nExecStart=/sbin/" + tc),
			"etc/systemd/system/a.service.d/n.conf": file("[Service]\nPrivateNetwork=no\n")},
			"systemd unit /etc/systemd/system/a.service:3" + shaped},
		"bootcmd of which cloud-init runs one at each " +
			"boot": {fstest.MapFS{"etc/cloud/cloud.cfg.d/q.cfg": file("bootcmd:\n" +
			" - cloud-init-per instance q " + tc +
			" - [ cloud-init-per, once, q, tc, qdisc, add, dev, e0, root, fq ]\n" +
			" - cloud-init-per always q " + tc)}, "cloud-init /etc/cloud/cloud.cfg.d/q.cfg:4" + shaped},
		"ufw that is off": {fstest.MapFS{"etc/ufw/ufw.conf": file("ENABLED=no\n"),
			"etc/ufw/sysctl.conf": file("net/ipv4/tcp_congestion_control=bbr\n")}, ""},
		"OpenVPN": {fstest.MapFS{"etc/openvpn/server/a.conf": file("script-security 2\nup /etc/openvpn/up.sh\n"),
			"etc/openvpn/up.sh": executable(begin + tc)}, "OpenVPN /etc/openvpn/up.sh:2" + shaped},
		"ppp": {fstest.MapFS{"etc/ppp/ip-up.d/q": executable(begin + tc)}, "ppp /etc/ppp/ip-up.d/q:2" + shaped},
		"wg-quick": {fstest.MapFS{"etc/wireguard/wg0.conf": file("PostUp = " + tc)},
			"wg-quick /etc/wireguard/wg0.conf:1" + shaped},
		"wg-quick's own device": {fstest.MapFS{
			"etc/wireguard/wg0.conf": file("PostUp = tc qdisc add dev %i root fq\n")},
			"wg-quick /etc/wireguard/wg0.conf:1 fq on wg0"},
		"drop-in of a unit": {fstest.MapFS{
			"etc/systemd/system/a.service.d/q.conf": file("[Service]\nExecStartPost=/sbin/" + tc)},
			"systemd unit /etc/systemd/system/a.service.d/q.conf:2" + shaped},
		"unit with a script": {fstest.MapFS{
			"etc/systemd/system/a.service": file("[Service]\nExecStart=-/usr/local/sbin/shape up\n"),
			"usr/local/sbin/shape": executable("#!/bin/bash\nTC=/sbin/tc\n" +
				"$TC qdisc replace dev \"$IF\" root cake bandwidth ${UP}\n")},
			"systemd unit /usr/local/sbin/shape:3 cake on $IF"},
		"post-up with a script": {fstest.MapFS{
			"etc/network/interfaces": file("iface eth0 inet dhcp\n  post-up /root/q.sh\n"),
			"root/q.sh":              executable(begin + ". /root/lib\n"),
			"root/lib":               executable(begin + "sysctl -qw " + bbr + "=bbr\n")},
			"ifupdown /root/lib:2 " + bbr + "=bbr"},
		"source": {fstest.MapFS{"etc/network/interfaces": file("source net.d/*.cfg\nsource-directory /opt/if\n"),
			"etc/network/net.d/a.cfg": file("up " + tc), "opt/if/b": file("up tc qdisc add dev e1 root fq\n")},
			"ifupdown /etc/network/net.d/a.cfg:1" + shaped + "; ifupdown /opt/if/b:1 fq on e1"},
		"crontab": {fstest.MapFS{"etc/crontab": file("@reboot root " + tc)}, "cron /etc/crontab:1" + shaped},
		"root's crontab": {fstest.MapFS{"var/spool/cron/crontabs/root": file("@reboot " + tc)},
			"cron /var/spool/cron/crontabs/root:1" + shaped},
		"dispatcher before it is up": {fstest.MapFS{
			"etc/NetworkManager/dispatcher.d/pre-up.d/q": executable(begin + tc)},
			"NetworkManager /etc/NetworkManager/dispatcher.d/pre-up.d/q:2" + shaped},
		"cloud-init's scripts": {fstest.MapFS{"var/lib/cloud/scripts/per-boot/q.sh": executable(begin + tc)},
			"cloud-init /var/lib/cloud/scripts/per-boot/q.sh:2" + shaped},
		"bootcmd as a list": {fstest.MapFS{
			"etc/cloud/cloud.cfg.d/q.cfg": file("bootcmd:\n - [ tc, qdisc, replace, dev, eth0, root, cake ]\n" +
				" - [sysctl, -w, " + bbr + "=bbr]\n" +
				" - [ \"tc\", \"qdisc\", \"add\", \"dev\", \"eth1\", \"root\", \"fq\" ]\n")},
			"cloud-init /etc/cloud/cloud.cfg.d/q.cfg:2 cake on eth0; cloud-init /etc/cloud/cloud.cfg.d/q.cfg:3 " + bbr +
				"=bbr; cloud-init /etc/cloud/cloud.cfg.d/q.cfg:4 fq on eth1"},
		"bootcmd as a list in lines": {fstest.MapFS{
			"etc/cloud/cloud.cfg.d/q.cfg": file("bootcmd:\n - - tc\n   - qdisc\n   - replace\n   - dev\n   - e0\n" +
				"   - root\n   - cake\n - - sysctl\n   - -w\n   - " + bbr + "=bbr\n - echo\n")},
			"cloud-init /etc/cloud/cloud.cfg.d/q.cfg:2 cake on e0; cloud-init /etc/cloud/cloud.cfg.d/q.cfg:9 " + bbr +
				"=bbr"},
		"a module that is loaded": {fstest.MapFS{"etc/modprobe.d/a.conf": file("options tcp_bbr x=1\n" +
			"install tcp_bbr /sbin/modprobe -i tcp_bbr && sysctl -w " + bbr + "=bbr\nremove sch_fq " + tc)},
			"modprobe /etc/modprobe.d/a.conf:2 " + bbr + "=bbr"},
		"netctl": {fstest.MapFS{"etc/netctl/lan": file("Interface=eth0\nExecUpPost='" + strings.TrimSpace(tc) +
			"'\nExecDownPre='" + strings.TrimSpace(tc) + "'\n")}, "netctl /etc/netctl/lan:2" + shaped},
		"TuneD's script": {fstest.MapFS{"etc/tuned/active_profile": file("p"),
			"etc/tuned/p/tuned.conf": file("[script]\nscript=${i:PROFILE_DIR}/q.sh\n"),
			"etc/tuned/p/q.sh":       executable(begin + "start() {\n" + tc + "}\nstop() {\n" + tc + "}\n")},
			"tuned /etc/tuned/p/q.sh:3" + shaped},
		"udev's SYSCTL": {fstest.MapFS{
			"etc/udev/rules.d/a.rules": file("ACTION==\"add\", SYSCTL{net/ipv4/tcp_congestion_control}=\"bbr\"\n" +
				"SYSCTL{net.ipv4.tcp_ecn}==\"1\", OPTIONS+=\"x\"\n")},
			"udev /etc/udev/rules.d/a.rules:1 " + bbr + "=bbr"},
		"init.d": {fstest.MapFS{"etc/init.d/shape": executable(begin + tc)}, "init /etc/init.d/shape:2" + shaped},
		"local.d": {fstest.MapFS{"etc/local.d/q.start": executable(begin + tc)},
			"local.d /etc/local.d/q.start:2" + shaped},
		"NixOS": {fstest.MapFS{"etc/nixos/configuration.nix": file("boot.kernel.sysctl.\"" + bbr + "\" = \"bbr\";\n" +
			"  \"net.ipv4.tcp_ecn\" = 1;\n  \"net.ipv4.tcp_fastopen\" = lib.mkForce 3;\n")},
			"NixOS /etc/nixos/configuration.nix:1 " + bbr + "=bbr; " +
				"NixOS /etc/nixos/configuration.nix:2 net.ipv4.tcp_ecn=1"},
		"sysctl -p of a file": {fstest.MapFS{"etc/rc.local": executable(begin + "sysctl -p /etc/my.conf\n"),
			"etc/my.conf": file("\n" + bbr + "=bbr\n")}, "rc.local /etc/my.conf:2 " + bbr + "=bbr"},
		"a loop": {fstest.MapFS{"etc/rc.local": executable(begin + "for k in $keys; do sysctl -w \"$k=$v\"; done\n")},
			"rc.local /etc/rc.local:2 a setting="},
		"values in quotes": {fstest.MapFS{
			"etc/rc.local": executable(begin + "sysctl -w net.ipv4.tcp_wmem=\"4096 65536 16777216\"\n" +
				"sysctl -w 'net.ipv4.tcp_rmem=4096 131072 16777216'\n" +
				"echo -n '1' | sudo tee /proc/sys/net/ipv4/tcp_ecn\n")},
			"rc.local /etc/rc.local:2 net.ipv4.tcp_wmem=4096 65536 16777216; " +
				"rc.local /etc/rc.local:3 net.ipv4.tcp_rmem=4096 131072 16777216; " +
				"rc.local /etc/rc.local:4 net.ipv4.tcp_ecn=1"},
		"a unit of a package": {fstest.MapFS{
			"usr/lib/systemd/system/q@.service":                      file("[Service]\nExecStart=/sbin/" + tc),
			"etc/systemd/system/multi-user.target.wants/q@a.service": link("/usr/lib/systemd/system/q@.service"),
			"etc/systemd/system/a.target.requires/q@b.service":       link("/usr/lib/systemd/system/q@.service")},
			"systemd unit /usr/lib/systemd/system/q@.service:2" + shaped},
		"a unit of a package that is not enabled": {fstest.MapFS{
			"usr/lib/systemd/system/q.service": file("[Service]\nExecStart=/sbin/" + tc)}, ""},
		"a unit of a package that another replaces": {fstest.MapFS{
			"usr/lib/systemd/system/q.service": file("[Service]\nExecStart=/sbin/" + tc),
			"etc/systemd/system/q.service": file("[Service]\nExecStart=/sbin/tc qdisc add " +
				"dev e1 root fq\n"),
			"etc/systemd/system/multi-user.target.wants/q.service": link("/usr/lib/systemd/system/q.service")},
			"systemd unit /etc/systemd/system/q.service:2 fq on e1"},
		"a unit of a package that is masked": {fstest.MapFS{
			"usr/lib/systemd/system/q.service":                     file("[Service]\nExecStart=/sbin/" + tc),
			"etc/systemd/system/q.service":                         link("/dev/null"),
			"etc/systemd/system/multi-user.target.wants/q.service": link("/usr/lib/systemd/system/q.service")}, ""},
		"a unit enabled by a link to /etc": {fstest.MapFS{
			"etc/systemd/system/q.service":                         file("[Service]\nExecStart=/sbin/" + tc),
			"etc/systemd/system/multi-user.target.wants/q.service": link("../q.service")},
			"systemd unit /etc/systemd/system/q.service:2" + shaped},
		"a file of tc's commands": {fstest.MapFS{
			"etc/systemd/system/q.service": file("[Service]\nExecStart=/sbin/tc -force -b /etc/q.tc\n"),
			"etc/q.tc": file("# mine\nqdisc del dev eth0 root\n\n" +
				"qdisc replace dev eth0 \\\n root cake bandwidth 20mbit\nfilter add dev eth0 root matchall\n")},
			"systemd unit /etc/q.tc:4" + shaped},
		"a file of tc's commands at its input": {fstest.MapFS{
			"etc/rc.local": executable(begin + "tc -batch - < /etc/q.tc\ntc -n blue -b /etc/n.tc\n"),
			"etc/q.tc":     file("q r dev e1 root fq"), "etc/n.tc": file("q r dev e2 root fq")},
			"rc.local /etc/q.tc:1 fq on e1"},
		"tc's commands in a script": {fstest.MapFS{
			"etc/rc.local": executable(begin + "tc -b - <<'EOF'\nqdisc add dev e1 root fq\nclass show dev e1\nEOF\n" +
				"qdisc add dev e2 root fq\n" + tc)},
			"rc.local /etc/rc.local:3 fq on e1; rc.local /etc/rc.local:7" + shaped},
		"a file of tc's commands of an idle script": {fstest.MapFS{
			"etc/rc.local": file(begin + "tc -b /etc/q.tc\n"), "etc/q.tc": file("q r dev e1 root fq")}, ""},
		"Proxmox's interfaces": {fstest.MapFS{"etc/network/interfaces": file("auto vmbr0\niface vmbr0 inet static\n" +
			"\tbridge-ports eno1\n\tpost-up   " + tc)}, "ifupdown /etc/network/interfaces:4" + shaped},

		"a script without its interpreter's name": {fstest.MapFS{
			"etc/cron.d/a": file("@reboot root python3 -u /opt/shape/s.py\n"),
			"etc/rc.local": executable(begin + ". /opt/shape/lib.sh\ncat /opt/notes\n"),
			"opt/notes":    file(tc), "opt/shape/lib.sh": file(tc),
			"opt/shape/s.py": file("subprocess.run(['tc', 'qdisc', 'add', 'dev', 'e1', 'root', 'fq'])\n")},
			"cron /opt/shape/s.py:1 fq on e1; rc.local /opt/shape/lib.sh:1" + shaped},
		"a program that a shell is handed": {fstest.MapFS{"etc/rc.local": executable(begin + "sh /opt/p\n"),
			"opt/p": file("\x7fELF\x00\n" + tc)}, ""},
		"a script in a folder": {fstest.MapFS{
			"etc/rc.local":   executable(begin + "cd /opt/shape && ./a.sh\ncd \"/opt\"\n./b.sh up\n"),
			"opt/shape/a.sh": executable(begin + tc), "opt/b.sh": executable(begin + tc), "b.sh": file(tc)},
			"rc.local /opt/b.sh:2" + shaped + "; rc.local /opt/shape/a.sh:2" + shaped},
		"wondershaper": {fstest.MapFS{
			"etc/systemd/system/w.service": file("[Service]\nExecStart=wondershaper -a eth0 -d 1000\n" +
				"ExecStop=/usr/sbin/wondershaper -c -a eth0\n"),
			"etc/rc.local":           executable(begin + "which wondershaper\n/sbin/wondershaper eth1 1000 500\n"),
			"usr/sbin/wondershaper":  executable("#!/bin/bash\ntc qdisc add dev $DEV root handle 1: htb\n"),
			"etc/cron.weekly/tcset":  executable(begin + "tcset eth2 --rate 1Mbps\n"),
			"etc/shorewall/started":  file("fireqos start\n"),
			"etc/cron.monthly/tcset": executable(begin + "apt install wondershaper tcset fireqos\n")},
			"Shorewall /etc/shorewall/started:1 a queue on a device; cron /etc/cron.weekly/tcset:2 a queue on eth2; " +
				"rc.local /etc/rc.local:3 a queue on eth1; " +
				"systemd unit /etc/systemd/system/w.service:2 a queue on eth0"},
		"Fedora's rc.local": {fstest.MapFS{"etc/rc.local": link("rc.d/rc.local"),
			"etc/rc.d/rc.local": executable(begin + tc)}, "rc.local /etc/rc.local:2" + shaped},

		"a stanza's device": {fstest.MapFS{
			"etc/network/interfaces": file("iface eth1 inet dhcp\n  up tc qdisc add dev $IFACE root fq\n" +
				"iface eth2 inet dhcp\n  up tc qdisc add dev \"${IFACE}\" root cake\n  up /root/q.sh\n" +
				"iface eth3 inet6 auto\n  up /root/q.sh\n"),
			"root/q.sh": executable(begin + "tc qdisc add dev $IFACE root sfq\n" + "sysctl -w " + bbr +
				"=bbr\n"),
			"etc/network/if-up.d/all": executable(begin + "tc qdisc add dev $IFACE root pie\n")},
			"ifupdown /etc/network/if-up.d/all:2 pie on $IFACE; ifupdown /etc/network/interfaces:2 fq on eth1; " +
				"ifupdown /etc/network/interfaces:4 cake on eth2; ifupdown /root/q.sh:2 sfq on eth2; " +
				"ifupdown /root/q.sh:2 sfq on eth3; ifupdown /root/q.sh:3 " + bbr + "=bbr"},
		"a template's device": {fstest.MapFS{
			"etc/systemd/system/s@.service": file("[Service]\nExecStart=/sbin/tc qdisc add dev %i root fq\n" +
				"ExecStartPost=/root/q.sh %I\n"),
			"root/q.sh": executable(begin + "tc qdisc add dev $1 root sfq\n"),
			"etc/systemd/system/multi-user.target.wants/s@wlan0.service": link("/etc/systemd/system/s@.service")},
			"systemd unit /etc/systemd/system/s@.service:2 fq on wlan0; systemd unit /root/q.sh:2 sfq on $1"},
		"a template of a package": {fstest.MapFS{
			"usr/lib/systemd/system/s@.service": file("[Service]\nExecStart=/sbin/tc qdisc " +
				"add dev %I root fq\n"),
			"etc/systemd/system/multi-user.target.wants/s@e1.service": link("/usr/lib/systemd/system/s@.service"),
			"etc/systemd/system/multi-user.target.wants/s@e2.service": link("/usr/lib/systemd/system/s@.service")},
			"systemd unit /usr/lib/systemd/system/s@.service:2 fq on e1; " +
				"systemd unit /usr/lib/systemd/system/s@.service:2 fq on e2"},
		"a drop-in that forgets": {fstest.MapFS{
			"etc/systemd/system/s.service": file("[Service]\nExecStart=/sbin/" + tc +
				"ExecStartPost=sysctl -w " + bbr + "=bbr\n"),
			"etc/systemd/system/s.service.d/a.conf": file("[Service]\nExecStart=\nExecStart=/sbin/tc qdisc add dev " +
				"e1 root fq\n")},
			"systemd unit /etc/systemd/system/s.service.d/a.conf:3 fq on e1; " +
				"systemd unit /etc/systemd/system/s.service:3 " + bbr + "=bbr"},
		"units in other network namespaces": {fstest.MapFS{
			"etc/systemd/system/a.service": file("[Service]\nNetworkNamespacePath=/run/netns/x\nExecStart=/sbin/" + tc),
			"etc/systemd/system/b.service": file("[Service]\nExecStart=/sbin/" + tc + "PrivateNetwork=yes\n")}, ""},
		"a unit in this one": {fstest.MapFS{
			"etc/systemd/system/b.service": file("[Service]\nPrivateNetwork=no\nExecStart=/sbin/" + tc)},
			"systemd unit /etc/systemd/system/b.service:3" + shaped},
		"what cloud-init does once": {fstest.MapFS{"etc/cloud/cloud.cfg": file("runcmd:\n- " + tc +
			"write_files:\n - content: |\n     " + tc + "bootcmd:\n- tc qdisc add dev e1 root fq\nruncmd:\n  - " + tc)},
			"cloud-init /etc/cloud/cloud.cfg:7 fq on e1"},
		"cloud-init that is off": {fstest.MapFS{"etc/cloud/cloud.cfg": file("bootcmd:\n - " + tc),
			"etc/cloud/cloud-init.disabled": file("")}, ""},
		"cloud-init that the kernel's command line turns off": {fstest.MapFS{
			"var/lib/cloud/scripts/per-boot/q": executable(begin + tc),
			"proc/cmdline":                     file("x cloud-init=disabled\n")}, ""},
		"tmpfiles": {fstest.MapFS{"etc/tmpfiles.d/a.conf": file("d /run/x 0755 root root -\n" +
			"w /proc/sys/net/ipv4/tcp_congestion_control - - - - bbr\n" +
			"w! /proc/sys/net/ipv4/tcp_rmem - - - - 4096 131072 9000000\nr /proc/sys/net/ipv4/tcp_ecn\n")},
			"tmpfiles /etc/tmpfiles.d/a.conf:2 " + bbr + "=bbr; " +
				"tmpfiles /etc/tmpfiles.d/a.conf:3 net.ipv4.tcp_rmem=4096 131072 9000000"},
		"a unit's program without its folder": {fstest.MapFS{
			"etc/systemd/system/a.service": file("[Service]\nExecStart=-s2.sh up\nExecStop=s3.sh\n"),
			"usr/local/bin/s2.sh":          executable(begin + tc), "usr/local/bin/s3.sh": executable(begin + tc)},
			"systemd unit /usr/local/bin/s2.sh:2" + shaped},
		"a unit's folder": {fstest.MapFS{
			"etc/systemd/system/a.service": file("[Service]\nExecStart=/bin/sh ./up.sh\nWorkingDirectory=/opt/q\n"),
			"opt/q/up.sh":                  file(tc)}, "systemd unit /opt/q/up.sh:1" + shaped},
		"a folder that nothing reads": {fstest.MapFS{"etc/sysctl.conf.d/a.conf": file(bbr + " = bbr\n")},
			"[sysctl.d /etc/sysctl.conf.d/a.conf:1 " + bbr + "=bbr]"},
		"not executable": {fstest.MapFS{"etc/rc.local": file(begin + tc)},
			"[rc.local /etc/rc.local:2" + shaped + "]"},
		"a name with a dot": {fstest.MapFS{"etc/network/if-up.d/q.sh": executable(begin + tc)},
			"[ifupdown /etc/network/if-up.d/q.sh:2" + shaped + "]"},
		"a script that also an idle one calls": {fstest.MapFS{
			"etc/network/if-up.d/q.sh": executable(begin + "/usr/local/sbin/q.sh\n"),
			"usr/local/sbin/q.sh":      executable(begin + tc),
			"etc/rc.local":             executable(begin + "/usr/local/sbin/q.sh\n")},
			"rc.local /usr/local/sbin/q.sh:2" + shaped},
		"a script that only an idle one calls": {fstest.MapFS{
			"etc/network/if-up.d/q.sh": executable(begin + "/usr/local/sbin/q.sh\n"),
			"usr/local/sbin/q.sh":      executable(begin + tc)}, ""},
		"put aside": {fstest.MapFS{"etc/network/if-up.d/q.dpkg-old": executable(begin + tc),
			"etc/cron.daily/q~": executable(begin + tc), "etc/init.d/q.bak": file(begin + tc)}, ""},
		"systemd-sysctl of a file": {fstest.MapFS{
			"etc/rc.local": executable(begin + "/usr/lib/systemd/systemd-sysctl --prefix=/net /etc/my.conf\n" +
				"/lib/systemd/systemd-sysctl\nsystemd-sysctl --cat-config /etc/no.conf\n"),
			"etc/my.conf": file(bbr + "=bbr\n"), "etc/no.conf": file("net.ipv4.tcp_ecn=1\n")},
			"rc.local /etc/my.conf:1 " + bbr + "=bbr"},
		"a module of a package's, and one that is masked": {fstest.MapFS{
			"usr/lib/modprobe.d/a.conf": file("install tcp_bbr sysctl -w " + bbr + "=bbr\n"),
			"usr/lib/modprobe.d/b.conf": file("install tcp_bbr " + tc), "etc/modprobe.d/b.conf": link("/dev/null")},
			"modprobe /usr/lib/modprobe.d/a.conf:1 " + bbr + "=bbr"},
		"files that are masked": {fstest.MapFS{
			"usr/local/lib/tmpfiles.d/a.conf":       file("w /proc/sys/net/ipv4/tcp_ecn - - - - 1\n"),
			"etc/tmpfiles.d/a.conf":                 link("/dev/null"),
			"run/tmpfiles.d/b.conf":                 file("w /proc/sys/net/ipv4/tcp_ecn - - - - 1\n"),
			"etc/tmpfiles.d/b.conf":                 file(""),
			"run/udev/rules.d/c.rules":              file("RUN+=\"/sbin/" + strings.TrimSpace(tc) + "\"\n"),
			"etc/udev/rules.d/c.rules":              link("/dev/null"),
			"run/systemd/system/a.service":          file("[Service]\nExecStart=/sbin/" + tc),
			"etc/systemd/system/a.service":          link("/dev/null"),
			"run/systemd/system/b.service.d/q.conf": file("[Service]\nExecStartPost=/sbin/" + tc),
			"etc/systemd/system/b.service.d/q.conf": link("/dev/null"),
			"run/systemd/system/c.service.d/q.conf": file("[Service]\nExecStartPost=/sbin/" + tc),
			"etc/systemd/system/c.service.d/q.conf": file("")}, ""},
		"units that their packages enable": {fstest.MapFS{
			"usr/lib/systemd/system/q.service":                         file("[Service]\nExecStart=/sbin/" + tc),
			"usr/lib/systemd/system/multi-user.target.wants/q.service": link("../q.service"),
			"usr/local/lib/systemd/system/r@.service": file("[Service]\nExecStart=/sbin/tc qdisc " +
				"add dev %i root fq\n"),
			"usr/local/lib/systemd/system/a.target.requires/r@e1.service": link("../r@.service"),
			"usr/lib/systemd/system/m.service":                            file("[Service]\nExecStart=/sbin/" + tc),
			"usr/lib/systemd/system/multi-user.target.wants/m.service":    link("../m.service"),
			"etc/systemd/system/multi-user.target.wants/m.service":        link("/dev/null")},
			"systemd unit /usr/lib/systemd/system/q.service:2" + shaped +
				"; systemd unit /usr/local/lib/systemd/system/r@.service:2 fq on e1"},
		"keepalived's scripts": {fstest.MapFS{
			"etc/keepalived/keepalived.conf": file("vrrp_instance a {\n notify_master \"/opt/s.sh\" root\n" +
				" notify_stop /opt/t.sh\n}\n"),
			"opt/s.sh": executable(begin + tc), "opt/t.sh": executable(begin + tc)},
			"keepalived /opt/s.sh:2" + shaped},
		"strongSwan's scripts": {fstest.MapFS{"etc/ipsec.conf": file("conn a\n leftupdown=/opt/s.sh\n"),
			"etc/swanctl/conf.d/a.conf": file("updown = /opt/t.sh\n"), "opt/s.sh": executable(begin + tc),
			"opt/t.sh": executable(begin + tc)},
			"strongSwan /opt/s.sh:2" + shaped + "; strongSwan /opt/t.sh:2" + shaped},
		"a name without .conf": {fstest.MapFS{
			"etc/sysctl.d/99-bbr": file(bbr + " = bbr\n"), "etc/sysctl.d/a.conf.bak": file(bbr + "=x\n"),
			"etc/sysctl.d/README.x": file(bbr + "=x\n")},
			"[sysctl.d /etc/sysctl.d/99-bbr:1 " + bbr + "=bbr]"},
	} {
		d := settings(test.files)
		var got []string
		for _, w := range d.Writers {
			got = append(got, told(w))
		}
		for _, w := range d.Idle {
			got = append(got, "["+told(w)+"]")
		}
		slices.Sort(got)
		if all := strings.Join(got, "; "); all != test.want {
			t.Errorf("%s:\n%s, want\n%s", name, all, test.want)
		}
		for _, w := range append(d.Writers, d.Idle...) {
			if w.When() == "" || (w.Idle != "") != slices.Contains(got, "["+told(w)+"]") {
				t.Errorf("%s: %+v takes effect %q", name, w, w.When())
			}
		}
	}
}

// Where an executable script with a line of tc's is found, by whom it is run, and when.
func TestScriptPlaces(t *testing.T) {
	for name, want := range map[string]string{
		"etc/dhcp/dhclient-enter-hooks.d/q":      "dhclient",
		"etc/dhcp/dhclient-exit-hooks.d/q":       "dhclient",
		"etc/dhcpcd.enter-hook":                  "dhcpcd",
		"etc/dhcpcd.exit-hook":                   "dhcpcd",
		"etc/cron.hourly/q":                      "cron",
		"etc/cron.daily/q":                       "cron",
		"etc/cron.weekly/q":                      "cron",
		"etc/cron.monthly/q":                     "cron",
		"etc/networkd-dispatcher/carrier.d/q":    "networkd-dispatcher",
		"etc/networkd-dispatcher/routable.d/q":   "networkd-dispatcher",
		"etc/networkd-dispatcher/configured.d/q": "networkd-dispatcher",
		"etc/ppp/ip-up.local":                    "ppp",
		"etc/rc.d/rc.local":                      "rc.local",
		"etc/libvirt/hooks/qemu":                 "libvirt",
		"etc/libvirt/hooks/network.d/q":          "libvirt",
		"etc/shorewall/start":                    "Shorewall",
		"etc/shorewall/started":                  "Shorewall",
		"etc/hotplug.d/iface/10-q":               "hotplug",
		"etc/hotplug.d/net/10-q":                 "hotplug",
		"etc/profile.d/q.sh":                     "profile.d",
		"etc/tinc/vpn/tinc-up":                   "tinc",
		"sbin/ifup-local":                        "ifup",
		"etc/anacrontab":                         "cron",
		"usr/lib/modprobe.d/a.conf":              "modprobe",
		"run/modprobe.d/a.conf":                  "modprobe",
		"etc/wicked/scripts/q":                   "wicked",
	} {
		d := settings(fstest.MapFS{name: executable("#!/bin/sh\ntc qdisc add dev eth0 root fq\n")})
		if len(d.Writers) != 1 || told(d.Writers[0]) != want+" /"+name+":2 fq on eth0" ||
			d.Writers[0].When() == "at every boot" != (want == "rc.local") {
			t.Errorf("%s: %+v", name, d.Writers)
		}
	}
}

func told(w Writer) string {
	what := w.Sysctl + "=" + w.Value
	if w.Qdisc != "" {
		what = w.Queue() + " on " + w.Device()
	}
	return fmt.Sprintf("%s %s %s", w.By, w.Where(), what)
}

// What OpenVPN and pppd hand to a script is the name of a tunnel.
func TestMayMatch(t *testing.T) {
	for _, c := range []struct {
		by, written, dev string
		want             bool
	}{
		{"systemd unit", "$IF", "eth0", true},
		{"ppp", "$1", "eth0", false},
		{"ppp", "$PPP_IFACE", "ppp0", true},
		{"ppp", "eth0", "eth0", true},
		{"OpenVPN", "$dev", "eth0", false},
		{"OpenVPN", "${dev}", "tun3", true},
		{"OpenVPN", "eth0", "eth0", true},
		{"wg-quick", "wg0", "eth0", false},
	} {
		if got := (Writer{By: c.by, Dev: c.written}).MayMatch(Link{Name: c.dev}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A script that is called by its name alone is looked for where administrators put theirs.
func TestBareNames(t *testing.T) {
	const ecn, begin = "net.ipv4.tcp_ecn=1", "#!/bin/sh\n"
	for _, c := range []struct{ name, text, want string }{
		{"etc/rc.local", begin + "tune", ecn}, {"etc/rc.local", begin + "[ a ] && nice -n 5 tune x &", ecn},
		{"etc/crontab", "@reboot root tune", ecn}, {"etc/crontabs/root", "@reboot tune", ecn},
		{"etc/cron.d/a", "*/5 * * * * root tune", ecn},
		{"etc/systemd/system/a.service", "[Service]\nExecStart=/usr/bin/env tune", ecn},
		{"etc/systemd/system/a.service", "[Service]\nExecStart=-nice -n 5 tune", ecn},
		{"usr/local/lib/tmpfiles.d/a.conf", "w /proc/sys/net/ipv4/tcp_ecn - - - - 1", ecn},
		{"etc/rc.local", begin + "echo tune", ""}, {"etc/rc.local", begin + "other tune", ""},
		{"etc/systemd/system/a.service", "[Service]\nDescription=a tune\nUser=tune", ""}, {"etc/rc.local", begin +
			"exit 0\ntune", ""},
	} {
		d := settings(fstest.MapFS{c.name: executable(c.text + "\n"),
			"usr/local/bin/tune": executable(begin + "sysctl -w " + ecn + "\n")})
		if got := sets(d.Writers); got != c.want {
			t.Errorf("%s: %q: %q, want %q", c.name, c.text, got, c.want)
		}
	}
}

// A line for devices of another name or type is about none of the uplink's.
func TestOtherDevices(t *testing.T) {
	const rules, run = "etc/udev/rules.d/a.rules", `, RUN+="/sbin/tc qdisc replace root dev %k cake"`
	for _, c := range []struct {
		name, text string
		link       Link
		want       bool
	}{
		{rules, `ACTION=="add", KERNEL=="wlan*"` + run, Link{Name: "eth0"}, false},
		{rules, `KERNEL=="wlan*"` + run, Link{Name: "eth0"}, false},
		{rules, `KERNEL=="wlan*"` + run, Link{Name: "wlp3s0"}, true},
		{rules, `ACTION=="add", NAME=="wlan0"` + run, Link{Name: "eth0"}, false},
		{rules, `ACTION=="add", KERNEL=="eth*"` + run, Link{Name: "ens3"}, true},
		{rules, `ACTION=="add", KERNEL=="ens3"` + run, Link{Name: "ens3"}, true},
		{rules, `ACTION=="add", SUBSYSTEM=="net"` + run, Link{Name: "ens3"}, true},
		{"etc/systemd/network/a.network", "[Match]\nType=wlan\n[CAKE]\n", Link{Name: "eth0", Kind: "veth"}, false},
		{"etc/systemd/network/a.network", "[Match]\nType=wlan\n[CAKE]\n", Link{Name: "wlp3s0",
			MAC: "52:54:00:00:00:01"},
			true},
		{"etc/network/if-up.d/a", "#!/bin/sh\n[ \"$IFACE\" = \"wlan0\" ] || exit 0\ntc qdisc add dev $IFACE root fq",
			Link{Name: "eth0"}, false},
		{"etc/network/if-up.d/a", "#!/bin/sh\n[ \"$IFACE\" = lo ] && exit 0\ntc qdisc add dev $IFACE root fq",
			Link{Name: "eth0"}, true},
		{"etc/systemd/network/a.network", "[Match]\nType=ether\n[CAKE]\n", Link{Name: "eth0", Kind: "veth"}, true},
	} {
		w := settings(fstest.MapFS{c.name: executable(c.text + "\n")}).Writers
		if len(w) != 1 || w[0].MayMatch(c.link) != c.want {
			t.Errorf("%s, %s: %+v, want %v", c.text, c.link.Name, w, c.want)
		}
	}
}

// Which cards a file of networkd's, NetworkManager's or udev's is about.
func TestCards(t *testing.T) {
	const network, keyfile = "etc/systemd/network/a.network", "etc/NetworkManager/system-connections/a.nmconnection"
	const rules = "etc/udev/rules.d/a.rules"
	const tbf = "[tc]\nqdisc.root=tbf rate 51mbit burst 5k latency 50ms\n"
	card := Link{Name: "eth0", MAC: "52:54:00:12:34:56"}
	for _, c := range []struct {
		name, text, want string
		means            bool
	}{
		{keyfile, "[connection]\ninterface-name=eth0\n" + tbf, "tbf with 51mbit on eth0", true},
		{keyfile, "[connection]\ninterface-name=eth1\n" + tbf, "tbf with 51mbit on eth1", false},
		{keyfile, tbf + "[match]\ninterface-name=eth1;ens*;\n", "tbf with 51mbit on eth1 ens*", false},
		{keyfile, "[match]\ninterface-name=!eth0\n" + tbf, "tbf with 51mbit on any device but eth0", false},
		{keyfile, "[ethernet]\nmac-address=52:54:00:12:34:56\n" + tbf, "tbf with 51mbit on a device", true},
		{keyfile, "[ethernet]\nmac-address=52:54:00:AA:34:56\n" + tbf, "tbf with 51mbit on a device", false},
		{keyfile, "[tc]\nqdisc.root = root handle 1: fq_codel\n", "fq_codel on a device", true},
		{strings.TrimSuffix(keyfile, ".nmconnection"), tbf, "tbf with 51mbit on a device", true},
		{keyfile + "~", tbf, "", false},
		{network, "[Match]\nMACAddress=52-54-00-AA-34-56 00:00:00:00:00:01\n[CAKE]\n", "cake on a device", false},
		{network, "[Match]\nMACAddress=52:54:00:AA:34:56\nMACAddress=5254.0012.3456\n[CAKE]\n",
			"cake on a device", true},
		{network, "[Match]\nPermanentMACAddress=52:54:00:AA:34:56\n[CAKE]\n", "cake on a device", false},
		{network, "[Match]\nName=!lo wg*\n[CAKE]\n", "cake on any device but lo wg*", true},
		{network, "[Match]\nName=!eth*\n[CAKE]\n", "cake on any device but eth*", false},
		{rules, "ATTR{address}==\"52:54:00:AA:34:56\", RUN+=\"tc qdisc add dev $name root fq\"", "fq on $name", false},
		{rules, "ATTR{address}==\"52:54:00:12:*\", RUN+=\"tc qdisc add dev $name root fq\"", "fq on $name", true},
	} {
		d := settings(fstest.MapFS{c.name: file(c.text)})
		if got := sets(d.Writers); got != c.want || slices.ContainsFunc(d.Writers,
			func(w Writer) bool { return w.MayMatch(card) != c.means }) {
			t.Errorf("%s %q: %+v, want %q, %v", c.name, c.text, d.Writers, c.want, c.means)
		}
	}
}

// What tc's own program makes of a command.
func TestTC(t *testing.T) {
	for line, want := range map[string]string{
		"tc q r dev e0 root cake":                            "cake on e0",
		"tc qd a dev e0 root fq":                             "fq on e0",
		"/sbin/tc qdisc c root dev e0 cake bandwidth 10mbit": "cake with 10mbit on e0",
		"tc qdisc replace root dev %i cake":                  "cake on %i",
		"tc qdisc add dev e0 root handle 1: stab overhead 34 linklayer atm htb default 10": "htb on e0",
		"tc qdisc add dev e0 handle 1: root tbf rate 5mbit burst 5k latency 50ms":          "tbf with 5mbit on e0",
		"tc qdisc replace dev e0 \\\n  root cake":                                          "cake on e0",
		"tc qdisc del dev e0 root; tc qdisc add dev e0 root sfq":                           "sfq on e0",
		"if true; then tc qdisc replace dev e0 root fq; fi":                                "fq on e0",
		"tc qdisc add dev e0 estimator 1s 8s root tbf rate 30mbit burst 5k latency 50ms":   "tbf with 30mbit on e0",
		"tc qdisc add dev e0 root est 1s 8s tbf rate 30mbit burst 5k latency 50ms":         "tbf with 30mbit on e0",
		"tc qdisc add dev e0 parent root cake":                                             "cake on e0",
		"tc qdisc add dev e0 parent":                                                       "",
		"ip netns exec blue tc qdisc replace dev e0 root fq":                               "",
		"tc -n blue qdisc replace dev e0 root fq":                                          "",
		"tc qdisc add dev e0 parent 1:10 cake":                                             "",
		"tc qdisc add dev e0 ingress":                                                      "",
		"tc qdisc add dev e0 clsact":                                                       "",
		"tc qdisc del dev e0 root":                                                         "",
		"tc qdisc show dev e0 root":                                                        "",
		"tc class add dev e0 root classid 1:1 htb rate 1mbit":                              "",
		"tc filter replace dev e0 root matchall":                                           "",
		"etc qdisc replace dev e0 root fq":                                                 "",
		"# tc qdisc replace dev e0 root fq":                                                "",
	} {
		d := settings(fstest.MapFS{"etc/rc.local": executable(line + "\n")})
		var got []string
		for _, w := range d.Writers {
			got = append(got, w.Queue()+" on "+w.Device())
		}
		if all := strings.Join(got, "; "); all != want {
			t.Errorf("%s: %q, want %q", line, all, want)
		}
	}
}

// What a script writes, compares or looks for sets nothing, and neither does what runs when something ends.
func TestLinesThatRun(t *testing.T) {
	const tc, ecn = "tc qdisc add dev e0 root fq", "sysctl -w net.ipv4.tcp_ecn=1"
	for text, want := range map[string]string{
		`echo "usage: tc qdisc replace dev eth0 root tbf rate 38mbit"`:                    "",
		"echo \"usage:\n  " + tc + "\n  " + ecn + "\"\n" + ecn:                            "net.ipv4.tcp_ecn=1",
		"cat <<EOF\n" + tc + "\nEOF\n" + ecn:                                              "net.ipv4.tcp_ecn=1",
		"cat > /root/x <<-'EOF'\n\t" + tc + "\n\tEOF\n" + ecn:                             "net.ipv4.tcp_ecn=1",
		"bash <<EOF\n" + tc + "\nEOF":                                                     "fq on e0",
		"ssh other <<EOF\n" + tc + "\nEOF":                                                "",
		"x=$((1 << bits))\n" + tc:                                                         "fq on e0",
		`logger "was sysctl -w net.ipv4.tcp_sack=0"`:                                      "",
		"logger it\\'s; " + tc:                                                            "fq on e0",
		"test net.ipv4.tcp_frto = 0":                                                      "",
		"[ net.ipv4.tcp_frto = 0 ] && " + ecn:                                             "net.ipv4.tcp_ecn=1",
		"if [ net.ipv4.tcp_frto = 0 ]; then " + ecn + "; fi":                              "net.ipv4.tcp_ecn=1",
		"printf 'net.ipv4.tcp_frto=0\\n' >> /etc/x":                                       "",
		"grep -q net.ipv4.tcp_ecn=2 /etc/x || " + ecn:                                     "net.ipv4.tcp_ecn=1",
		"sed -i s/net.ipv4.tcp_ecn=2/x/ /etc/x":                                           "",
		"true # " + tc:                                                                    "",
		"echo \"" + tc + "\" | sudo sh":                                                   "fq on e0",
		"echo 1 > /proc/sys/net/ipv4/tcp_ecn":                                             "net.ipv4.tcp_ecn=1",
		"echo 'echo 1 > /proc/sys/net/ipv4/tcp_ecn'":                                      "",
		"sh -c '" + tc + "; echo done'":                                                   "fq on e0",
		"case $1 in\nstart)\n" + tc + "\n;;\nstop)\n" + ecn + "\n;;\nesac":                "fq on e0",
		"case $1 in\nstop|down) " + tc + " ;;\nrestart|stop) " + ecn + ";;\nesac":         "net.ipv4.tcp_ecn=1",
		"start() {\n" + tc + "\n}\nstop() {\n" + ecn + "\n}":                              "fq on e0",
		"stop() { " + tc + "; }\n" + ecn:                                                  "net.ipv4.tcp_ecn=1",
		"if [ \"$1\" = stop ]; then\n" + tc + "\nelse\n" + ecn + "\nfi":                   "net.ipv4.tcp_ecn=1",
		"if [ \"$1\" = up ]; then\n" + tc + "\nelif [ $1 = down ]; then\n" + ecn + "\nfi": "fq on e0",
	} {
		d := settings(fstest.MapFS{"etc/rc.local": executable("#!/bin/sh\n" + text + "\n")})
		if got := sets(d.Writers); got != want {
			t.Errorf("%s:\n%q, want %q", text, got, want)
		}
	}
	for name, texts := range map[string][2]string{ // what sets, and what does not
		"etc/systemd/system/a.service": {"[Service]\nExecStart=/sbin/" + tc, "\nExecStop=/sbin/" + ecn +
			"\nExecStopPost=-/root/q.sh"},
		"etc/network/interfaces": {"iface e0 inet dhcp\n\tpost-up " + tc,
			"\n\tdown " + ecn + "\n\tpost-down /root/q.sh"},
		"etc/wireguard/wg0.conf":     {"PostUp = " + tc, "\nPostDown = " + ecn + "\npredown=/root/q.sh"},
		"etc/openvpn/a.conf":         {"up /root/up.sh", "\ndown /root/q.sh"},
		"etc/network/interfaces.d/a": {"up " + tc, "\npre-down " + ecn},
	} {
		for i, text := range []string{texts[0], texts[0] + texts[1]} {
			d := settings(fstest.MapFS{name: file(text + "\n"), "root/q.sh": executable("#!/bin/sh\n" + ecn + "\n"),
				"root/up.sh": executable("#!/bin/sh\n" + tc + "\n")})
			if got := sets(d.Writers); got != "fq on e0" {
				t.Errorf("%s, %d: %q", name, i, got)
			}
		}
	}
	d := settings(fstest.MapFS{"etc/networkd-dispatcher/off.d/a": executable("#!/bin/sh\n" + tc + "\n"),
		"etc/networkd-dispatcher/no-carrier.d/a": executable("#!/bin/sh\n" + tc + "\n")})
	if got := sets(d.Writers); got != "" {
		t.Errorf("a link that goes down: %q", got)
	}
}

// One line of a script may have several commands, of which some run when something ends, or elsewhere.
func TestOneLine(t *testing.T) {
	const tc, ecn = "tc qdisc add dev e0 root fq", "sysctl -w net.ipv4.tcp_ecn=1"
	const rest, proc = "qdisc add dev e0 root fq", "/proc/sys/net/ipv4/tcp_ecn"
	const here, set = "fq on e0", "net.ipv4.tcp_ecn=1"
	for want, lines := range map[string][]string{
		here: {
			"[ -x /sbin/tc ] && " + tc, "[[ $1 == e0 ]] && { " + tc + "; }", "sleep 5 && " + tc + " &", "true & " + tc,
			"(" + tc + ")", tc + "&", tc + ">/dev/null", tc + "||true", "x=`" + tc + "`", "x=$(" + tc + " 2>&1)",
			"if ! " + tc + "; then exit 1; fi", "if [ a ]; then if [ b ]; then " + tc + "; fi; fi",
			"LANG=C " + tc, "sudo -n /sbin/" + tc, "\\" + tc, "timeout 5 " + tc, "flock /run/x -c \"" + tc + "\"",
			"$(which tc) " + rest, "`which tc` " + rest, "\"$(command -v tc)\" " + rest, "$tc " + rest, "${tc} " + rest,
			"$TC_BIN " + rest, "${TC:-tc} " + rest, "$tcbin " + rest, "$CMD " + rest,
			"echo '" + rest + "' | tc -b -", "printf '" + rest + "\\n' | tc -batch",
			"/bin/sh -ec '" + tc + " || true'", "su - root -c \"" + tc + "\"",
			"if [ \"$2\" = down ]; then exit; fi; " + tc, "[ \"$2\" = down ] && exit; " + tc,
			"[ \"$2\" = down ] || " + tc, "[ \"$1\" = stop ] && { " + ecn + "; exit; }; " + tc,
			"[ \"$1\" = stop ] && ( " + ecn + "; exit ); " + tc, "test $1 = stop && " + ecn + " && exit; " + tc,
			"if [ $1 = down ]; then if true; then " + ecn + "; else " + ecn + "; fi; " + ecn + "; fi; " + tc,
			"if [ $1 = down ]; then " + ecn + "; else " + tc + "; fi",
			"case \"$2\" in up) " + tc + ";; down) " + ecn + ";; esac",
			"case $1 in down|stop) " + ecn + ";; *) " + tc + ";; esac",
			"start() { " + tc + "; }; stop() { " + ecn + "; }", "stop() { " + ecn + "; }; " + tc,
			"ip netns exec blue true; " + tc, "ip -n blue link set x up && " + tc, "nsenter -t 1 -m -u -n -i " + tc,
			"nsenter -t 5 -m " + tc, "docker run --rm --net=host img " + tc, "ssh other true; " + tc,
			"unshare -m " + tc,
			"sh -c 'ip netns exec blue true; " + tc + "'", "systemctl reload ssh && " + tc,
			"if a; then\n exit 0\nfi\n" + tc, "[ -x /a ] || exit 0\n" + tc, "f() {\n exit 0\n}\n" + tc,
			"for i in 1; do exit 0; done; " + tc, "(\nexit 0\n)\n" + tc, "awk '\nexit 0\n'\n" + tc,
			"case $1 in\n a)\n  exit 0\n  ;;\nesac\n" + tc, "a | while read i; do\nexit 0\ndone\n" + tc,
			"a && {\n exit 0\n}\n" + tc, "if [ 1 = 1 ]; then " + tc + "; fi", "true && " + tc, "false || " + tc,
			"if [ $A = 1 ]; then " + tc + "; fi", "if false; then\n exit 0\nfi\n" + tc + "\nexit 0",
			"ip netns exec blue sh -c '\n" + ecn + "\n'\n" + tc, "ip netns exec blue sh <<EOF\n" + ecn + "\nEOF\n" + tc,
		},
		"cake on ${…}": {"tc qdisc add dev $(ip r | awk '/^d/ {print $5}') root cake",
			"tc qdisc add dev `x` root cake"},
		set: {
			"echo 1 >| " + proc, "echo \"1\" > \"" + proc + "\"", "echo 1 | sudo -n tee -a " + proc,
			"printf '%s' 1 > " + proc,
			"printf '1\\n' > " + proc, "tee " + proc + " <<< 1", "cat > " + proc + " <<< \"1\"", ecn + ">/dev/null",
			"echo 1 >> " + proc, "echo 1 >>" + proc + "; true", "cd /proc/sys/net/ipv4; echo 1 > tcp_ecn",
			"cd /proc/sys/net/ipv4\necho 1 >tcp_ecn", "cd /proc/sys && echo 1 >> net/ipv4/tcp_ecn",
			"(cd \"/proc/sys/net/ipv4/\" && echo 1 | tee tcp_ecn >/dev/null)",
			"[ -w " + proc + " ] && echo 1 > " + proc, "sh -c \"echo 1 > " + proc + "\"", "x=$(" + ecn + ")",
		},
		"": {
			"[ \"$2\" = down ] && " + tc, "[[ $2 == post-down ]] && " + tc, "echo 'echo 1 > " + proc + "'",
			"ip netns exec blue sudo " + tc, "ip netns exec blue sh -c '" + tc + "'", "ip net e blue env X=1 " + tc,
			"ip netns exec blue bash -c \"sleep 1; " + tc + "\"", "ip netns exec blue " + ecn,
			"$IP netns exec \"$NS\" " + tc,
			"ip netns exec blue sh -c 'echo 1 > " + proc + "'", "echo 1 | ip netns exec blue tee " + proc,
			"ip -all netns exec " + tc, "nsenter -t $PID -n -- " + tc, "nsenter --target 5 --net " + ecn,
			"nsenter --net=/run/netns/blue " + tc, "nsenter -t $P -a sh -c \"" + tc + "\"", "unshare -rn " + tc,
			"docker exec -it c " + ecn, "podman exec c " + tc, "docker compose exec c " + tc, "docker run img " + tc,
			"lxc exec c -- " + tc, "lxc-attach -n c -- " + tc, "pct exec 100 -- " + tc, "kubectl -n x exec p -- " + tc,
			"machinectl shell c /sbin/" + tc, "systemd-nspawn -D x /sbin/" + tc, "ssh -p 2 root@other '" + tc + "'",
			"sh -c 'ssh other " + tc + "'",
			"subprocess.run(['ip', 'netns', 'exec', 'b', 'tc', 'qdisc', 'add', 'root'])",
			"ip netns exec blue /root/q.sh", "if false; then " + tc + "; fi", "ssh router " + tc,
			"docker run --sysctl net.ipv4.tcp_ecn=1 img", "ssh web " + ecn,
			"cd /proc/sys/net/core; echo 1 > tcp_ecn", "cd /root; echo 1 > tcp_ecn",
			"exit 0\n" + tc, "true; exit # done\n" + ecn + "\n" + tc, "if [ a ]; then\n true\nfi\nexit 0\n" + tc,
			"case $1 in a) exit;; esac\nf() {\n exit 1\n}\nexit 1\n" + tc,
			"if [ 0 = 1 ]; then\n" + tc + "\nfi", "if ! true; then " + tc + "; fi", "false && " + tc,
			"true || { " + ecn + "; " + tc + "; }", "[ 1 -ne 1 ] && " + tc, "if [ x != \"x\" ]; then " + tc + "; fi",
		},
	} {
		for _, l := range lines {
			d := settings(fstest.MapFS{"etc/rc.local": executable("#!/bin/sh\n" + l + "\n"),
				"root/q.sh": executable("#!/bin/sh\n" + tc + "\n")})
			if got := sets(d.Writers); got != want {
				t.Errorf("%s:\n%q, want %q", l, got, want)
			}
		}
	}
	// Outside of a shell's script, too.
	for name, text := range map[string]string{
		"etc/udev/rules.d/a.rules": `ACTION=="add", RUN+="/sbin/ip netns exec blue ` + tc + `"`,
		"etc/cloud/cloud.cfg.d/a.cfg": "bootcmd:\n - ip netns exec blue " + tc +
			"\n - [ ip, netns, exec, blue, " + ecn + " ]",
		"etc/systemd/system/a.service": "[Service]\nExecStart=/usr/bin/nsenter --net=/x " + tc,
	} {
		if d := settings(fstest.MapFS{name: file(text + "\n")}); len(d.Writers) > 0 {
			t.Errorf("%s: %q", name, sets(d.Writers))
		}
	}
}

// sets is what writers set.
func sets(writers []Writer) string {
	var all []string
	for _, w := range writers {
		if w.Qdisc != "" {
			all = append(all, w.Queue()+" on "+w.Device())
		} else {
			all = append(all, w.Sysctl+"="+w.Value)
		}
	}
	return strings.Join(all, "; ")
}

// networkd's sections, with the rate where one is set, and what is no root.
func TestNetworkd(t *testing.T) {
	for text, want := range map[string]string{
		"[CAKE]\nBandwidth=20M\n":                          "cake with 20mbit on e0",
		"[CAKE]\nParent=root\nBandwidth=500K\n":            "cake with 500kbit on e0",
		"[CAKE]\nParent=1:10\nBandwidth=20M\n":             "",
		"[CAKE]\nBandwidth=20M\nParent=ingress\n":          "",
		"[TokenBucketFilter]\nRate=1G\nBurstBytes=5K\n":    "tbf with 1gbit on e0",
		"[HierarchyTokenBucketClass]\nRate=1G\n":           "",
		"[HierarchyTokenBucket]\nDefaultClass=10\n":        "htb on e0",
		"[PFIFO]\n[BFIFO]\nParent=2:1\n":                   "pfifo on e0",
		"[PFIFOFast]\n":                                    "pfifo_fast on e0",
		"[PFIFOHeadDrop]\n":                                "pfifo_head_drop on e0",
		"[StochasticFairnessQueueing]\nPerturbPeriodSec=1": "sfq on e0",
		"[StochasticFairBlue]\n":                           "sfb on e0",
		"[DeficitRoundRobinScheduler]\n":                   "drr on e0",
		"[EnhancedTransmissionSelection]\nBands=3\n":       "ets on e0",
		"[QuickFairQueueing]\n":                            "qfq on e0",
		"[HeavyHitterFilter]\n":                            "hhf on e0",
		"[GenericRandomEarlyDetection]\n":                  "gred on e0",
		"[BandMultiQueueing]\n":                            "multiq on e0",
		"[ClassfulMultiQueueing]\nHandle=1\n":              "mq on e0",
		"[TrivialLinkEqualizer]\nId=0\n":                   "teql on e0",
		"[BFIFO]\nLimitBytes=1M\n":                         "bfifo on e0",
	} {
		const head = "[Match]\nName=e0\n[Network]\nDHCP=yes\n"
		d := settings(fstest.MapFS{"etc/systemd/network/a.network": file(head + text)})
		var got []string
		for _, w := range d.Writers {
			got = append(got, w.Queue()+" on "+w.Device())
		}
		if all := strings.Join(got, "; "); all != want {
			t.Errorf("%q: %q, want %q", text, all, want)
		}
	}
}

// TuneD sets the files of sysctl.d again after its profile, unless it is told not to. What systemd is handed as a
// credential comes after all files.
func TestWhoComesLast(t *testing.T) {
	const ecn = "net.ipv4.tcp_ecn"
	for text, want := range map[string]bool{"": true, "reapply_sysctl = 1\n": true, "reapply_sysctl = 0\n": false,
		"# reapply_sysctl = 0\n": true, "reapply_sysctl=False": false} {
		d := settings(fstest.MapFS{"etc/tuned/active_profile": file("p"), "etc/tuned/tuned-main.conf": file(text),
			"etc/tuned/p/tuned.conf": file("[sysctl]\n" + ecn + "=1\n")})
		if len(d.Writers) != 1 || d.Writers[0].Yields != want {
			t.Errorf("%q: %+v", text, d.Writers)
		}
		// Its profile need not have a setting that plans use for this.
		d = settings(fstest.MapFS{"etc/tuned/active_profile": file("p"), "etc/tuned/tuned-main.conf": file(text),
			"etc/tuned/p/tuned.conf": file("[sysctl]\nvm.swappiness=1\n"), "etc/sysctl.conf": file(ecn + "=2"),
			"usr/lib/systemd/systemd-sysctl": file("")})
		if len(d.Settings) != 1 || d.Settings[0].Unread == want {
			t.Errorf("%q: %+v", text, d.Settings)
		}
	}
	for name, want := range map[string]bool{"/etc/sysctl.d/a.conf": true, "/run/sysctl.d/a.conf": true,
		"/etc/sysctl.conf": true, "/usr/lib/sysctl.d/a.conf": false, CommandLine: false} {
		if got := (Setting{File: name}).AppliedAgain(); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	// A section that is off sets nothing, in who includes others for these, too.
	for text, want := range map[string]string{"[sysctl]\nenabled=true\n": ecn + "=1; net.ipv4.tcp_sack=0",
		"[main]\ninclude=base\n[sysctl]\nenabled=false\n": "", "[main]\ninclude=base\n[vm]\nenabled=0\n": ecn + "=1; " +
			"net.ipv4.tcp_sack=0", "[sysctl]\n" + ecn + "=2\nenabled = 0\n": ""} {
		d := settings(fstest.MapFS{"etc/tuned/active_profile": file("p base"), "etc/tuned/p/tuned.conf": file(text),
			"etc/tuned/base/tuned.conf": file("[sysctl]\n" + ecn + "=1\nnet.ipv4.tcp_sack=0\n")})
		if got := sets(d.Writers); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for loader, want := range map[string]string{"usr/lib/systemd/systemd-sysctl": "3", "usr/sbin/sysctl": "1",
		"run/current-system/systemd/lib/systemd/systemd-sysctl": "3"} {
		d := settings(fstest.MapFS{loader: file(""), "etc/sysctl.d/zz.conf": file(ecn + "=1"),
			"run/credentials/@system/sysctl.extra": file(ecn + "=3\n"), "etc/credstore/sysctl.extra": file(ecn + "=2")})
		if s, ok := d.AtBoot(ecn); !ok || s.Value != want {
			t.Errorf("%s: %+v", loader, s)
		}
	}
}

// Debian 13's boot does not read /etc/sysctl.conf, but many hosts have something that does.
func TestWhoReadsSysctlConf(t *testing.T) {
	const ecn, begin = "net.ipv4.tcp_ecn", "#!/bin/sh\n"
	const unit, cron, rc = "etc/systemd/system/a.service", "etc/cron.d/a", "etc/rc.local"
	for _, c := range []struct {
		name, text string
		reads      bool
	}{
		{rc, "sysctl -p", true}, {rc, "/sbin/sysctl --system >/dev/null", true}, {rc, "sysctl -qep /etc/sysctl.conf",
			true},
		{rc, "sysctl --load=/etc/sysctl.conf", true}, {rc, "sysctl -p/etc/sysctl.conf; true", true},
		{rc, "sysctl --load /etc/sysctl.conf", true}, {rc, "sysctl -n net.x; sysctl -p && true", true},
		{cron, "@reboot root /sbin/sysctl -p /etc/sysctl.conf", true},
		{unit, "[Service]\nExecStart=/sbin/sysctl --system", true},
		{"etc/systemd/system/systemd-sysctl.service.d/a.conf", "[Service]\nExecStartPost=/sbin/sysctl -p", true},
		{"etc/cloud/cloud.cfg.d/a.cfg", "bootcmd:\n - [ sysctl, -p ]\n - [ \"/sbin/sysctl\", \"--system\" ]", true},
		{rc, "sysctl -p /etc/other.conf", false}, {rc, "sysctl -p -", false}, {rc, "sysctl -n net.x", false},
		{rc, "sysctl -a", false}, {rc, "ssh web sysctl -p", false}, {rc, "echo sysctl -p", false},
		{unit, "[Service]\nExecStop=/sbin/sysctl --system", false},
		// at other times than at boot
		{unit, "[Service]\nExecStart=/sbin/sysctl -p\n[Install]\nWantedBy=multi-user.target", false},
		{rc, "exit 0\nsysctl -p", false}, {cron, "0 3 * * 7 root sysctl -p", false}, {cron,
			"0 3 * * 7 root sysctl -p\n@reboot root sysctl -p", true},
		{"etc/cron.weekly/a", begin + "sysctl -p", false}, {"etc/profile.d/a.sh", "sysctl -p", false},
	} {
		text := c.text + "\n"
		if c.name == rc {
			text = begin + text
		}
		d := settings(fstest.MapFS{"usr/lib/systemd/systemd-sysctl": file(""), c.name: executable(text),
			"etc/sysctl.d/z.conf": file(ecn + "=1"), "etc/sysctl.conf": file(ecn + "=2")})
		conf := slices.IndexFunc(d.Settings, func(s Setting) bool { return s.File == "/etc/sysctl.conf" })
		boot, _ := d.AtBoot(ecn)
		if conf < 0 || d.Settings[conf].Unread == c.reads || boot.Value == "2" != c.reads || len(d.Writers) > 0 {
			t.Errorf("%s: %q: %+v, %+v", c.name, c.text, d.Settings, d.Writers)
		}
	}
	d := settings(fstest.MapFS{"usr/lib/systemd/systemd-sysctl": file(""), rc: file(begin + "sysctl -p\n"),
		"etc/sysctl.conf": file(ecn + "=2")})
	if len(d.Settings) != 1 || !d.Settings[0].Unread {
		t.Errorf("not executable: %+v", d.Settings)
	}
	const units = "etc/systemd/system/"
	for name, reads := range map[string]bool{units + "multi-user.target.wants/a.service": true, units + "x": false,
		"usr/lib/systemd/system/basic.target.requires/a.service": true, units + "timers.target.wants/a.timer": true,
		units + "suspend.target.wants/a.service": false, units + "b.service": true, "etc/rc.local": true} {
		d := settings(fstest.MapFS{"usr/lib/systemd/systemd-sysctl": file(""), "etc/sysctl.conf": file(ecn + "=2"),
			unit:    file("[Service]\nExecStart=/opt/a\n[Install]\nWantedBy=multi-user.target\n"),
			"opt/a": executable(begin + "sysctl -p\n"),
			name: executable("#!/bin/sh\n[Unit]\n" +
				map[bool]string{true: "Wants=a.service\n/opt/a\nOnBootSec=9\n"}[reads])})
		if len(d.Settings) != 1 || d.Settings[0].Unread == reads {
			t.Errorf("a unit that waits for somebody to enable it, and %s: %+v", name, d.Settings)
		}
	}
	d = settings(fstest.MapFS{rc: executable(begin + "sysctl -p /etc/sysctl.d/99-bbr /etc/a.conf\n"),
		"etc/sysctl.d/99-bbr": file(ecn + "=2"), "etc/a.conf": file(ecn + "=3")})
	if got := sets(d.Writers); got != ecn+"=2; "+ecn+"=3" || len(d.Idle) > 0 {
		t.Errorf("files of other names: %s; %+v", got, d.Idle)
	}
}

// networkd heeds one file for a device: the first by its name, from the first directory that has the name.
func TestNetworkdFiles(t *testing.T) {
	const etc, run, local = "etc/systemd/network/", "run/systemd/network/", "usr/local/lib/systemd/network/"
	const eth0, cake = "[Match]\nName=eth0\n", "[CAKE]\nBandwidth=20M\n"
	card := Link{Name: "eth0", MAC: "52:54:00:12:34:56", Driver: "virtio_net"}
	for name, c := range map[string]struct {
		files fstest.MapFS
		sets  bool // cake on eth0
		idle  string
		taken string
	}{
		"alone":             {fstest.MapFS{etc + "a.network": file(eth0 + cake)}, true, "", ""},
		"the administrator": {fstest.MapFS{local + "a.network": file(eth0 + cake)}, true, "", ""},
		"masked": {fstest.MapFS{run + "10.network": file(eth0 + cake), etc + "10.network": file(eth0)}, false,
			"/etc/systemd/network/10.network takes its place", ""},
		"masked by nothing": {fstest.MapFS{run + "10.network": file(eth0 + cake),
			etc + "10.network": link("/dev/null"), "dev/null": &fstest.MapFile{Mode: fs.ModeDevice}}, false,
			"/etc/systemd/network/10.network takes its place", ""},
		"a package's, masked": {fstest.MapFS{"usr/lib/systemd/network/10.network": file(eth0 + cake),
			etc + "10.network": file(eth0)}, false, "", ""},
		"a link to it": {fstest.MapFS{local + "10.network": file(eth0 + cake),
			etc + "10.network": link("/usr/local/lib/systemd/network/10.network")}, true, "", ""},
		"later": {fstest.MapFS{etc + "90.network": file(eth0 + cake), run +
			"05-all.network": file("[Match]\nName=*\n")},
			false, "", "/run/systemd/network/05-all.network"},
		"earlier for others": {fstest.MapFS{etc + "90.network": file(eth0 + cake),
			etc + "05.network": file("[Match]\nName=* !x\nType=wlan wwan\n"),
			etc + "06.network": file("[Match]\nName=!eth*\n"), etc + "07.network": file("[Match]\nKind=bridge\n"),
			etc + "08.network": file("[Match]\nName=eth0\nHost=other\n"),
			etc + "09.network": file("[Network]\nDHCP=yes\n"), etc + "10.network": file("[Match]\nDriver=e1000*\n")},
			true, "", ""},
		"a drop-in": {fstest.MapFS{etc + "a.network": file(eth0), run + "a.network.d/q.conf": file(cake)}, true, "",
			""},
		"a drop-in of another's": {fstest.MapFS{etc + "20-wg.network": file("[Match]\nName=wg0\n"),
			etc + "20-wg.network.d/x.conf": file(cake)}, false, "", ""},
		"a drop-in of none": {fstest.MapFS{etc + "20-wg.network.d/x.conf": file(eth0 + cake)}, false,
			"there is no 20-wg.network that it would add to", ""},
		"wireless": {fstest.MapFS{etc + "a.network": file("[Match]\nType=wlan\n" + cake)}, false, "", ""},
		"wired":    {fstest.MapFS{etc + "a.network": file("[Match]\nType=ether\n" + cake)}, true, "", ""},
		"no match": {fstest.MapFS{etc + "a.network": file(cake)}, false, "no [Match] says which devices are meant",
			""},
		"forgotten": {fstest.MapFS{etc + "a.network": file("[Match]\nName=x\nName=\nName=eth0\n" + cake)}, true, "",
			""},
	} {
		d := settings(c.files)
		all := append(slices.Clone(d.Writers), d.Idle...)
		sets := slices.ContainsFunc(d.Writers, func(w Writer) bool { return w.MayMatch(card) && w.Qdisc == "cake" })
		idle, taken := "", ""
		for _, w := range all {
			idle += w.Idle
			taken += w.OverriddenBy(card)
		}
		if sets != c.sets || idle != c.idle || taken != c.taken {
			t.Errorf("%s: sets %v, idle %q, taken by %q: %+v", name, sets, idle, taken, all)
		}
	}
}

// Lines of files of settings that the loaders pass over, and why.
func TestIgnoredLines(t *testing.T) {
	const bbr = "net.ipv4.tcp_congestion_control"
	for line, want := range map[string]string{ // what it was to set, and the beginning of the reason
		bbr + " bbr":                             bbr + "=bbr there is no =",
		"net/ipv4/tcp_rmem 1 2\t3":               "net.ipv4.tcp_rmem=1 2 3 there is no =",
		"sysctl -w " + bbr + "=bbr":              bbr + "=bbr it is a command",
		"sudo sysctl -w net.ipv4.tcp_rmem='1 2'": "net.ipv4.tcp_rmem=1 2 it is a command",
		byteOrderMark + bbr + " = bbr":           bbr + "=bbr an invisible byte-order mark",
		"net.ipv4.tcp_congestion_contol = bbr": bbr +
			"=bbr there is no setting of the name net.ipv4.tcp_congestion_contol",
		"ipv4.tcp_congestion_control = bbr": bbr +
			"=bbr there is no setting of the name ipv4.tcp_congestion_control",
		"tcp_congestion_control=bbr": bbr + "=bbr there is no setting of the name tcp_congestion_control",
		bbr + " = bbr":               "",
		"-" + bbr:                    "",
		"# " + bbr + " bbr":          "",
		byteOrderMark + "# x":        "",
		"net.ipv4.tcp_retries1 = 5":  "", // which there is
		"net.*.tcp_retries2 = 5":     "",
		"net.ipv4.tcp_ecn = 1":       "",
		"net.ipv4.tcp_frtoo = 1":     "", // this kernel has neither
		"vm.swappiness 5":            "",
		bbr:                          "",
		"see sysctl(8) and so on":    "",
	} {
		for _, name := range []string{"etc/sysctl.conf", "etc/sysctl.d/a.conf"} {
			d := settings(fstest.MapFS{name: file(line + "\n"), "etc/sysctl.d/b.conf": link("../sysctl.conf"),
				"proc/sys/net/ipv4/tcp_congestion_control": file("cubic"), "proc/sys/net/ipv4/tcp_retries2": file("15"),
				"proc/sys/net/ipv4/tcp_retries1": file("3")})
			got := ""
			for _, w := range d.Idle {
				got += fmt.Sprintf("%s=%s %s", w.Sysctl, w.Value, w.Idle)
			}
			if !strings.HasPrefix(got, want) || (got == "") != (want == "") || len(d.Writers) > 0 ||
				got != "" && d.Idle[0].Where() != "/"+name+":1" {
				t.Errorf("%s: %q: %q, want %q", name, line, got, want)
			}
		}
	}
}

// What a script's variable stands for, where the script gives it one value, and that of a unit.
func TestVariables(t *testing.T) {
	const begin, root, unit = "#!/bin/sh\n", "qdisc replace dev ens3 root cake", "etc/systemd/system/a.service"
	for _, c := range []struct{ name, text, want string }{
		{"etc/rc.local", begin + "TC=\"/sbin/tc qdisc\"\n$TC replace dev ens3 root cake", "cake on ens3"},
		{"etc/rc.local", begin + "TC='tc qdisc'; ${TC} replace dev ens3 root cake", "cake on ens3"},
		{"etc/rc.local", begin + "Q=\"" + root + "\"; tc $Q", "cake on ens3"},
		{"etc/rc.local", begin + "Q=\"tc " + root + "\"\n$Q || exit", "cake on ens3"},
		{"etc/rc.local", begin + "NS=\"ip netns exec blue\"; $NS tc " + root, ""},
		{"etc/rc.local", begin + "NS=\nNS=\"ip netns exec blue\"; $NS tc " + root, "cake on ens3"},
		{"etc/rc.local", begin + "export DEV=wlan0\ntc qdisc replace dev $DEV root cake", "cake on wlan0"},
		{"etc/rc.local", begin + "DEV=wlan0 # mine\nQ=\"dev $DEV root\"\ntc qdisc replace $Q cake", "cake on wlan0"},
		{"etc/rc.local", begin + "f() {\n local DEV=wlan0\n tc qdisc replace dev \"$DEV\" root cake\n}\nf",
			"cake on wlan0"},
		{"etc/rc.local", begin + "DEV=wlan0\nDEV=$(x)\ntc qdisc replace dev $DEV root cake", "cake on $DEV"},
		{"etc/rc.local", begin + "[ -z \"$DEV\" ] && DEV=wlan0\ntc qdisc replace dev $DEV root cake", "cake on $DEV"},
		{"etc/rc.local", begin + "DEV=$(x)\nDEV=wlan0\ntc qdisc replace dev $DEV root cake", "cake on $DEV"},
		{"etc/rc.local", begin + "DEV=wlan0\ntc -b - <<E\nqdisc replace dev $DEV root cake\nE", "cake on wlan0"},
		{"etc/rc.local", begin + "RUN=echo\n$RUN tc " + root, ""},
		{"etc/rc.local", begin + "DEV=wlan0\nDEV=eth0\ntc qdisc replace dev $DEV root cake", "cake on $DEV"},
		{"etc/rc.local", begin + "DEV=wlan0\nfor DEV in a b; do tc qdisc replace dev $DEV root cake; done",
			"cake on $DEV"},
		{"etc/rc.local", begin + "DEV=wlan0\nread -r DEV\ntc qdisc replace dev $DEV root cake", "cake on $DEV"},
		{"etc/rc.local", begin + "DEV=wlan0\n. /etc/default/q\ntc qdisc replace dev $DEV root cake", "cake on $DEV"},
		{"etc/rc.local", begin + "DEV=$1\ntc qdisc replace dev $DEV root cake", "cake on $DEV"},
		{"etc/rc.local", begin + "ON=no\n[ $ON = yes ] && tc " + root, "cake on ens3"},
		{"etc/rc.local", begin + "DEV=wlan0 /opt/x\ntc qdisc replace dev $DEV root cake", "cake on $DEV"},
		{"etc/rc.local", begin + "MAX=1\nsysctl -w net.ipv4.tcp_ecn=$MAX", "net.ipv4.tcp_ecn=1"},
		{"etc/crontab", "DEV=wlan0\n@reboot root tc qdisc replace dev $DEV root cake", "cake on wlan0"},
		{unit, "[Service]\nEnvironment=X=1 \"DEV=wlan0\"\nExecStart=/sbin/tc qdisc replace dev ${DEV} root cake",
			"cake on wlan0"},
		{unit, "[Service]\nEnvironment=DEV=wlan0\nEnvironmentFile=/etc/default/q\n" +
			"ExecStart=/sbin/tc qdisc replace dev $DEV root cake", "cake on $DEV"},
		{unit + ".d/a.conf", "[Service]\nEnvironment=DEV=eth1", "cake on $DEV"},
		{unit, "[Service]\nType=cake\nExecStart=/sbin/tc qdisc replace dev ens3 root $Type", "a queue on ens3"},
	} {
		root := fstest.MapFS{c.name: executable(c.text + "\n")}
		if c.name == unit+".d/a.conf" {
			root[unit] = file("[Service]\nEnvironment=DEV=eth0\nExecStart=/sbin/tc qdisc replace dev $DEV root cake\n")
		}
		d := settings(root)
		if got := sets(d.Writers); got != c.want {
			t.Errorf("%s: %q: %q, want %q", c.name, c.text, got, c.want)
		}
	}
}

// What a script does only for a device of one name, it does for no other.
func TestGuards(t *testing.T) {
	const tc = "tc qdisc replace dev $IFACE root cake"
	const one, every, none = "cake on wlan0", "cake on $IFACE", ""
	for text, want := range map[string]string{
		"if [ \"$IFACE\" = wlan0 ]; then\n " + tc + "\nfi":                             one,
		"if [ \"$IFACE\" = \"wlan0\" ]; then " + tc + "; fi":                           one,
		"if [[ $IFACE == wlan0 && $2 == up ]]; then\n " + tc + "\nfi":                  one,
		"if [ $IFACE = wlan0 ] && [ $2 = up ]; then\n " + tc + "\nfi":                  one,
		"if [ $IFACE = wlan0 ] || [ $2 = up ]; then\n " + tc + "\nfi":                  every,
		"if [ $IFACE = wlan0 ]; then\n true\nelse\n " + tc + "\nfi":                    every,
		"if [ $IFACE = wlan0 ]; then\n true\nfi\n" + tc:                                every,
		"if [ $IFACE = wlan0 ]; then\n if a; then b; fi\n " + tc + "\nfi":              one,
		"if [ a ]; then\n b\nelif [ $IFACE = wlan0 ]; then\n " + tc + "\nfi":           one,
		"if [ $IFACE != wlan0 ]; then\n " + tc + "\nfi":                                every,
		"if [ $IFACE = wlan0 ]; then\n tc qdisc replace dev eth0 root cake\nfi":        "cake on eth0",
		"[ $IFACE = wlan0 ] && " + tc:                                                  one,
		"[ $IFACE = wlan0 ] && true\n" + tc:                                            every,
		"test \"$IFACE\" = wlan0 && { true; " + tc + "; }":                             one,
		"[ $IFACE = wlan0 ] || exit 0\n" + tc:                                          one,
		"[ $IFACE != wlan0 ] && exit\n" + tc:                                           one,
		"[ $IFACE = lo ] && exit\n" + tc:                                               every,
		"if [ $IFACE != wlan0 ]; then exit 0; fi\n" + tc:                               one,
		"if [ $IFACE != wlan0 ]; then\n exit 0\nfi\n" + tc:                             one,
		"if a; then\n [ $IFACE = wlan0 ] || exit\nfi\n" + tc:                           every,
		"case \"$IFACE\" in\n wlan0)\n  " + tc + "\n ;;\nesac":                         one,
		"case $IFACE in wlan0) " + tc + ";; esac":                                      one,
		"case $IFACE in\n eth0) true ;;\n wlan*) " + tc + " ;;\nesac":                  "cake on wlan*",
		"case $IFACE in\n wlan0) true ;;\n *) " + tc + " ;;\nesac":                     every,
		"case $IFACE in\n wlan0) case $2 in up) " + tc + ";; esac;;\nesac":             one,
		"case $IFACE in wlan0) true;; esac\n" + tc:                                     every,
		"case $2 in\n up) " + tc + " ;;\nesac":                                         every,
		"IF=$1\nif [ \"$IF\" = wlan0 ]; then\n tc qdisc replace dev $IF root cake\nfi": one,
		"if [ \"$1\" = wlan0 ]; then\n tc qdisc replace dev $1 root cake\nfi":          one,
		"[ $1 = wlan0 ] || exit\nf() {\n tc qdisc replace dev $1 root cake\n}":         "cake on $1",
		"if [ $IFACE != wlan0 ]; then a && b && exit; fi\n" + tc:                       every,
		"[ a ] || [ $IFACE = wlan0 ] || exit\n" + tc:                                   every,
		"if [ $IFACE = wlan0 ]; then IFACE=$(x); " + tc + "; fi":                       every,
		"if [ $IFACE = wlan0 ]; then\n ip netns exec a " + tc + "\nfi":                 none,
	} {
		for _, name := range []string{"etc/network/if-up.d/q", "etc/networkd-dispatcher/routable.d/q"} {
			d := settings(fstest.MapFS{name: executable("#!/bin/sh\n" + text + "\n")})
			if got := sets(d.Writers); got != want {
				t.Errorf("%s:\n%s\n%q, want %q", name, text, got, want)
			}
		}
	}
}

// A unit that only a timer starts runs at boot where the timer says so, and else at its time.
func TestTimers(t *testing.T) {
	const unit, timer = "etc/systemd/system/a.service", "etc/systemd/system/a.timer"
	const wants = "etc/systemd/system/timers.target.wants/a.timer"
	const often, starts, at = "at its time", "whenever the unit starts", "\n[Install]\nWantedBy=timers.target\n"
	for _, c := range []struct {
		timer, install, want string
		link                 bool
	}{
		{"OnBootSec=1min", "", starts, true},
		{"OnStartupSec=1min", "", starts, true},
		{"OnActiveSec=1min", "", starts, true},
		{"OnCalendar=daily\nPersistent=true", "", starts, true},
		{"OnCalendar=daily", "", often, true},
		{"OnCalendar=daily\nPersistent=no", "", often, true},
		{"OnBootSec=\nOnCalendar=daily", "", often, true},
		{"OnCalendar=daily", "[Install]\nWantedBy=multi-user.target\n", often, true},
		{"OnCalendar=daily", "", starts, false},
	} {
		root := fstest.MapFS{"usr/lib/systemd/systemd-sysctl": file(""), "etc/sysctl.conf": file("net.ipv4.tcp_ecn=2"),
			unit: file("[Service]\nExecStart=/sbin/sysctl -w net.ipv4.tcp_sack=0\nExecStartPost=/sbin/sysctl -p\n" +
				c.install),
			timer: file("[Timer]\n" + c.timer + at)}
		if c.link {
			root[wants] = link("../a.timer")
		}
		d := settings(root)
		if len(d.Writers) != 1 || d.Writers[0].When() != c.want || len(d.Settings) != 1 ||
			d.Settings[0].Unread != (c.want == often) {
			t.Errorf("%q, %q: %+v, %+v", c.timer, c.install, d.Writers, d.Settings)
		}
	}
	d := settings(fstest.MapFS{unit: file("[Service]\nExecStart=/sbin/sysctl -w net.ipv4.tcp_sack=0\n" +
		"[Install]\nWantedBy=multi-user.target\n"), timer: file("[Timer]\nOnCalendar=daily\n"),
		wants: link("../a.timer"), "etc/systemd/system/multi-user.target.wants/a.service": link("../a.service")})
	if len(d.Writers) != 1 || d.Writers[0].When() != starts {
		t.Errorf("also enabled itself: %+v", d.Writers)
	}
}
