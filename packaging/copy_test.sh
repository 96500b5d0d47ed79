# Makes a copy of this machine's root in the empty directory $2. It is run in mount, network and process namespaces of its own, before another script.
set -euo pipefail
trap 'echo "failed in line $LINENO: $BASH_COMMAND"' ERR

mount --make-rprivate /
scratch=$2
mount -t tmpfs none "$scratch"
root=$scratch/root
mkdir "$scratch/upper" "$scratch/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" none "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs none "$root/run" # no systemd
mount -t tmpfs none "$root/tmp"
mount -t devtmpfs none "$root/dev" 2>/dev/null || mount --rbind /dev "$root/dev"
in_root() { DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }
