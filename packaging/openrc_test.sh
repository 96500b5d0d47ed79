# A Debian with OpenRC in the directory $1, with no systemd, on which weir ($2, the .apk or the program alone) keeps a goal over a boot. It is run in
# mount, network and process namespaces of its own, by a process 1 that is called openrc-init.
set -euo pipefail
trap 'echo "failed in line $LINENO: $BASH_COMMAND"' ERR

root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs none "$root/run"
mount --rbind /dev "$root/dev"
in_root() { chroot "$root" "$@"; }
boot() { # a new one, in which nothing is set
	ip link del up0 2>/dev/null || true
	ip link add up0 type veth peer name far0
	ip link set up0 up
	ip link set far0 up
	ip address add 192.0.2.2/24 dev up0
	ip route add default via 192.0.2.1
	echo 4294967295 >/proc/sys/net/ipv4/tcp_notsent_lowat
	rm -rf "$root"/run/*
	mkdir -p "$root/run/openrc" "$root/run/lock"
	cat /proc/sys/kernel/random/uuid >"$root/tmp/boot_id"
	mount --bind "$root/tmp/boot_id" "$root/proc/sys/kernel/random/boot_id"
	in_root openrc default
	grep -q . "$root/run/openrc/softlevel"
}
lowat() { cat /proc/sys/net/ipv4/tcp_notsent_lowat; }
queue() { tc qdisc show dev up0 | head -n 1; }
written() { (cd "$root/etc" && find . -name '*weir*' | sort); }

case $2 in
*.apk) bsdtar -xf "$2" -C "$root" etc usr ;;
*) install -D "$2" "$root/usr/local/bin/weir" ;;
esac
before=$(written)
boot
found=$(queue)

echo "== up, and confirm"
in_root weir up --qdisc "tbf rate 50mbit burst 32k latency 50ms"
in_root weir confirm
in_root weir status
up=$(queue)
[ "$up" != "$found" ]
[ -z "$(written | grep -e systemd -e udev)" ]
[ "$(readlink "$root/etc/runlevels/default/weir")" = /etc/init.d/weir ]
[ -x "$root/etc/init.d/weir" ]
[ -s "$root/etc/weir.toml" ]

echo "== reboot"
boot
in_root rc-service weir status
[ "$(queue | sed 's/ [0-9a-f]*: / /')" = "$(sed 's/ [0-9a-f]*: / /' <<<"$up")" ]
[ "$(lowat)" = 131072 ]
in_root weir status

echo "== stop is not down"
in_root rc-service weir stop
in_root weir status
in_root rc-service weir start
in_root weir status

echo "== down"
in_root weir down
[ "$(queue | sed 's/ [0-9a-f]*: / /')" = "$(sed 's/ [0-9a-f]*: / /' <<<"$found")" ]
[ "$(lowat)" = 4294967295 ]
[ "$(written)" = "$before" ]

[[ $2 == *.apk ]] || { rm "$root/usr/local/bin/weir"; echo "== done"; exit; }
echo "== removed while in force"
in_root weir up --yes
[ "$(lowat)" = 131072 ]
bsdtar -xOf "$2" .pre-deinstall >"$root/tmp/pre-deinstall"
in_root sh /tmp/pre-deinstall 1.0-r1
[ "$(lowat)" = 4294967295 ]
[ "$(written)" = "$before" ]
echo "== done"
