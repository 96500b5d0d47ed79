# What a host, which is a copy of this machine (copy_test.sh), goes through with the package $1 and its packager's own program: dpkg, rpm, pacman or apk ($WEIR_APK).
case $1 in
*.deb)
	cp "$1" "$root/tmp/first.deb"
	dpkg-deb -R "$root/tmp/first.deb" "$scratch/later"
	sed -i 's/^Version: .*/&.later/' "$scratch/later/DEBIAN/control"
	dpkg-deb --root-owner-group -b "$scratch/later" "$root/tmp/later.deb" >/dev/null
	install() { in_root dpkg -i /tmp/first.deb; }
	upgrade() { in_root dpkg -i /tmp/later.deb; }
	remove() { in_root dpkg -r weir; }
	;;
*.rpm) # the same version again calls the scripts of an upgrade
	file=/tmp/${1##*/} # rpmlint looks at the name
	cp "$1" "$root/tmp"
	install() { in_root rpm -i "$file" && in_root rpm -V weir; }
	upgrade() { in_root rpm -U --replacepkgs "$file"; }
	remove() { in_root rpm -e weir; }
	;;
*.pkg.tar.zst)
	cp "$1" "$root/tmp/weir.pkg.tar.zst"
	printf '[options]\nLocalFileSigLevel = Never\n' >"$root/tmp/pacman.conf"
	mkdir -p "$root/var/lib/pacman"
	ln -sf bash "$root/usr/bin/sh" # as Arch has it: nfpm's scripts are bash's
	pacman() { in_root pacman --config /tmp/pacman.conf --noconfirm "$@"; }
	install() { pacman -U /tmp/weir.pkg.tar.zst && pacman -Qkk weir; }
	upgrade() { pacman -U /tmp/weir.pkg.tar.zst; }
	remove() { pacman -R weir; }
	;;
*.apk)
	cp "$WEIR_APK" "$root/sbin/apk"
	cp "$1" "$root/tmp/first.apk"
	python3 - "$1" "$root/tmp/later.apk" <<-'END' # its first part, apk-v2(5)'s control segment, with another version
		import io, re, sys, tarfile, zlib
		file = open(sys.argv[1], "rb").read()
		first = zlib.decompressobj(31)
		control, data = tarfile.open(fileobj=io.BytesIO(first.decompress(file))), first.unused_data
		made = io.BytesIO()
		tar = tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT)
		for m in control:
		    text = control.extractfile(m).read()
		    if m.name == ".PKGINFO":
		        text = re.sub(rb"(?m)^(pkgver = .*)-r1$", rb"\1-r2", text)
		    m.size = len(text)
		    tar.addfile(m, io.BytesIO(text))
		packer = zlib.compressobj(wbits=31)
		open(sys.argv[2], "wb").write(packer.compress(made.getvalue()[:tar.offset]) + packer.flush() + data)
	END
	in_root apk add --initdb --arch x86_64
	install() { in_root apk add --allow-untrusted /tmp/first.apk; }
	upgrade() { in_root apk add --allow-untrusted /tmp/later.apk; }
	remove() { in_root apk del weir; }
	;;
esac

ip link add up0 type veth peer name far0
ip link set up0 up
ip link set far0 up
ip address add 192.0.2.2/24 dev up0
ip route add default via 192.0.2.1

facts() {
	cat /proc/sys/net/ipv4/tcp_notsent_lowat
	tc qdisc show dev up0 | sed 's/ [0-9a-f]*: / /'
}
is() { # what, expected, seen
	[ "$2" = "$3" ] || { printf '%s: expected\n%s\nseen\n%s\n' "$@"; return 1; }
}
before=$(facts)

echo "== install"
install
is "after installing" "$before" "$(facts)"
in_root weir --version
[ ! -e "$root/etc/systemd/system/multi-user.target.wants/weir.service" ]
[ ! -e "$root/etc/weir.toml" ]

