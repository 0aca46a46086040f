//! mount(8), umount(8), fsck(8) and mkfs(8) with volumes of type fs2, as util-linux calls its helpers: fstab lines, options, a
//! daemon that ends with the last user of its volume, however that was unmounted. In namespaces of their own.

use fs2_tests::{KERNEL, PRIVATE, Scratch, loops_below, needs, privately};

pub(super) fn script(text: &str) {
    if !needs(KERNEL) || !needs(PRIVATE) {
        return;
    }
    let scratch = Scratch::new();
    let done = privately(&scratch, text);
    println!("{}{}", done.out, done.err);
    done.ended(0);
    assert_eq!(loops_below(scratch.dir()), Vec::<std::path::PathBuf>::new());
}

#[test]
fn an_fstab_line_is_mounted_shown_checked_and_unmounted() {
    script(
        r#"
        truncate -s 64M image; mkdir m; here=$PWD
        mkfs -t fs2 -q image
        cat > fstab <<END
$here/image $here/m fs2 frontend=fuse,policy=none,noatime,nofail,_netdev,x-systemd.requires=/srv,space=4% 0 0
$here/absent $here/m fs2 nofail 0 0
END
        mount -T fstab -a
        [ "$(findmnt -rno FSTYPE,OPTIONS m)" = "ext2 rw,noatime,discard" ]
        [[ $(findmnt -no SOURCE m) == /dev/loop* ]]
        grep -q "TARGET=$here/m ROOT=/ OPTS=helper=fs2" /run/mount/utab
        [ "$(fs2 status --json m | grep -o '"policy":"[a-z]*"')" = '"policy":"none"' ]
        echo kept > m/file
        pid=$(daemon image)
        # Again, as a service manager may: the same daemon.
        mount -T fstab -a 2> said; grep -q 'mounted on .* already' said
        [ "$pid" = "$(daemon image)" ]
        mount -T fstab -o remount,ro m; findmnt -no OPTIONS m | grep -q ^ro
        not touch m/other 2> /dev/null
        mount.fs2 image m -o remount,ro,policy=none,space=4.0%
        code=0; mount -T fstab -o remount,policy=fs2 m 2> said || code=$?; [ $code = 32 ]
        grep -q "^mount.fs2: policy=fs2: cannot be changed while .* is mounted; umount .* first$" said
        for option in policy=fs2 space=5% frontend=ublk drive=wd800-repaired; do
            code=0; mount.fs2 image m -o remount,ro,$option 2> said || code=$?; [ $code = 32 ]
            grep -q "${option%%%}.*: cannot be changed while m is mounted" said
        done
        umount m
        left image; not kill -0 "$pid" 2> /dev/null; not grep m /run/mount/utab
        # What is said beside the line counts before it.
        mount -T fstab -o policy=static m; fs2 status --json m | grep -q '"policy":"static"'
        umount m; left image
        # The clean end left the mark, and the file is there.
        mount -t fs2 -o frontend=fuse,require-active image m
        grep kept m/file; umount "$here/m"; left image
        # By the same line again, the trace of before stays.
        for trace in t t.1; do
            mount -t fs2 -o "frontend=fuse,trace=$PWD/t" image m; umount m; left image; [ -s $trace ]
        done
        # Without a line, without nofail, with an option nobody knows, and only tried.
        code=0; mount -t fs2 absent m 2> said || code=$?; [ $code = 32 ]; grep -q 'absent: No such file' said
        code=0; mount -t fs2 -o polcy=none image m 2> said || code=$?; [ $code = 1 ]
        grep -q "unknown option 'polcy=none'.*policy=.*noatime" said
        code=0; mount -t fs2 -o policy=best image m 2> said || code=$?; [ $code = 1 ]; grep -q best said
        mount -f -t fs2 image m; left image
        # By hand a name is asked for.
        cp t kept; code=0; fs2 mount --trace t image m 2> said || code=$?; [ $code = 32 ]; cmp t kept
        grep -q 'trace .*/t: File exists; remove it or name another' said
        "#,
    );
}

