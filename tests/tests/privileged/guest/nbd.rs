//! `fs2 mount --frontend nbd` in a guest whose kernel has NBD: the device is made, mended and unmade over netlink,
//! without nbd-client, systemd or udev.

use fs2_tests::{Guest, Need, needs, tool};

/// A volume of ours with files on /dev/vda, their digests in /tmp/sums.
const VOLUME: &str = r#"
mke2fs -q -t ext2 /dev/vda ${SIZE:-}; mkdir /tmp/m; mount -t ext2 /dev/vda /tmp/m
for dir in 0 1 2 3 4 5 6; do mkdir /tmp/m/d$dir && (cd /tmp/m/d$dir && head -c 900000 /dev/urandom | split -b $((50001 + dir * 30000))); done
(cd /tmp/m && find . -type f -exec md5sum {} + | sort) > /tmp/sums
umount /tmp/m
mkfs2 -q /dev/vda
same() { (cd /tmp/m && find . -path ./lost+found -prune -o -path ./new -prune -o -type f -exec md5sum {} + | sort) | cmp - /tmp/sums; }
left() { # nothing is left of a mount
    [ -z "$(ls /run/fs2 | grep -v stamp)" ] || { ls -la /run/fs2; return 1; }
    [ ! -e /sys/block/nbd0/pid ] || { cat /sys/block/nbd0/pid; return 1; }
    ! pgrep -x fs2 || { ps axf; return 1; }
}
"#;

fn guest(tools: &[&'static str], modules: &[&'static str], script: &str) {
    let programs: Vec<Need> = tools.iter().map(|&t| Need::Program(t)).collect();
    if !(needs(&[Need::Root, Need::Guest]) && needs(&programs)) {
        return;
    }
    let guest = tools.iter().fold(Guest::new(modules), |g, t| g.file(&tool(t).expect("it was found before")));
    let left = guest.run(&script.replacen("VOLUME", VOLUME, 1));
    println!("{}", left.log());
}

