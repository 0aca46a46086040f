#!/bin/bash
# Runs xfstests (FSTYP=ext2) on volumes served by FS2, with a policy that copies and drops as much as it can.
#
#   tests/xfstests.sh PATH [ARGUMENTS OF check]     PATH: a built tree; by default -g quick
#
# Needs root, /dev/fuse, loop devices and what xfstests needs (xfsprogs for xfs_io, bc, acl, attr, ...).
# TEST_DEV and SCRATCH_DEV are loop devices, each on the file that fs2d's FUSE frontend shows of an image:
#   image - fs2d serve --frontend fuse - FUSE file - loop device - mount -t ext2 -o discard
#
# mkfs on a served device is a raw writer inside a session: fs2d sees a superblock it did not expect, freezes, and
# from then on copies nothing and sets no mark; the rest of the run would show nothing. So the programs that make file
# systems are found first in the search path as wrappers: for a served device that is not mounted they take the loop
# device apart, end its daemon in order (so the session before is judged too), make the file system on the image, make
# it ours (mkfs2), serve it again and put the same loop device on it. Whatever else they are asked goes to the real
# program. e2fsck -n on the device, as check runs it after each test, only reads; what else writes the device raw in a
# session (tests that damage a file system on purpose) freezes it until the next mkfs, as it should.
#
# Free-space figures differ by the replica table's blocks; tests that compare them exactly fail for that reason.
# Exit code: check's; 1 where a file system is not clean in the end or a daemon saw a wrong copy, 3 where fewer than
# FS2_MUCH (1000) copies were written, invalidated or reclaimed in all: such a run shows nothing.
# Settings: FS2_BIN (directory of fs2d, fs2 and mkfs2; target/debug), FS2_SIZE (bytes of a volume; 4G), FS2_MUCH,
# FS2_POLICY (torture), TMPDIR (on a disk).
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

fail() { echo "xfstests.sh: $*" >&2; exit 2; }

# What follows works on a state directory: image.N, device.N, pid.N for N = test, scratch; totals.

serve() { # N: serves image.N and puts its loop device on it
    local n=$1 log=$state/log.$1
    mkdir -p "$state/fuse.$n"
    : > "$log"
    (cd / && exec setsid "$FS2_BIN/fs2d" serve --frontend fuse --fuse-dir "$state/fuse.$n" \
        --control "$state/ctl.$n" --policy "$FS2_POLICY" --host-reserve 0% "$state/image.$n") < /dev/null > /dev/null 2>> "$log" &
    echo $! > "$state/pid.$n"
    local tries=0
    until grep -q '; control socket ' "$log"; do
        alive "$n" || { cat "$log" >&2; fail "the daemon of $n ended"; }
        ((++tries < 1200)) || fail "the daemon of $n serves nothing"
        sleep 0.05
    done
    attach "$n"
}

attach() { # N: the same device as before; at first one far up, which nobody takes meanwhile who asks for any
    local n=$1 file=$state/fuse.$1/volume device
    if device=$(cat "$state/device.$n" 2> /dev/null); then
        losetup --direct-io=on "$device" "$file"
        return
    fi
    device=/dev/loop$((64 + RANDOM % 900))
    losetup --direct-io=on "$device" "$file" 2> /dev/null || device=$(losetup --find --show --direct-io=on "$file")
    echo "$device" > "$state/device.$n"
}

ours() { # DEVICE: whether it is on a file of ours
    losetup "$1" 2> /dev/null | grep -q "$state/"
}

alive() { # N: whether its daemon runs; one that ended may still be a zombie
    local pid; pid=$(cat "$state/pid.$1" 2> /dev/null) || return 1
    [ -e "/proc/$pid/stat" ] && ! grep -q ') Z ' "/proc/$pid/stat"
}

unserve() { # N: takes the loop device off and ends the daemon; its counters go to totals
    local n=$1 device tries=0
    device=$(cat "$state/device.$n" 2> /dev/null || true)
    if [ -n "$device" ] && ours "$device"; then
        losetup -d "$device"
        while ours "$device"; do
            ((++tries < 600)) || fail "$device is in use"
            sleep 0.05
        done
    fi
    alive "$n" || return 0
    "$FS2_BIN/fs2" status --json --control "$state/ctl.$n" >> "$state/totals" || true
    kill -TERM "$(cat "$state/pid.$n")"
    tries=0
    while alive "$n"; do
        ((++tries < 2400)) || fail "the daemon of $n does not end"
        sleep 0.05
    done
    cat "$state/log.$n" >> "$state/logs"
}

make() { # N PROGRAM ARGS...: PROGRAM makes a file system on image.N; ARGS name the loop device
    local n=$1 program=$2 device args=() arg status=0
    shift 2
    device=$(cat "$state/device.$n" 2> /dev/null || echo none)
    for arg in "$@"; do
        if [ "$arg" = "$device" ]; then args+=("$state/image.$n"); else args+=("$arg"); fi
    done
    [ ! -e "$state/pid.$n" ] || unserve "$n"
    "$program" "${args[@]}" || status=$?
    # What mkfs2 refuses (features FS2 does not know) is served as a plain device.
    "$FS2_BIN/mkfs2" -q "$state/image.$n" >> "$state/logs" 2>&1 || echo "mkfs2 refused: $*" >> "$state/logs"
    serve "$n"
    return $status
}