/// It ended with 0, whatever was asked for, and the volume was as before.
#[test]
fn a_volume_that_is_mounted_with_other_options_is_told_of_as_an_error() {
    script(
        r#"
        truncate -s 64M image; mkdir m; mkfs -t fs2 -q image
        mount -t fs2 -o frontend=fuse,policy=none,ro image m; pid=$(daemon image)
        differ() { local code=0; mount -t fs2 -o "$1" image m 2> said || code=$?; [ $code = 32 ]; grep -q "^mount.fs2: .*/image is mounted on .*/m already, with other options: $2" said; }
        same() { mount -t fs2 -o "$1" image m 2> said; grep -q '/image is mounted on .*/m already$' said; }
        differ rw 'rw, and it is mounted read-only; mount -o remount,rw .*/m changes that$'
        differ ro,policy=fs2,noatime,space=7% 'policy=fs2, space=7% is not what its daemon was started with; umount .*/m first$'
        differ ro,frontend=ublk frontend=ublk
        differ rw,policy=fs2 'policy=fs2 is not what .* first; rw, and it is mounted read-only; '
        for options in ro ro,policy=none ro,frontend=fuse,noatime ro,trace=$PWD/t,require-active ro,space=5.0%; do same $options; done
        mount -o remount,rw m; same rw,policy=none; same policy=none
        differ ro 'ro, and it is mounted for writing; mount -o remount,ro '
        mount.fs2 image m -o policy=none; mount.fs2 image m
        [ "$pid" = "$(daemon image)" ]; umount m; left image
        "#,
    );
}

/// It ended with 32, since mount(8) asks for `rw` in each line that says nothing; of any other file system it says nothing.
#[test]
fn mount_a_passes_by_what_was_remounted() {
    script(
        r#"
        truncate -s 64M image; mkdir m; mkfs -t fs2 -q image
        echo "$PWD/image $PWD/m fs2 frontend=fuse,policy=none 0 0" > fstab
        mount -T fstab -a; pid=$(daemon image)
        mount -o remount,ro m
        for all in -a -av "-t fs2 -Fa" --all; do mount -T fstab $all > said 2>&1; grep -q '/image is mounted on .*/m already$' said; done
        findmnt -no OPTIONS m | grep -q ^ro
        # Who asks for this one is told, as of a line that was changed.
        code=0; mount -T fstab m 2> said || code=$?; [ $code = 32 ]; grep -q 'rw, and it is mounted read-only' said
        sed -i s/policy=none/policy=fs2/ fstab
        code=0; mount -T fstab -a 2> said || code=$?; [ $code = 32 ]; grep -q 'other options: policy=fs2 is not what .* first$' said
        [ "$pid" = "$(daemon image)" ]; umount m; left image
        "#,
    );
}

/// `mount.fs2 -V` was wrong usage, and `mkfs.fs2 --version` no option.
#[test]
fn each_name_tells_its_version_and_its_use() {
    script(
        r#"
        for name in mount umount fsck mkfs; do
            for asked in -V --version; do $name.fs2 $asked > said; grep -qx "$name.fs2 [0-9.]*" said; done
            for asked in -h --help; do $name.fs2 $asked > said; grep -q "^usage: $name.fs2 " said; done
        done
        code=0; mount.fs2 -Vz 2> said || code=$?; [ $code = 1 ]; grep -q 'no option -V' said
        "#,
    );
}

/// "Device or resource busy (os error 16)" alone was said.
#[test]
fn of_what_is_busy_it_is_said_what_to_do() {
    script(
        r#"
        truncate -s 64M image; mkdir m; mkfs -t fs2 -q image; here=$PWD
        busy() { for by in "fs2 umount" umount; do code=0; $by m 2> said || code=$?; [ $code = 32 ]; grep -q "^fs2: $here/m is busy: $1\$" said; done; }
        # What lies below what is mounted is no matter.
        mkdir m/below; mount -t tmpfs none m/below
        mount -t fs2 -o frontend=fuse image m; echo 1 > m/file; mkdir m/sub
        exec 7< m/file; busy "a program .*; fuser -vm $here/m or lsof $here/m tells which"; exec 7<&-
        mount -t tmpfs none m/sub; busy "$here/m/sub is mounted below it; umount $here/m/sub first"
        umount m/sub; umount m; left image; umount m/below
        "#,
    );
}