echo "== upgrade while in force"
in_root weir up --yes --qdisc "tbf rate 50mbit burst 32k latency 50ms"
in_root weir status
up=$(facts)
[ "$up" != "$before" ]
journal=$(sha256sum "$root/var/lib/weir/journal.json")
mkdir -p "$root/run/systemd/system"
rm -f "$root/usr/bin/systemctl" "$root/usr/sbin/policy-rc.d" # with which a container's image starts no service
printf '#!/bin/sh\necho "$*" >>/tmp/asked\n' >"$root/usr/bin/systemctl"
chmod 755 "$root/usr/bin/systemctl"
upgrade
rm -r "$root/run/systemd"
case $1 in
*.deb | *.rpm) grep -Fx 'try-restart weir-follow.service weir-exporter.service weir-serve.service weir-serve-domain@*.service' "$root/tmp/asked" ;;
esac
is "after the upgrade" "$up" "$(facts)"
is "the journal" "$journal" "$(sha256sum "$root/var/lib/weir/journal.json")"
in_root weir status

echo "== remove"
remove
is "after removing" "$before" "$(facts)"
[ ! -e "$root/usr/bin/weir" ]

echo "== remove when somebody else has changed something"
upgrade
in_root weir up --yes
echo 65536 >/proc/sys/net/ipv4/tcp_notsent_lowat
mkdir -p "$root/run/weir/dualpi2/gone0:1" # of weir dualpi2 add, for a device that is no more
remove 2>&1 | tee "$scratch/said"
rm -r "$root/run/weir/dualpi2"
grep -q 'weir: the queue of gone0 stays' "$scratch/said"
grep -q 'weir: what is not put back stays' "$scratch/said"
is "somebody else's value" 65536 "$(cat /proc/sys/net/ipv4/tcp_notsent_lowat)"
[ -e "$root/var/lib/weir/journal.json" ]
[ ! -e "$root/usr/bin/weir" ]

if [[ $1 == *.rpm ]]; then # in the copy, since it unpacks nfpm's absolute names where they say
	cp "$3" "$root/tmp/rpmlintrc"
	in_root rpmlint -r /tmp/rpmlintrc "$file" | tee "$scratch/said"
	grep -q ' 0 errors, 0 warnings' "$scratch/said"
fi
[[ $1 == *.deb ]] || { echo "== done"; exit; }
echo "== purge"
units=etc/systemd/system
links=$units/multi-user.target.wants
mkdir -p "$root/etc/udev/rules.d" "$root/etc/sysctl.d" "$root/$links"
ours=(var/lib/weir etc/sysctl.d/99-weir.conf "$units/weir-follow.service" "$links/weir-follow.service")
for file in "${ours[@]:1:2}"; do
	echo '# Written by weir, which keeps the goal.' >"$root/$file"
done
ln -sf /etc/systemd/system/weir-follow.service "$root/${ours[3]}"
for name in weir-serve weir-serve-domain; do # systemd.exec(5): with DynamicUser= a state directory is below private
	mkdir -p "$root/var/lib/private/$name"
	echo secret >"$root/var/lib/private/$name/token"
	ln -s "private/$name" "$root/var/lib/$name"
	ours+=("var/lib/private/$name" "var/lib/$name")
done
echo '# By hand.' >"$root/etc/udev/rules.d/90-weir.rules"
echo 'rate = "50mbit"' >"$root/etc/weir.toml"
for file in "${ours[@]}"; do
	[ -e "$root/$file" ] || [ -L "$root/$file" ] || { echo "not there before the purge: $file"; false; }
done
rm -f "$root/tmp/asked"
mkdir -p "$root/run/systemd/system"
in_root dpkg -P weir
rm -r "$root/run/systemd"
grep -qx '.*stop.* weir-follow.service' "$root/tmp/asked"
for file in "${ours[@]}"; do
	[ ! -e "$root/$file" ] && [ ! -L "$root/$file" ] || { echo "left: $file"; false; }
done
for file in etc/udev/rules.d/90-weir.rules etc/weir.toml; do # by hand
	[ -e "$root/$file" ] || { echo "gone: somebody else's $file"; false; }
	rm "$root/$file"
done
# What is in the upper layer was made here, or is a mark that something was removed.
is "left behind" "" "$(cd "$scratch/upper" && find . -path '*weir*' -not -type c)"
echo "== done"
