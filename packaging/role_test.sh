# The role of the collection $3 installs the package $1 by the package manager that the host has, on a copy of this machine (copy_test.sh), twice.
# A host of another distribution is called so: Ansible goes by that.
called() { # id version file
	rm "$root/etc/os-release" "$root/etc/debian_version"
	printf 'ID=%s\nNAME=%s\nVERSION_ID=%s\n' "$1" "$1" "$2" >"$root/etc/os-release"
	echo "$1 release $2" >"$root/etc/$3"
}
case $1 in
*.deb) has() { in_root dpkg -s weir; } ;;
*.rpm)
	has() { in_root rpm -V weir; }
	called Rocky 9.5 redhat-release
	;;
*.pkg.tar.zst)
	has() { in_root pacman -Qkk weir; }
	called arch "" arch-release
	printf '[options]\nLocalFileSigLevel = Never\n' >"$root/etc/pacman.conf"
	mkdir -p "$root/var/lib/pacman"
	ln -sf bash "$root/usr/bin/sh" # as Arch has it: nfpm's scripts are bash's
	;;
*.apk)
	has() { in_root apk info -e weir && in_root apk audit --system | grep -c weir | grep -x 0; }
	called alpine 3.22 alpine-release
	cp "$WEIR_APK" "$root/sbin/apk" # the real one: no distribution but Alpine has it
	in_root apk add --initdb --arch x86_64
	;;
esac
cp "$1" "$3" "$root/tmp"
package=/tmp/${1##*/}
cat >"$root/tmp/play.yml" <<END
- hosts: localhost
  connection: local
  gather_facts: false
  roles: [weir.net.install]
END
export HOME=/tmp LC_ALL=C.UTF-8 ANSIBLE_COLLECTIONS_PATHS=/tmp
in_root ansible-galaxy collection install --offline -p /tmp "/tmp/${3##*/}"
for changed in 2 0; do # the copy and the package; nothing
	said=$(in_root ansible-playbook -i localhost, /tmp/play.yml -e ansible_python_interpreter=/usr/bin/python3 \
		-e install_package="$package" -e install_sha256="$(sha256sum "$1" | cut -d ' ' -f 1)" 2>&1) || { echo "$said"; false; }
	echo "$said"
	grep -q "changed=$changed .*failed=0" <<<"$said"
done
has
in_root weir --version