/// What was mounted nosuid was read-only and took set-user-ID again.
#[test]
fn what_is_busy_and_made_read_only_keeps_its_flags() {
    script(
        r#"
        truncate -s 64M image; mkdir m; mkfs -t fs2 -q image
        mount -t fs2 -o frontend=fuse,nosuid,nodev,noexec,noatime,errors=remount-ro image m; echo 1 > m/file
        exec 7< m/file; umount -r m 2> said; exec 7<&-
        [[ "$(findmnt -rno OPTIONS m)" = ro,nosuid,nodev,noexec,noatime,* ]]; findmnt -rno OPTIONS m | grep -q errors=remount-ro
        # umount(8) takes it for unmounted and calls no helper any more.
        umount m; within left image
        "#,
    );
}

/// The log of each file that was tried stayed.
#[test]
fn a_mount_that_fails_leaves_nothing() {
    script(
        r#"
        truncate -s 16M swap ext4 empty image; mkdir m; mkswap -q swap; mke2fs -q -t ext4 ext4; mkfs -t fs2 -q image
        fails() { local code=0; fs2 mount --frontend fuse "$@" m > said 2>&1 || code=$?; [ $code = 32 ]; not grep 'tells more' said; }
        for volume in swap ext4 empty; do
            fails $volume; fails --require-active $volume; [ -z "$(ls /run/fs2)" ]
        done
        fails -o bogus image; left image
        # What cannot be written is named.
        mount --bind /run/fs2 /run/fs2; mount -o remount,bind,ro /run/fs2; fails image; umount /run/fs2
        grep -q "the log of $PWD/image: /run/fs2/file-[0-9-]*.log: Read-only file system" said
        "#,
    );
}

/// The file was sparse, and its room may have been another's when the table was written.
#[test]
fn a_table_that_finds_no_room_is_refused() {
    script(
        r#"
        truncate -s 64M image; mkdir small; mke2fs -q -t ext2 image
        mount -t tmpfs -o size=64k none small; : > small/empty
        for table in small/empty small/new; do
            code=0; mkfs2 --space 50% --table $table image 2> said || code=$?; [ $code = 1 ]
            grep -q "$table: making the table: No space left" said
        done
        [ "$(ls small)" = empty ]; [ ! -s small/empty ]
        "#,
    );
}

/// Its status went on saying that it was being recorded.
#[test]
fn a_trace_whose_disk_is_full_says_so() {
    script(
        r#"
        truncate -s 64M image; mkdir m small
        mkfs -t fs2 -q image
        mount -t tmpfs -o size=4k none small
        fs2 mount --frontend fuse -o sync --trace small/trace image m
        fs2 status m | grep -q 'being recorded in .*small/trace'
        failed() { fs2 status m | grep -q 'The trace ended early:'; }
        until failed; do for i in {1..200}; do echo $i >> m/file; done; done
        fs2 status m | not grep 'being recorded'
        fs2 status --json m | grep -q '"trace":null,"trace_failed":"[^"]*small/trace: No space left'
        fs2 umount m 2> said; grep -q 'the trace ended early: .*small/trace: No space left' said; left image
        # Where nothing can be written, nothing is left.
        for option in --trace --record; do
            code=0; fs2 mount --frontend fuse $option small/new image m 2> said || code=$?; [ $code = 32 ]
            grep -q 'small/new: No space left' said; [ ! -e small/new ]
        done
        "#,
    );
}

