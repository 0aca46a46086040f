#!/bin/bash
# Plain ext2 and FS2 side by side through the kernel: two regions of a 2 GiB image read file by file
# in turns, cold, round after round, on a modelled drive in real time. Prints mean access time and wall
# clock of each round and their ratios. Needs root, FUSE and loop devices.
#   benches/rounds.sh [ROUNDS=5] [FILES=400] [DRIVE=wd800-repaired] [SCALE=1]
# FS2=path/to/fs2 and MKFS2=path/to/mkfs2 name the programs (default: target/release).
set -euo pipefail
rounds=${1:-5} files=${2:-400} drive=${3:-wd800-repaired} scale=${4:-1}
here=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}
fs2=${FS2:-$target/release/fs2} mkfs2=${MKFS2:-$target/release/mkfs2}
[ -x "$fs2" ] && [ -x "$mkfs2" ] || { echo "build first: cargo build --release -p fs2-tools" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "skipped: needs root" >&2; exit 77; }
dir=$(mktemp -d) && mkdir "$dir/plain" "$dir/fs2"
export FS2_RUNTIME_DIR=$dir/run
cleanup() {
    for s in plain fs2; do "$fs2" umount "$dir/$s" 2>/dev/null || true; done
    mountpoint -q "$dir/make" && umount "$dir/make"
    rm -rf "$dir"
}
trap cleanup EXIT

# The image: of sixteen top-level directories the kernel spreads, the first and the last hold 1,500 files each.
truncate -s 2G "$dir/plain.img"
mke2fs -q -t ext2 -m 0 "$dir/plain.img"
mkdir "$dir/make" && mount -o loop,noatime "$dir/plain.img" "$dir/make"
mkdir "$dir"/make/{a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p}
mapfile -t by_group < <(stat -c '%i %n' "$dir"/make/? | sort -n | awk '{print $2}')
low=$(basename "${by_group[0]}") high=$(basename "${by_group[-1]}")
python3 - "$dir/make/$low" "$dir/make/$high" <<'P'
import random, sys
random.seed(7)
for d in sys.argv[1:]:
    for i in range(1500):
        with open(f"{d}/{i:04}", "wb") as f:
            f.write(random.randbytes(random.randrange(2048, 49152)))
P
(cd "$dir/make" && find . -type f | sort | xargs md5sum > "$dir/sums")
umount "$dir/make"
cp --sparse=always "$dir/plain.img" "$dir/fs2.img"
"$mkfs2" "$dir/fs2.img" > /dev/null
e2fsck -fn "$dir/fs2.img" > /dev/null 2>&1 || { echo "e2fsck is not clean after mkfs2" >&2; exit 1; }
options="--drive $drive --time-scale $scale --frontend fuse -o noatime"
"$fs2" mount $options --policy none --passive "$dir/plain.img" "$dir/plain" > /dev/null
"$fs2" mount $options --require-active "$dir/fs2.img" "$dir/fs2" > /dev/null
block() { findmnt -n -o SOURCE "$dir/$1"; }
cold() { # $1: unmounted and mounted anew, its buffers dropped
    local dev discard=""; dev=$(block "$1"); [ "$1" = fs2 ] && discard=,discard
    exec 9< "$dev"; umount "$dir/$1"; blockdev --flushbufs "$dev"
    mount -t ext2 -o "noatime$discard" "$dev" "$dir/$1"; exec 9<&-
}
field() { "$fs2" status --json "$dir/$1" | python3 -c 'import json,sys; s=json.load(sys.stdin); print(s["reads"], s["access_ms"]["mean"] or 0, s["reads_from_replica"], s["copies_written"])'; }
# The same files in the same order each round: in turns from both regions.
python3 - "$low" "$high" "$files" > "$dir/order" <<'P'
import random, sys
low, high, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(11)
pick = random.sample(range(1500), n)
for i in pick:
    print(f"{low}/{i:04}"); print(f"{high}/{i:04}")
P
one() { # $1: reads all, prints "seconds mean_ms reads replica_reads"
    cold "$1"; read -r r0 m0 p0 _ < <(field "$1")
    local t0 t1; t0=$(date +%s.%N)
    (cd "$dir/$1" && xargs cat < "$dir/order" > /dev/null)
    t1=$(date +%s.%N); read -r r1 m1 p1 _ < <(field "$1")
    python3 -c "print(f'{($t1-$t0)/$scale:.2f} {($m1*$r1-$m0*$r0)/max(1,$r1-$r0):.3f} {$r1-$r0} {$p1-$p0}')"
}
echo "drive $drive, time scale $scale, $((2*files)) files a round"
echo "round   plain s   fs2 s  ratio    plain ms  fs2 ms  ratio   from replicas"
worst=0
for r in $(seq 1 "$rounds"); do
    read -r ps pm _ _ < <(one plain); read -r fs fm fr fp < <(one fs2)
    python3 -c "print(f'{$r:5}  {$ps:8.2f}  {$fs:6.2f}  {$fs/$ps:.3f}   {$pm:8.3f}  {$fm:6.3f}  {$fm/$pm:.3f}   {$fp} of {$fr}')"
done
for s in plain fs2; do (cd "$dir/$s" && md5sum -c --quiet "$dir/sums") && echo "$s: every checksum is right"; done
"$fs2" status "$dir/fs2"
"$fs2" umount "$dir/plain"; "$fs2" umount "$dir/fs2"
e2fsck -fn "$dir/fs2.img" > /dev/null 2>&1 && echo "e2fsck -fn: clean"
mkdir -p "$dir/make"; mount -o loop,ro "$dir/fs2.img" "$dir/make"; (cd "$dir/make" && md5sum -c --quiet "$dir/sums") && echo "plain loop mount: every checksum is right"; umount "$dir/make"
"$fs2" mount $options --require-active "$dir/fs2.img" "$dir/fs2"
read -r s m n p < <(one fs2); echo "mounted anew: $s s, $m ms, $p of $n reads from replicas in the first round"