#[test]
fn mounted_without_nbd_client() {
    guest(
        &[],
        &["nbd"],
        r#"VOLUME
        fs2 mount --frontend nbd --policy torture /dev/vda /tmp/m | tee said
        grep -q 'nbd on /dev/nbd0' said; grep -q '^active' said
        findmnt /tmp/m; grep -q 'discard' /proc/mounts
        # PF_MEMALLOC_NOIO, which PR_SET_IO_FLUSHER sets: the first daemon, too, does not wait for writes of its own.
        flags=$(cut -d' ' -f9 "/proc/$(status pid /tmp/m)/stat"); [ $((flags & 0x80000)) != 0 ]
        for setting in rotational:1 scheduler:'[none]' read_ahead_kb:128 discard_granularity:512 write_cache:'write back' fua:1; do
            grep -qF "${setting#*:}" "/sys/block/nbd0/queue/${setting%%:*}" || { echo "$setting"; cat "/sys/block/nbd0/queue/${setting%%:*}"; false; }
        done
        same; same
        fs2 status /tmp/m
        mkdir /tmp/m/new; dd if=/dev/urandom of=/tmp/m/new/big bs=64k count=400 conv=fsync status=none
        sum=$(md5sum < /tmp/m/new/big)
        rm -r /tmp/m/d0; sed -i '\#^[0-9a-f]*  ./d0/#d' /tmp/sums
        fs2 trim /tmp/m
        [ "$(status discards /tmp/m)" -gt 0 ]
        [ "$(status copies_written /tmp/m)" -gt 0 ]
        fs2 umount /tmp/m; left
        e2fsck -fn /dev/vda
        # Again, with four connections: clean, so active, and what was copied is there.
        fs2 mount --frontend nbd --connections 4 --policy torture /dev/vda /tmp/m | tee said
        grep -q '^active' said
        [ "$(grep -c 'NBD connection [0-9]* of process' /run/fs2/*.log)" = 4 ]
        same; [ "$sum" = "$(md5sum < /tmp/m/new/big)" ]
        for i in 1 2 3 4 5 6; do (cat /tmp/m/d$i/* | md5sum > /tmp/out.$i) & done; wait
        # A plain umount, while another mount stands: the daemon ends with that one.
        mkdir /tmp/o; mount --bind /tmp/m /tmp/o
        umount /tmp/m; sleep 1; [ -e /sys/block/nbd0/pid ]; cat /tmp/o/d1/* > /dev/null
        umount -i /tmp/o
        for i in $(seq 100); do left > /dev/null && break; sleep 0.2; done; left
        e2fsck -fn /dev/vda; chkfs2 -f -n /dev/vda
        "#,
    );
}

/// The kernel's own connection kept the daemon in use for ever, and the volume locked.
#[test]
fn a_mount_killed_before_it_is_written_down_is_no_hindrance() {
    guest(
        &["strace"],
        &["nbd"],
        r#"VOLUME
        strace -o /tmp/trace -e trace=rename -e inject=rename:signal=KILL fs2 mount --frontend nbd /dev/vda /tmp/m && false
        [ -e /sys/block/nbd0/pid ]; pgrep -x fs2; ! ls /run/fs2 | grep 'mount$'
        fs2 mount --frontend nbd /dev/vda /tmp/m | tee said
        grep -q 'nbd on /dev/nbd' said; same
        fs2 umount /tmp/m; left
        e2fsck -fn /dev/vda
        "#,
    );
}

#[test]
fn programs_survive_the_daemons_death() {
    guest(
        &["fsx"],
        &["nbd"],
        r#"VOLUME
        fs2 mount --frontend nbd --connections 2 --policy torture /dev/vda /tmp/m | grep '^active'
        # A request under way when the daemon dies waits for this time-out, which is half a minute otherwise.
        echo 3000 > /sys/block/nbd0/queue/io_timeout
        daemon() { fs2 status --json /tmp/m 2> /dev/null | grep -o '"pid":[0-9]*' | cut -d: -f2; }
        same
        until_true 30 [ "$(status copies_written /tmp/m)" -gt 0 ]
        mkdir /tmp/m/new; sync
        (for seed in $(seq 100); do
            fsx -N 1000 -S "$seed" /tmp/m/new/fsx > fsx.out 2>&1 || { echo "fsx: $?"; cat fsx.out; touch failed; break; }
            [ ! -e enough ] || [ "$seed" -lt 2 ] || { echo "fsx: $seed times 1000 operations"; break; }
        done; touch fsx.done) &
        (while [ ! -e enough ]; do
            dd if=/dev/urandom of=/tmp/m/new/dd bs=64k count=50 conv=fsync status=none &&
            dd if=/tmp/m/new/dd of=/tmp/m/new/copy bs=64k conv=fsync status=none && cmp /tmp/m/new/dd /tmp/m/new/copy ||
                { echo "dd: $?"; touch failed; break; }
            rm /tmp/m/new/dd /tmp/m/new/copy; touch dd.round
        done; touch dd.done) &
        # The page cache would hide the device.
        (while [ ! -e enough ]; do sync; echo 1 > /proc/sys/vm/drop_caches; sleep 0.3; done) &
        killed=0
        while [ ! -e failed ] && [ $killed -lt 3 ]; do
            rm -f dd.round; until_true 100 test -e dd.round
            pid=$(daemon)
            kill -KILL "$pid"
            killed=$((killed + 1))
            another() { local now; now=$(daemon) && [ -n "$now" ] && [ "$now" != "$pid" ]; }
            until_true 100 another
        done
        touch enough
        wait
        echo "killed $killed times"
        [ ! -e failed ]; same
        grep 'fs2 supervise' /run/fs2/*.log
        # Frozen until the next clean attach: nothing is copied, no replica read, whatever is freed.
        rm /tmp/m/new/fsx && fs2 trim /tmp/m > /dev/null || true
        fs2 status /tmp/m | head -n 8
        fs2 status /tmp/m | grep -q 'inactive'
        [ "$(status copies_written /tmp/m)" = 0 ]; [ "$(status reads_from_replica /tmp/m)" = 0 ]
        [ "$(status reads /tmp/m)" -gt 0 ]
        fs2 umount /tmp/m || [ $? = 4 ]; left
        chkfs2 -f -p /dev/vda || [ $? = 1 ]
        fs2 mount --frontend nbd --policy torture /dev/vda /tmp/m | grep '^active'
        same; fs2 umount /tmp/m; left
        "#,
    );
}

/// Once the kernel had given up its last connection and the first try to make others was in vain, nobody tried again: the daemon
/// went on, and the device failed every request five minutes later.
#[test]
fn programs_outlast_a_daemon_that_stands_still() {
    guest(
        &[],
        &["nbd"],
        r#"SIZE=64M VOLUME
        # No io_uring here: I/O is by threads.
        echo 2 > /proc/sys/kernel/io_uring_disabled
        fs2 mount --frontend nbd --policy torture --rotational no /dev/vda /tmp/m | grep '^active'
        fs2 status /tmp/m | grep 'data path *direct, threads, depth 128'
        # Half a minute otherwise.
        echo 2000 > /sys/block/nbd0/queue/io_timeout
        same; same
        [ "$(status copies_written /tmp/m)" -gt 0 ]
        pid=$(status pid /tmp/m)
        mkdir /tmp/m/new; head -c 4000000 /dev/urandom > /tmp/random; sync
        trap 'kill -CONT "$pid" 2> /dev/null || true' EXIT; kill -STOP "$pid"
        (dd if=/tmp/random of=/tmp/m/new/dd bs=64k conv=fsync status=none && touch written) &
        (echo 1 > /proc/sys/vm/drop_caches; same && touch read) &
        # Its connection is given up, and the first try to make another has waited for ten seconds in vain.
        until_true 60 grep -q 'fs2 supervise: .*handshake failed' /run/fs2/*.log
        dmesg | grep -F 'Dead connection, failed to find a fallback'
        sleep 5
        [ ! -e written ]; [ ! -e read ]
        kill -CONT "$pid"
        until_true 60 test -e written -a -e read
        wait
        grep 'fs2 supervise' /run/fs2/*.log
        [ "$(status pid /tmp/m)" = "$pid" ]; fs2 status /tmp/m | grep 'state *active'
        # Nobody was told of an error.
        dmesg > said; not grep 'I/O error' said
        sync; echo 1 > /proc/sys/vm/drop_caches
        cmp /tmp/random /tmp/m/new/dd; same
        fs2 umount /tmp/m; left
        e2fsck -fn /dev/vda; chkfs2 -f -n /dev/vda
        "#,
    );
}

/// Five minutes without any connection, and requests fail; until the daemon goes on.
#[test]
fn a_daemon_that_stands_still_for_long_lets_programs_fail() {
    if !needs(&[Need::Root, Need::Guest]) {
        return;
    }
    let script = r#"SIZE=64M VOLUME
        fs2 mount --frontend nbd --policy none /dev/vda /tmp/m | grep '^active'
        echo 2000 > /sys/block/nbd0/queue/io_timeout
        pid=$(status pid /tmp/m)
        trap 'kill -CONT "$pid" 2> /dev/null || true' EXIT; kill -STOP "$pid"
        echo 1 > /proc/sys/vm/drop_caches
        begun=$SECONDS
        not cat /tmp/m/d1/* > /dev/null 2> said
        took=$((SECONDS - begun)); echo "failed after $took s"
        head -n 3 said; grep -q 'Input/output error' said
        [ $took -ge 300 ]; [ $took -lt 330 ]
        grep 'fs2 supervise' /run/fs2/*.log
        kill -CONT "$pid"
        until_true 60 grep 'has its connections again' /run/fs2/*.log
        (cd /tmp/m && grep ' ./d1/' /tmp/sums | md5sum --quiet -c -)
        fs2 umount /tmp/m || [ $? = 4 ]; left
        chkfs2 -f -p /dev/vda || [ $? = 1 ]
        fs2 mount --frontend nbd /dev/vda /tmp/m | grep '^active'
        same; fs2 umount /tmp/m; left
        "#;
    let guest = Guest::new(&["nbd"])
        .waits()
        .seconds(900)
        .tolerates("EXT4-fs error")
        .tolerates("blocked for more than");
    println!("{}", guest.run(&script.replacen("VOLUME", VOLUME, 1)).log());
}

#[test]
fn a_full_volume_gives_its_space_back() {
    guest(
        &[],
        &["nbd"],
        r#"SIZE=64M VOLUME
        fs2 mount --frontend nbd --policy torture /dev/vda /tmp/m | grep '^active'
        mkdir /tmp/m/new
        used() { df --output=pcent /tmp/m | tail -n 1 | tr -dc 0-9; }
        n=0
        while [ "$(used)" -lt 97 ]; do
            n=$((n + 1))
            dd if=/dev/urandom of=/tmp/m/new/$n bs=1M count=4 conv=fsync status=none
            if [ $((n % 4)) = 0 ]; then
                # Cold, so that the volume is asked and has something to copy.
                echo 1 > /proc/sys/vm/drop_caches
                same
            fi
            [ $n -lt 20 ]
        done
        (cd /tmp/m/new && md5sum *) > /tmp/new.sums
        echo "97 % after $n files: $(status copies_written /tmp/m) copied, $(status reclaimed /tmp/m) reclaimed, $(status invalidated /tmp/m) invalidated"
        [ $n -gt 8 ]
        [ "$(status copies_written /tmp/m)" -gt 1000 ]; [ $(($(status invalidated /tmp/m) + $(status reclaimed /tmp/m))) -gt 1000 ]
        echo 1 > /proc/sys/vm/drop_caches
        same; (cd /tmp/m/new && md5sum --quiet -c /tmp/new.sums)
        fs2 status /tmp/m | sed -n '/^space/,/^$/p'
        # What is freed is known to be free again, by discards.
        before=$(status discards /tmp/m)
        (cd /tmp/m/new && rm $(seq 1 2 "$n") && md5sum *) > /tmp/new.sums
        sync; fstrim /tmp/m
        [ "$(status discards /tmp/m)" -gt "$before" ]
        copied=$(status copies_written /tmp/m)
        more() { echo 1 > /proc/sys/vm/drop_caches; same; [ "$(status copies_written /tmp/m)" -gt $((copied + 100)) ]; }
        until_true 100 more
        (cd /tmp/m/new && md5sum --quiet -c /tmp/new.sums)
        fs2 umount /tmp/m; left
        e2fsck -fn /dev/vda; chkfs2 -f -n /dev/vda
        "#,
    );
}

#[test]
fn auto_takes_what_the_kernel_has_and_says_why() {
    guest(
        &[],
        &["loop"],
        r#"SIZE=64M VOLUME
        # Neither loaded nor to be had: the machine's modprobe finds no modules of this kernel.
        not fs2 mount --frontend nbd /dev/vda /tmp/m > said 2>&1
        grep 'no NBD driver' said; not pgrep -x fs2
        fs2 mount /dev/vda /tmp/m | tee said
        grep -q '(fuse on /dev/loop0' said; grep -q '^by fuse: .*no NBD driver' said
        same; fs2 umount /tmp/m; left
        # To be had: it is loaded on demand.
        printf '#!/bin/sh\n[ $2 != ublk_drv ] || [ -e /tmp/ublk ] || exit 1\nbusybox insmod /tmp/modules/$2.ko\n' > modprobe
        chmod +x modprobe; PATH=/tmp/share:$PATH
        fs2 mount /dev/vda /tmp/m | tee said
        grep -q '(nbd on /dev/nbd0' said; grep -q '^by nbd: no ublk' said
        same; fs2 umount /tmp/m; left
        touch /tmp/ublk
        fs2 mount /dev/vda /tmp/m | tee said
        grep -q '(ublk on /dev/ublkb0' said
        same; fs2 umount /tmp/m; left
        "#,
    );
}

#[test]
fn a_daemon_that_cannot_live_fails_the_device() {
    if !needs(&[Need::Root, Need::Guest]) {
        return;
    }
    let script = r#"SIZE=64M VOLUME
        fs2 mount --frontend nbd /dev/vda /tmp/m | grep '^active'
        # No later daemon can start: a directory stands where its socket must.
        nbd=$(echo /run/fs2/*.nbd); rm "$nbd"; mkdir "$nbd"
        pid=$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' /run/fs2/*.mount)
        echo 1 > /proc/sys/vm/drop_caches
        kill -KILL "$pid"
        # Waits for five tries, then fails.
        not cat /tmp/m/d1/* > /dev/null 2> said
        head -n 3 said; grep -q 'Input/output error' said
        grep 'fs2' /run/fs2/*.log
        [ "$(grep -c 'fs2 supervise: try' /run/fs2/*.log)" = 5 ]
        until_true 60 grep -q 'fails every request from now on: unmount it, then chkfs2 -f -p /dev/vda' /run/fs2/*.log
        fs2 umount /tmp/m || [ $? = 4 ]
        # The killed daemon left its socket.
        rmdir "$nbd"; fs2 status; left
        chkfs2 -f -p /dev/vda || [ $? = 1 ]
        fs2 mount --frontend nbd /dev/vda /tmp/m | grep '^active'
        # One that cannot be spoken to serves all the same, and is heard again.
        ctl=$(echo /run/fs2/*.ctl); rm "$ctl"; mkdir "$ctl"
        pid=$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' /run/fs2/*.mount)
        echo 1 > /proc/sys/vm/drop_caches
        kill -KILL "$pid"; same
        until_true 30 grep -q 'and does not answer' /run/fs2/*.log
        rmdir "$ctl"; until_true 30 fs2 status /tmp/m
        fs2 umount /tmp/m || [ $? = 4 ]
        left
        "#;
    let guest = Guest::new(&["nbd"]).tolerates("EXT4-fs error");
    println!("{}", guest.run(&script.replacen("VOLUME", VOLUME, 1)).log());
}

/// The one that was served has no name any more: it is not that one's name that the next daemon goes by.
#[test]
fn an_image_that_was_replaced_is_not_served_in_its_place_by_nbd() {
    if !needs(&[Need::Root, Need::Guest]) {
        return;
    }
    let left = Guest::new(&["nbd"]).tolerates("EXT4-fs error").run(
        r#"
        truncate -s 64M /tmp/disk /tmp/other
        mke2fs -q -t ext2 /tmp/disk; mkfs2 /tmp/disk > /dev/null
        mke2fs -q -t ext2 /tmp/other; mkfs2 /tmp/other > /dev/null
        md5sum < /tmp/other > /tmp/sum
        mkdir /tmp/m; fs2 mount --frontend nbd --lock-wait 1 /tmp/disk /tmp/m
        echo x > /tmp/m/x; sync
        mv /tmp/other /tmp/disk
        pid=$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' /run/fs2/*.mount)
        kill -KILL "$pid"
        code=0; dd if=/dev/zero of=/tmp/m/y bs=64k count=20 conv=fsync || code=$?; [ $code = 1 ]
        grep 'another file or disk has its name' /run/fs2/*.log
        fs2 umount /tmp/m || [ $? = 4 ]
        # Nothing of the old mount has reached the other volume.
        md5sum < /tmp/disk | cmp - /tmp/sum
        "#,
    );
    left.says("Input/output error").says("another file or disk has its name");
}