#[test]
fn whatever_unmounts_it_the_daemon_ends_with_the_last_user() {
    script(
        r#"
        truncate -s 64M image; mkdir m other
        mkfs -t fs2 -q image
        on() { mount -t fs2 -o frontend=fuse,require-active image m; }
        serves() { kill -0 "$pid" && fs2 status image > /dev/null; }
        on; echo 1 > m/file; umount -i m; within left image
        # Mounted again at once, while the former daemon ends.
        for i in 1 2 3 4 5; do on; echo $i > m/file; umount -i m; done
        on; grep 5 m/file
        # A second mount keeps it, whoever unmounts the first.
        mount --bind m other; pid=$(daemon image)
        umount m 2> said; grep -q 'its daemon ends with its last user' said
        sleep 0.3; serves; echo 6 > other/file; umount -i other; within left image
        # So does a process that has the device open, such as a check.
        on; pid=$(daemon image); device=$(findmnt -no SOURCE m); exec 7< "$device"
        umount -i m; sleep 0.3; serves; e2fsck -fn "$device"; exec 7<&-; within left image
        # A mount that is out of the tree and still in use.
        on; pid=$(daemon image); exec 7< m/file; umount -l m; sleep 0.3; serves
        [ "$(cat <&7)" = 6 ]; exec 7<&-; within left image
        # One in another mount namespace, which nobody sees from here.
        on; pid=$(daemon image)
        unshare --mount --propagation private sleep 1000 & held=$!
        # Until it has a namespace of its own, it is in this one, where the volume is mounted too.
        apart() { [ "$(readlink /proc/$held/ns/mnt)" != "$(readlink /proc/self/ns/mnt)" ]; }
        within apart; within grep -q "$PWD/m " /proc/$held/mounts
        umount m; sleep 0.3; serves; kill $held; within left image
        # None of them lost the mark or a byte.
        on; grep 6 m/file; umount m; left image
        chkfs2 -n -f image
        "#,
    );
}

#[test]
fn a_killed_daemon_is_cleared_away() {
    script(
        r#"
        truncate -s 64M image; mkdir m
        mkfs -t fs2 -q image
        on() { mount -t fs2 -o frontend=fuse image m; }
        on; pid=$(daemon image)
        # One that was stopped is there: nothing is to be unmounted.
        kill -STOP "$pid"
        code=0; on 2> said || code=$?; [ $code = 32 ]; grep -q "m is mounted already, and its daemon (process $pid) is stopped" said
        not grep 'is gone' said; code=0; fs2 status m 2> said || code=$?; [ $code = 2 ]; grep -q "kill -CONT $pid lets it go on" said
        kill -CONT "$pid"; on 2> said; grep -q 'mounted on .*/m already' said
        kill -9 "$pid"; gone() { ! kill -0 "$pid"; }; within gone
        for place in m image ''; do
            code=0; fs2 trim $place > out 2> said || code=$?; [ $code = 2 ]; [ ! -s out ]; grep -q 'its daemon is gone' said
        done
        code=0; on 2> said || code=$?; [ $code = 32 ]; grep -q 'its daemon is gone' said
        umount m 2> said; grep -q 'before the next mount: chkfs2 -f -p' said
        # Nothing else is told to be done: it was to start a daemon.
        grep -q "clean FS2 volume: its daemon was gone (process $pid)$" said; not grep 'start one' said; left image
        on 2> said; grep -q 'to activate it: .*chkfs2 -f -p' said
        # Without the helper; the next mount finds nobody at work.
        kill -9 "$(daemon image)"; umount -i m; on 2> /dev/null; umount m; left image
        code=0; fsck.fs2 -a image || code=$?; [ $code = 1 ]
        fsck.fs2 -a image
        mount -t fs2 -o frontend=fuse,require-active image m; umount m; left image
        "#,
    );
}