sum() { # COUNTER: over all sessions
    grep -o "\"$1\":[0-9]*" "$state/totals" | awk -F: '{ s += $2 } END { print s + 0 }'
}

if [ "${1:-}" = --mkfs ]; then # as a wrapper: --mkfs NAME ARGS...
    state=$FS2_XFSTESTS_STATE name=$2
    shift 2
    # The real one: the first in the path that is not ours.
    program=$(type -aP "$name" | grep -v "^$state/bin/" | head -1)
    for n in test scratch; do
        device=$(cat "$state/device.$n")
        for arg in "$@"; do
            if [ "$arg" = "$device" ] && ! findmnt -S "$device" > /dev/null; then
                # The lock keeps a daemon from being ended twice at a time.
                exec 9> "$state/lock"
                flock 9
                make "$n" "$program" "$@" 9>&-
                exit
            fi
        done
    done
    exec "$program" "$@"
fi

tree=${1:-}
[ -x "${tree:-.}/check" ] || fail "usage: tests/xfstests.sh PATH [ARGUMENTS OF check]; no check in '$tree'"
shift
[ $# -gt 0 ] || set -- -g quick
[ "$(id -u)" = 0 ] || fail "needs root"
export FS2_BIN=${FS2_BIN:-$here/target/debug} FS2_POLICY=${FS2_POLICY:-torture}
for program in fs2d fs2 mkfs2; do
    [ -x "$FS2_BIN/$program" ] || fail "no $FS2_BIN/$program: cargo build -p fs2d -p fs2-tools --bins, or set FS2_BIN"
done
state=$(mktemp -d "${TMPDIR:-/tmp}/fs2-xfstests-XXXXXX")
export FS2_XFSTESTS_STATE=$state FS2_RUNTIME_DIR=$state/run

# shellcheck disable=SC2317 # it is called by the trap
cleanup() {
    local n device
    for n in test scratch; do
        umount "$state/mnt.$n" 2> /dev/null || true
        if device=$(cat "$state/device.$n" 2> /dev/null) && ours "$device"; then
            losetup -d "$device" || true
        fi
        # A daemon's end also ends what waits for it.
        if alive "$n"; then kill -KILL "$(cat "$state/pid.$n")" || true; fi
        umount -l "$state/fuse.$n" 2> /dev/null || true
    done
    rm -rf "$state"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$state/bin" "$state/mnt.test" "$state/mnt.scratch"
: > "$state/totals"; : > "$state/logs"
for name in mkfs mke2fs mkfs.ext2 mkfs.ext3 mkfs.ext4; do
    printf '#!/bin/bash\nexec %q --mkfs %s "$@"\n' "$here/tests/xfstests.sh" "$name" > "$state/bin/$name"
    chmod +x "$state/bin/$name"
done
for n in test scratch; do
    truncate -s "${FS2_SIZE:-4G}" "$state/image.$n"
    make "$n" mke2fs -q -F -t ext2 "$state/image.$n"
done
cat > "$state/local.config" <<EOF
export FSTYP=ext2
export TEST_DEV=$(cat "$state/device.test")
export TEST_DIR=$state/mnt.test
export SCRATCH_DEV=$(cat "$state/device.scratch")
export SCRATCH_MNT=$state/mnt.scratch
export EXT_MOUNT_OPTIONS="-o discard"
EOF
result=0
(cd "$tree" && PATH="$state/bin:$PATH" HOST_OPTIONS="$state/local.config" ./check "$@") || result=$?

for n in test scratch; do
    umount "$state/mnt.$n" 2> /dev/null || true
    unserve "$n"
    if ! e2fsck -fn "$state/image.$n" > "$state/e2fsck" 2>&1; then
        echo "the file system of $n is not clean:"; cat "$state/e2fsck"
        [ $result != 0 ] || result=1
    fi
done
few=
for counter in copies_written invalidated reclaimed; do
    echo "$counter: $(sum $counter)"
    [ "$(sum $counter)" -ge "${FS2_MUCH:-1000}" ] || few=1
done
echo "reads_from_replica: $(sum reads_from_replica); sessions: $(grep -c . "$state/totals")"
for counter in hash_mismatches replica_errors table_errors; do
    if [ "$(sum $counter)" != 0 ]; then
        echo "$counter: $(sum $counter)"
        [ $result != 0 ] || result=1
    fi
done
grep -i 'frozen\|panicked\|mkfs2 refused' "$state/logs" | sort | uniq -c | sort -rn | head -20 || true
if [ $result = 0 ] && [ -n "$few" ]; then
    echo "so little happened to copies that the run shows nothing"
    result=3
fi
exit $result