#[test]
fn fsck_and_mkfs_by_type() {
    script(
        r#"
        truncate -s 64M image; mkdir m plain
        mkfs -t fs2 -q -L mine -b 1024 image
        dumpe2fs -h image 2> /dev/null | grep -q 'volume name: *mine'
        device=$(losetup --show -f image); trap 'losetup -d "$device"' EXIT
        # At boot: fsck goes by the table, to which other checks of the same disk do not matter.
        echo "$device /srv fs2 defaults 0 2" > fstab
        FSTAB_FILE=fstab fsck -A -T -a -C > said; grep -q 'replica table clean' said
        FSTAB_FILE=fstab fsck -T -f -p "$device" > said; grep -q 'replica table' said
        # It hands letters on as one word.
        for letters in "-fv -y" -vp -avf "-f -f -p"; do
            FSTAB_FILE=fstab fsck -T $letters "$device" > said; grep -q 'replica table' said
        done
        fsck.fs2 -rf -ry -C -1 "$device" > said; grep -q 'replica table' said
        mount "$device" plain; echo foreign > plain/file; umount plain
        code=0; FSTAB_FILE=fstab fsck -A -T -n > said || code=$?; [ $code = 4 ]; grep -q 'NOT corrected' said
        code=0; FSTAB_FILE=fstab fsck -A -T -y > said || code=$?; [ $code = 1 ]; grep -q 'written and marked' said
        losetup -d "$device"; trap - EXIT
        # A table kept apart is where the line in fstab says.
        truncate -s 64M apart; mke2fs -q -t ext2 apart; mkfs2 --table "$PWD/apart.fs2" apart
        device=$(losetup --show -f apart); trap 'losetup -d "$device"' EXIT
        echo "$device /srv fs2 nofail,table=$PWD/apart.fs2 0 2" > fstab
        FSTAB_FILE=fstab fsck -A -T -a > said; grep -q 'replica table clean' said
        rm apart.fs2; code=0; FSTAB_FILE=fstab fsck -A -T -a > said 2>&1 || code=$?; [ $code = 8 ]; grep -q 'apart.fs2' said
        losetup -d "$device"; trap - EXIT
        # What is there is not overwritten.
        mkfs -t fs2 image 2> said && false; grep -q 'is an FS2 volume already' said
        mkfs -t fs2 -L other image 2> said && false; grep -q 'contains an ext2 file system' said
        mkfs -t fs2 -F -q -L other image; dumpe2fs -h image 2> /dev/null | grep -q 'volume name: *other'
        # What is only shown is not done.
        cp image kept
        for letters in -Fn "-F -vn" "-F -q -n"; do mkfs.fs2 $letters image > said; cmp image kept; done
        truncate -s 64M hole; mkfs.fs2 -vn hole > said; grep -q 'Superblock' said; [ $(stat -c %b hole) = 0 ]
        mkfs -t fs2 -F -T ext4 image 2> said && false; grep -q 'with a journal' said; cmp image kept
        mkfs.fs2 -F -q -t ext2 hole; chkfs2 -n hole > said; mkfs.fs2 -V | grep -q '^mkfs.fs2 [0-9]'
        truncate -s 8M four; mke2fs -q -t ext4 four
        mkfs -t fs2 four 2> said && false; grep -q 'contains an ext4 file system' said
        truncate -s 8M swap; mkswap swap > /dev/null
        mkfs -t fs2 swap 2> said && false; grep -q 'contains a swap' said
        mkfs -t fs2 -j swap 2> said && false; grep -q 'with a journal' said
        mkfifo pipe; code=0; timeout 60 mkfs.fs2 pipe 2> said || code=$?; [ $code = 1 ]; grep -q 'pipe is a pipe, not a' said
        # An ext2 volume keeps its files, and is checked as one until then.
        truncate -s 64M ext2; mke2fs -q -t ext2 -d "$PWD/m" ext2
        fsck.fs2 -a -C0 ext2 > said; grep -q 'a plain ext2 volume' said
        mount ext2 plain; echo kept > plain/file; umount plain
        mkfs -t fs2 ext2; mount -t fs2 -o frontend=fuse,require-active ext2 m; grep kept m/file; umount m
        "#,
    );
}

/// Its record was empty, and that was taken for none.
#[test]
fn who_wrote_after_a_session_that_ended_in_a_full_run_is_noticed() {
    script(
        r#"
        truncate -s 64M image; mkdir m; mkfs -t fs2 -q image
        mkdir /run/fs2; mount -t tmpfs -o size=128k,mode=0755 none /run/fs2
        standing() { fs2 status m | grep -o 'inactive\|active' | head -n 1; }
        mount -t fs2 -o frontend=fuse image m; [ "$(standing)" = active ]
        not head -c 1M /dev/zero > /run/fs2/filler 2> /dev/null
        umount m; left image; rm /run/fs2/filler
        # The last block, which is free.
        printf x | dd of=image bs=1k seek=65535 conv=notrunc status=none
        mount -t fs2 -o frontend=fuse image m 2> said; [ "$(standing)" = inactive ]; umount m; left image
        chkfs2 -f -p image || [ $? = 1 ]
        mount -t fs2 -o frontend=fuse image m; [ "$(standing)" = active ]; umount m
        "#,
    );
}

/// `fs2 umount` ended the daemon below the mount, which stood, and what was written was lost.
#[test]
fn without_sysfs_a_volume_is_unmounted_before_its_daemon_ends() {
    script(
        r#"
        truncate -s 64M image; mkdir m; mkfs -t fs2 -q image
        umount -l /sys
        for by in umount "fs2 umount"; do
            fs2 mount --frontend fuse --require-active image m 2> said; head -c 1M /dev/urandom > m/file; sum=$(sha256sum < m/file)
            $by m; [ -z "$(findmnt -no SOURCE m)" ]
            fs2 mount --frontend fuse --require-active image m 2> said; [ "$(sha256sum < m/file)" = "$sum" ]
            # Used by a process that has the device open.
            pid=$(daemon image); exec 7< "$(findmnt -no SOURCE m)"; $by m 2> said; grep -q 'its daemon ends with its last user' said
            kill -0 "$pid"; exec 7<&-; gone() { ! kill -0 "$pid"; }; within gone
        done
        mount -t sysfs none /sys; left image; chkfs2 -n -f image
        "#,
    );
}

/// It was served, and so written from two sides.
#[test]
fn without_sysfs_an_image_that_a_loop_device_has_is_refused() {
    script(
        r#"
        truncate -s 64M image; mkdir m plain; mkfs -t fs2 -q image
        device=$(losetup --show -f image); trap 'umount -q plain || true; losetup -d "$device"' EXIT
        refused() { for by in "fs2 mount --frontend fuse image m" "mkfs2 --undo image" "chkfs2 -n image"; do not $by 2> said; grep -q "image is $1" said; done; }
        umount -l /sys; refused "the backing of $device; detach that first"
        mount "$device" plain; refused "mounted at $PWD/plain; unmount it first"; umount plain
        # Of itself it is.
        fs2 mount --frontend fuse "$device" m 2> said; umount m
        losetup -d "$device"; trap - EXIT; chkfs2 -f -p image > said || [ $? = 1 ]
        "#,
    );
}

/// As without sysfs: the path of the loop device's file was another's.
#[test]
fn a_volume_whose_fuse_mount_was_taken_out_of_the_tree_is_unmounted_before_its_daemon_ends() {
    script(
        r#"
        truncate -s 64M image; mkdir m; mkfs -t fs2 -q image
        for by in umount "fs2 umount"; do
            fs2 mount --frontend fuse --require-active image m; head -c 1M /dev/urandom > m/file; sum=$(sha256sum < m/file)
            umount -l /run/fs2/*.fuse
            fs2 status m | grep -q active; $by m; [ -z "$(findmnt -no SOURCE m)" ]; left image
            fs2 mount --frontend fuse --require-active image m; [ "$(sha256sum < m/file)" = "$sum" ]; umount m
        done
        chkfs2 -n -f image
        "#,
    );
}

/// "Every free device was taken by others first" was said, and nobody had.
#[test]
fn of_a_loop_device_without_a_node_it_is_said_what_to_do() {
    script(
        r#"
        truncate -s 64M image; mkdir m dev; mkfs -t fs2 -q image; mount -t tmpfs none dev
        for name in null zero fuse loop-control urandom random; do touch dev/$name; mount --bind /dev/$name dev/$name; done
        mount --rbind dev /dev
        code=0; fs2 mount --frontend fuse image m 2> said || code=$?; [ $code = 32 ]
        grep -qE '/dev/(loop[0-9]+): is the next free device, and nobody makes its node, .*: mknod -m 660 /dev/\1 b 7 [0-9]+' said
        umount -l /dev; left image
        "#,
    );
}
