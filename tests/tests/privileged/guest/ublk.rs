//! ublk in a guest with Debian's 6.12 kernel: a device of the daemon's own, and what becomes of it when the
//! daemon dies.

use fs2_tests::{Guest, Need, needs, tool};

fn guest() -> Option<Guest> {
    needs(&[Need::Root, Need::Guest]).then(|| Guest::new(&["ublk_drv"]))
}

/// A volume on the guest's disk, mounted by `auto`; `pid` tells the daemon's process.
const MOUNTED: &str = r#"
    mke2fs -q -t ext2 -b 4096 /dev/vda 40000
    mkfs2 /dev/vda > /dev/null
    mkdir -p /tmp/m
    fs2 mount -o noatime /dev/vda /tmp/m
    pid() { status pid /tmp/m; }
    sums() { (cd /tmp/m && find . -type f -print0 | sort -z | xargs -0 md5sum); }
    failures() { dmesg | grep -c 'I/O error' || true; }
"#;

/// A daemon replaced by itself: what it knew, it knows, and programs only wait.
#[test]
fn a_daemon_is_replaced_while_programs_write() {
    let (Some(guest), Some(fsx)) = (guest(), tool("fsx")) else {
        needs(&[Need::Program("fsx")]);
        return;
    };
    let left = guest.file(&fsx).run(&format!(
        r#"{MOUNTED}
        cp -r /usr/share/doc/b* /tmp/m/; sums > /tmp/before; sync
        # Read cold, so that there is something to copy, and then twice as much.
        for n in 1 2; do echo 3 > /proc/sys/vm/drop_caches; (cd /tmp/m && md5sum --quiet -c /tmp/before); done
        head -c 20000000 /dev/urandom > /tmp/random
        # Reads, writes, discards and flushes are under way while the daemon goes.
        (until [ -e /tmp/enough ]; do dd if=/tmp/random of=/tmp/m/dd bs=64k conv=fsync,notrunc status=none; done) & dd=$!
        (until [ -e /tmp/enough ]; do fsx -N 300 -S 8 /tmp/m/fsx > /tmp/fsx.log 2>&1; done) & fsx=$!
        daemon=$(pid); before=$(status replicas /tmp/m); echo "replicas before: $before"
        sleep 0.5
        # At once after one another: the next may take longer to begin than the one before lived.
        for n in 1 2 3; do
            fs2 upgrade /tmp/m
            [ "$(pid)" = "$daemon" ]
            [ -e /proc/$fsx ]; [ -e /proc/$dd ]; echo "programs live after upgrade $n"
        done
        fs2 status /tmp/m | grep 'state *active'
        touch /tmp/enough
        wait $dd; wait $fsx || {{ cat /tmp/fsx.log; false; }}
        [ "$(failures)" = 0 ]
        not grep -e 'does not go on' -e 'starting another' /run/fs2/*.log
        echo "replicas after: $(status replicas /tmp/m)"
        echo 3 > /proc/sys/vm/drop_caches
        cmp /tmp/random /tmp/m/dd
        (cd /tmp/m && md5sum --quiet -c /tmp/before)
        # Discards are believed as before: of blocks written before the upgrade too.
        rm /tmp/m/dd; fstrim /tmp/m
        not fs2 upgrade --program /bin/false /tmp/m
        # A program that is no daemon, and one of another command line.
        ln -s /bin/true /tmp/not-a-daemon; not fs2 upgrade --program /tmp/not-a-daemon /tmp/m
        not fs2 upgrade --program "$(type -P fs2d)" /tmp/m
        [ "$(pid)" = "$daemon" ]
        (cd /tmp/m && md5sum --quiet -c /tmp/before)
        fs2 umount /tmp/m || [ $? = 4 ]
        {GONE}"#
    ));
    println!("{}", left.log());
    left.says("programs live after upgrade 3").says("active");
}

/// Nothing of it is left: no device, no process, no file but the stamp.
const GONE: &str = r#"
    not mountpoint -q /tmp/m
    until_true 10 sh -c '! ls /dev/ublkb* /dev/ublkc* 2> /dev/null'
    not pgrep -x fs2
    ls /run/fs2 > /tmp/gone; not grep -v stamp /tmp/gone
    e2fsck -fn /dev/vda > /dev/null
"#;

#[test]
fn files_are_the_same_and_the_device_is_as_the_volume() {
    let Some(guest) = guest() else { return };
    let left = guest.run(&format!(
        r#"{MOUNTED}
        fs2 status /tmp/m
        cd /sys/block/ublkb0/queue
        [ "$(cat rotational)" = "$(cat /sys/block/vda/queue/rotational)" ]
        grep -F '[none]' scheduler
        grep -x 512 max_sectors_kb; grep -x 4096 discard_granularity; grep -x 512 logical_block_size
        grep -x 1 fua; grep -x 'write back' write_cache
        # It turns.
        [ "$(ls ../mq | wc -l)" = 1 ]
        cd /tmp
        cp -r /usr/share/doc/b* /tmp/m/
        sums > before; sync; echo 3 > /proc/sys/vm/drop_caches
        (cd /tmp/m && md5sum --quiet -c /tmp/before)
        fstrim -v /tmp/m
        [ "$(status discards /tmp/m)" -gt 0 ]
        # To 97 %, and then to the end.
        blocks=$(stat -f -c %f /tmp/m); dd if=/dev/zero of=/tmp/m/fill bs=4096 count=$((blocks - 40000 * 3 / 100)) status=none
        [ "$(stat -f -c %f /tmp/m)" -lt $((40000 * 4 / 100)) ]
        not dd if=/dev/zero of=/tmp/m/more bs=1M status=none
        rm /tmp/m/fill /tmp/m/more; (cd /tmp/m && md5sum --quiet -c /tmp/before)
        fs2 umount /tmp/m
        {GONE}
        # Once more, at once active; and ended by SIGTERM, which waits for the unmount.
        fs2 mount --frontend ublk --queues 2 --require-active -o noatime /dev/vda /tmp/m
        (cd /tmp/m && md5sum --quiet -c /tmp/before)
        [ "$(ls /sys/block/ublkb*/mq | wc -l)" = 2 ]
        # Both queues at once, as each processor has one.
        for n in 0 1; do taskset -c $n dd if=/dev/urandom of=/tmp/m/q$n bs=256k count=40 oflag=direct status=none & done; wait
        md5sum /tmp/m/q0 /tmp/m/q1 > q; echo 3 > /proc/sys/vm/drop_caches; md5sum --quiet -c q
        rm /tmp/m/q0 /tmp/m/q1
        kill -TERM "$(pid)"
        until_true 10 grep -q 'is mounted: it is served until it is not' /run/fs2/*.log
        (cd /tmp/m && md5sum --quiet -c /tmp/before)
        umount /tmp/m
        until_true 20 sh -c '! pgrep -x fs2 && ! ls /run/fs2/*.mount'
        {GONE}
        # Nobody tells the daemon of this unmount, and another mount of the device stands for a while.
        fs2 mount --frontend ublk --require-active /dev/vda /tmp/m
        mkdir /tmp/o; mount -t ext2 "$(findmnt -no SOURCE /tmp/m)" /tmp/o; umount -i /tmp/m
        sleep 2; (cd /tmp/o && md5sum --quiet -c /tmp/before); umount -i /tmp/o
        until_true 20 sh -c '! pgrep -x fs2 && ! ls /run/fs2/*.mount'
        {GONE}
        chkfs2 -n /dev/vda"#
    ));
    left.says("(ublk on /dev/ublkb0").says("1 queue of 128; completion in task, recovery");
}

/// What the device below makes wait is begun by each queue's own thread on its own ring. The kernel counts a thread's I/O: by a
/// call of read or write, or by none.
#[test]
fn each_queue_has_its_ring_on_a_device_that_does_not_turn() {
    let (Some(guest), Some(fsx)) = (guest(), tool("fsx")) else {
        needs(&[Need::Program("fsx")]);
        return;
    };
    if !needs(&[Need::Program("fio")]) {
        return;
    }
    let left = guest.file(&fsx).run(&format!(
        r#"
        mke2fs -q -t ext2 -b 4096 /dev/vda 60000
        mkfs2 /dev/vda > /dev/null
        mkdir -p /tmp/m
        fs2 mount --frontend ublk --io uring --rotational no --policy torture -o noatime /dev/vda /tmp/m
        sums() {{ (cd /tmp/m && find . -type f -print0 | sort -z | xargs -0 md5sum); }}
        count() {{ # THREAD WHAT
            for t in /proc/"$(status pid /tmp/m)"/task/*; do [ "$(cat $t/comm)" != "$1" ] || sed -n "s/^$2: //p" $t/io; done
        }}
        fs2 status /tmp/m | tee said
        grep 'data path *direct, io_uring, depth 128' said; grep '2 queues of 128' said
        [ "$(ls /sys/block/ublkb0/mq | wc -l)" = 2 ]
        cp -r /usr/share/doc/b* /tmp/m/; sums > before; sync
        for n in 1 2 3; do echo 3 > /proc/sys/vm/drop_caches; (cd /tmp/m && md5sum --quiet -c /tmp/share/before); done
        until_true 30 [ "$(status copies_written /tmp/m)" -gt 100 ]
        # Of every size, many at a time, from both processors, and each has a queue.
        (until [ -e enough ]; do fsx -N 500 -S 9 /tmp/m/fsx > fsx.log 2>&1 || touch failed; done) & fsx=$!
        fio --name=x --directory=/tmp/m --size=16m --io_size=14m --numjobs=2 --cpus_allowed=0,1 --cpus_allowed_policy=split \
            --ioengine=libaio --iodepth=16 --direct=1 --rw=randwrite --bsrange=512-64k --blockalign=512 --randseed=4 --fsync=64 \
            --verify=crc32c --do_verify=1 --verify_fatal=1 > fio.log 2>&1 || {{ cat fio.log; false; }}
        touch enough; wait $fsx; [ ! -e failed ] || {{ cat fsx.log; false; }}
        echo 3 > /proc/sys/vm/drop_caches; (cd /tmp/m && md5sum --quiet -c /tmp/share/before)
        for n in 0 1; do
            r=$(count ublk-$n read_bytes) w=$(count ublk-$n write_bytes) calls=$(($(count ublk-$n syscr) + $(count ublk-$n syscw)))
            echo "queue $n: $r bytes read, $w written, $calls calls"
            [ "$r" -gt 5000000 ]; [ "$w" -gt 5000000 ]; [ "$calls" -lt 1000 ]
        done
        status reads_from_replica /tmp/m
        [ "$(status reads_from_replica /tmp/m)" -gt 100 ]; [ "$(status hash_mismatches /tmp/m)" = 0 ]
        fs2 umount /tmp/m
        {GONE}
        chkfs2 -f -n /dev/vda
        # Turning, there is one head for all, and workers feed it.
        fs2 mount --frontend ublk --require-active -o noatime /dev/vda /tmp/m
        fs2 status /tmp/m | grep 'data path *direct, threads, depth 16, rotational'
        (cd /tmp/m && md5sum --quiet -c /tmp/share/before)
        # Of their own program's pages, which the caches just lost, they may read some.
        [ "$(count ublk-0 read_bytes)" -lt 1000000 ]
        fs2 umount /tmp/m"#
    ));
    println!("{}", left.log());
    left.says("queue 1: ");
}

#[test]
fn programs_outlive_a_killed_daemon() {
    let (Some(guest), Some(fsx)) = (guest(), tool("fsx")) else {
        // fsx: cargo install fsx --root target/tools
        needs(&[Need::Program("fsx")]);
        return;
    };
    let left = guest.file(&fsx).run(&format!(
        r#"{MOUNTED}
        cp -r /usr/share/doc/b* /tmp/m/; sums > /tmp/before; sync
        head -c 30000000 /dev/urandom > /tmp/random
        # Until the last kill is over, however fast the machine is or however long a new daemon takes.
        (until [ -e /tmp/enough ]; do dd if=/tmp/random of=/tmp/m/dd bs=64k conv=fsync status=none; done) & dd=$!
        (until [ -e /tmp/enough ]; do fsx -N 500 -S 7 /tmp/m/fsx > /tmp/fsx.log 2>&1; done) & fsx=$!
        # What was flushed before a kill is there after it, whatever waits in between.
        echo kept > /tmp/m/kept; sync /tmp/m/kept
        for kill in 1 2 3; do
            sleep 0.7
            old=$(pid); kill -9 "$old"
            until_true 60 sh -c "fs2 status /tmp/m > /dev/null 2>&1"
            [ "$(pid)" != "$old" ]
            [ -e /proc/$fsx ]; [ -e /proc/$dd ]; echo "programs live after kill $kill"
        done
        touch /tmp/enough
        wait $dd; wait $fsx || {{ cat /tmp/fsx.log; false; }}
        tail -n 1 /tmp/fsx.log
        sync; echo 3 > /proc/sys/vm/drop_caches
        cmp /tmp/random /tmp/m/dd; grep -x kept /tmp/m/kept
        (cd /tmp/m && md5sum --quiet -c /tmp/before)
        [ "$(failures)" = 0 ]
        fs2 status /tmp/m | grep state
        [ "$(grep -c 'starting another' /run/fs2/*.log)" = 3 ]
        code=0; fs2 umount /tmp/m || code=$?; [ $code = 4 ]
        {GONE}
        chkfs2 -f -p /dev/vda || [ $? = 1 ]
        fs2 mount --require-active /dev/vda /tmp/m
        fs2 umount /tmp/m"#
    ));
    left.says("programs live after kill 3").says("inactive: its daemon died while it was in use");
}

#[test]
fn a_daemon_that_cannot_be_kept_alive_lets_programs_fail() {
    let Some(guest) = guest() else { return };
    // The file system's own complaints are what the case is about.
    let left = guest.tolerates("EXT4-fs error").run(
        r#"
        truncate -s 64M /tmp/disk; mke2fs -q -t ext2 /tmp/disk; mkfs2 /tmp/disk > /dev/null
        mkdir /tmp/m; fs2 mount --frontend ublk --lock-wait 1 /tmp/disk /tmp/m
        echo x > /tmp/m/x; sync
        mv /tmp/disk /tmp/elsewhere
        kill -9 "$(status pid /tmp/m)"
        code=0; dd if=/dev/zero of=/tmp/m/y bs=64k count=20 conv=fsync || code=$?; [ $code = 1 ]
        until_true 60 test -s /run/fs2/*.failed
        grep 'try 5 of 5' /run/fs2/*.log
        code=0; fs2 status /tmp/m || code=$?; [ $code = 2 ]
        dmesg | grep -F 'fs2['
        code=0; fs2 umount /tmp/m || code=$?; [ $code = 4 ]
        not mountpoint -q /tmp/m
        not ls /dev/ublkb* 2> /dev/null
        not pgrep -x fs2
        e2fsck -fp /tmp/elsewhere || [ $? = 1 ]
        "#,
    );
    left.says("Input/output error").says("try 5 of 5");
    left.says("the daemon ended 5 times in a row; /dev/ublkb0 fails every request from now on");
}

/// Daemon and supervisor were killed at once: the device stayed, and whoever looked into it waited for ever.
#[test]
fn a_device_that_nobody_serves_goes_with_the_unmount() {
    let Some(guest) = guest() else { return };
    let left = guest.run(&format!(
        r#"{MOUNTED}
        fs2 umount /tmp/m
        # So that the unmount writes nothing, for which somebody would be needed.
        fs2 mount --frontend ublk -o ro /dev/vda /tmp/m
        pkill -9 -x fs2; until_true 10 sh -c '! pgrep -x fs2'
        ls /dev/ublkb*
        fs2 umount /tmp/m || [ $? = 4 ]
        until_true 10 sh -c '! ls /dev/ublkb* 2> /dev/null'; echo "it is gone"
        e2fsck -fn /dev/vda"#
    ));
    left.says("it is gone");
}

/// Of one that is written the unmount waited for somebody to write to, could not be killed, and kept everybody else from ending the mount.
#[test]
fn a_volume_that_nobody_serves_is_served_again_for_its_unmount() {
    if !needs(&[Need::Root, Need::Guest]) {
        return;
    }
    let left = Guest::new(&["ublk_drv", "nbd"]).run(
        r#"
        mke2fs -q -t ext2 -b 4096 /dev/vda 40000; mkfs2 /dev/vda > /dev/null; mkdir /tmp/m
        nobody_left() { pkill -9 -x fs2; until_true 10 sh -c '! pgrep -x fs2'; }
        for frontend in ublk nbd; do
            fs2 mount --frontend $frontend /dev/vda /tmp/m
            echo "before, $frontend" > /tmp/m/before-$frontend
            nobody_left
            code=0; fs2 status /tmp/m 2> /tmp/said || code=$?; cat /tmp/said; [ $code = 2 ]
            grep 'nobody starts another, for which programs wait; fs2 umount /tmp/m does' /tmp/said
            not fs2 mount /dev/vda /tmp/m 2> /tmp/said; cat /tmp/said
            grep "process $(status pid /tmp/m) serves it now; fs2 umount /tmp/m first" /tmp/said
            sync; echo "after, $frontend" > /tmp/m/after-$frontend
            nobody_left
            fs2 umount /tmp/m || [ $? = 4 ]
            until_true 20 sh -c '! pgrep -x fs2'; not mountpoint -q /tmp/m
            ls /run/fs2 > /tmp/left; not grep -v stamp /tmp/left
            not ls /dev/ublkb*
            e2fsck -fn /dev/vda > /dev/null
            mount -t ext2 -o ro /dev/vda /tmp/m
            grep -x "before, $frontend" /tmp/m/before-$frontend; grep -x "after, $frontend" /tmp/m/after-$frontend
            umount /tmp/m; echo "all is there with $frontend"
        done"#,
    );
    println!("{}", left.log());
    left.says("all is there with ublk").says("all is there with nbd");
}

/// It took a daemon that lived for one that had died, was served as after a crash when that had set the mark, and heeded no `--require-active`.
#[test]
fn a_daemon_that_waits_for_one_which_ends_in_order_begins_anew() {
    let Some(guest) = guest() else { return };
    let left = guest.run(
        r#"
        mke2fs -q -t ext2 -b 4096 /dev/vda 40000; mkfs2 /dev/vda > /dev/null; mkdir /tmp/m
        serve() { fs2d serve /dev/vda --frontend ublk "${@:2}" 2> /tmp/$1 & }
        serve log; first=$!; until_true 60 grep 'serving /dev/vda' /tmp/log
        mount -t ext2 /dev/ublkb0 /tmp/m; echo x > /tmp/m/x; umount /tmp/m
        serve log2 --require-active --trace /tmp/trace; second=$!; until_true 60 grep 'taking it over' /tmp/log2
        sleep 1; [ -e /proc/$first ]
        kill -TERM $first; wait $first
        until_true 60 grep 'serving /dev/vda' /tmp/log2
        fs2 status /dev/vda | tee /tmp/said; grep 'state *active' /tmp/said
        ls -l /tmp/trace; grep 'ended in order' /tmp/log2
        kill -TERM $second; wait $second
        chkfs2 -n /dev/vda"#,
    );
    println!("{}", left.log());
    left.says("ended in order");
}

/// Its thread that wrote out waited for the next daemon, and so the supervisor heard of no end and started none: programs waited for good, and none
/// of them could be killed.
#[test]
fn a_daemon_killed_while_it_writes_out_is_followed_by_another() {
    let Some(guest) = guest() else { return };
    let left = guest.seconds(300).run(
        r#"
        mke2fs -q -t ext2 -b 4096 /dev/vda 40000; mkfs2 /dev/vda > /dev/null; mkdir /tmp/m
        # So slow that there is something to write out for some seconds.
        fs2 mount --frontend ublk --drive wd800-repaired --time-scale 30 /dev/vda /tmp/m
        head -c 40000000 /dev/urandom > /tmp/random; cp /tmp/random /tmp/m/x
        old=$(status pid /tmp/m); kill -TERM "$old"
        until_true 20 grep 'is written first' /run/fs2/*.log
        until_true 20 pgrep -f -- --write-out
        kill -9 "$old"
        until_true 20 sh -c "! [ -e /proc/$old ]"; pgrep -f -- --write-out
        until_true 60 grep 'starting another' /run/fs2/*.log
        until_true 120 grep ' serves /dev/vda' /run/fs2/*.log
        until_true 120 not pgrep -f -- --write-out
        cmp /tmp/random /tmp/m/x; not ls /run/fs2/*.failed
        fs2 umount /tmp/m || [ $? = 4 ]
        e2fsck -fn /dev/vda"#,
    );
    println!("{}", left.log());
    left.says("starting another");
}

/// The supervisor's own daemons waited for that one's lock, five times, and then the device was given up that it served.
#[test]
fn a_daemon_started_by_hand_is_supervised() {
    let Some(guest) = guest() else { return };
    let left = guest.run(
        r#"
        mke2fs -q -t ext2 -b 4096 /dev/vda 40000; mkfs2 /dev/vda > /dev/null; mkdir /tmp/m
        fs2 mount --frontend ublk /dev/vda /tmp/m
        supervisor=$(pgrep -f 'fs2 supervise')
        kill -STOP $supervisor; kill -9 "$(status pid /tmp/m)"
        fs2d serve /dev/vda --frontend ublk 2> /tmp/log & hand=$!
        until_true 60 grep 'serving /dev/vda' /tmp/log
        kill -CONT $supervisor
        until_true 60 grep "is served by process $hand now" /run/fs2/*.log
        echo x > /tmp/m/x; sync
        not grep 'starting another' /run/fs2/*.log
        kill -9 $hand; echo y > /tmp/m/y; sync
        grep 'starting another' /run/fs2/*.log; [ "$(status pid /tmp/m)" != $hand ]
        fs2 umount /tmp/m || [ $? = 4 ]
        e2fsck -fn /dev/vda"#,
    );
    println!("{}", left.log());
    left.says("starting another");
}

/// By the image's path its device was nobody's, or another's: it was never given up, and the unmount waited for it.
#[test]
fn a_mount_that_nobody_can_serve_again_is_unmounted() {
    let Some(guest) = guest() else { return };
    let left = guest.tolerates("EXT4-fs error").seconds(240).run(
        r#"
        mkdir /tmp/m
        for now in deleted another; do
            rm -f /tmp/disk; truncate -s 64M /tmp/disk; mke2fs -q -t ext2 /tmp/disk; mkfs2 /tmp/disk > /dev/null
            fs2 mount --frontend ublk --lock-wait 1 /tmp/disk /tmp/m; echo x > /tmp/m/x; sync
            pkill -9 -x fs2; until_true 10 sh -c '! pgrep -x fs2'
            echo y > /tmp/m/y
            cp /tmp/disk /tmp/other; rm /tmp/disk; [ $now = deleted ] || mv /tmp/other /tmp/disk
            code=0; timeout 100 fs2 umount /tmp/m || code=$?; [ $code = 4 ]
            not mountpoint -q /tmp/m; not pgrep -x fs2; not ls /dev/ublkb*
            echo "unmounted though its image is $now"
        done"#,
    );
    println!("{}", left.log());
    left.says("its image is deleted").says("its image is another");
}

/// What is left of a mount that was killed with all that served it, whose device another volume's has the number of by now: it was taken for a second
/// record of that mount, whose daemon was gone, and an unmount could take either.
#[test]
fn a_record_that_outlived_its_mount_claims_no_other() {
    if !needs(&[Need::Root, Need::Guest]) {
        return;
    }
    let left = Guest::new(&["ublk_drv", "nbd"]).run(
        r#"
        for name in a b; do
            truncate -s 64M /tmp/$name.img; mke2fs -q -t ext2 /tmp/$name.img; mkfs2 /tmp/$name.img > /dev/null; mkdir /tmp/$name
        done
        for frontend in ublk nbd; do
            fs2 mount --frontend $frontend /tmp/a.img /tmp/a; echo x > /tmp/a/x
            record=$(ls /run/fs2/*.mount); cp "$record" /tmp/record; device=$(findmnt -nro SOURCE /tmp/a)
            fs2 umount /tmp/a
            cp /tmp/record "$record"; touch "${record%mount}log"
            fs2 mount --frontend $frontend /tmp/b.img /tmp/b
            [ "$(findmnt -nro SOURCE /tmp/b)" = "$device" ]
            code=0; fs2 status > /tmp/list 2>&1 || code=$?; cat /tmp/list; [ $code = 0 ]
            grep "^/tmp/b  /tmp/b.img  active" /tmp/list; [ "$(wc -l < /tmp/list)" = 1 ]; not ls "$record"
            # Nor where it is the only one that is asked for.
            cp /tmp/record "$record"; touch "${record%mount}log"
            fs2 status /tmp/b | grep /tmp/b.img; touch /tmp/b/y; sync
            fs2 umount /tmp/b; fs2 umount /tmp/a
            until_true 20 sh -c '! pgrep -x fs2'; not ls /run/fs2/*.mount
            e2fsck -fn /tmp/a.img; e2fsck -fn /tmp/b.img
            echo "apart with $frontend"
        done"#,
    );
    println!("{}", left.log());
    left.says("apart with ublk").says("apart with nbd");
}

/// As by `lvextend`. The next daemon refused a volume of another size than the device, five times, and then the device failed.
#[test]
fn a_volume_that_grew_below_its_mount_is_served_again() {
    if !needs(&[Need::Root, Need::Guest]) {
        return;
    }
    let left = Guest::new(&["ublk_drv", "nbd"]).run(
        r#"
        truncate -s 40M /tmp/image; mke2fs -q -t ext2 -b 4096 /tmp/image; mkfs2 /tmp/image > /dev/null; mkdir /tmp/m
        for frontend in ublk nbd; do
            fs2 mount --frontend $frontend /tmp/image /tmp/m
            echo before > /tmp/m/$frontend; sync; truncate -s +8M /tmp/image
            [ $frontend = nbd ] || fs2 upgrade /tmp/m
            old=$(status pid /tmp/m); kill -9 "$old"
            echo after >> /tmp/m/$frontend; sync
            until_true 60 grep 'daemon .* serves /tmp/image' /run/fs2/*.log
            [ "$(status pid /tmp/m)" != "$old" ]; not ls /run/fs2/*.failed
            fs2 umount /tmp/m || [ $? = 4 ]
            e2fsck -fn /tmp/image; echo "grown below $frontend"
        done"#,
    );
    println!("{}", left.log());
    left.says("grown below ublk").says("grown below nbd");
}

/// The next daemon was ended since the mount's record could not be written, five times, and then the device failed.
#[test]
fn a_record_that_cannot_be_written_costs_nobody_the_volume() {
    let Some(guest) = guest() else { return };
    let left = guest.run(&format!(
        r#"{MOUNTED}
        # As where /run is full.
        mkdir "$(ls /run/fs2/*.mount).new"
        old=$(pid); kill -9 "$old"
        dd if=/dev/zero of=/tmp/m/x bs=64k count=20 conv=fsync status=none
        until_true 20 grep 'names a former daemon' /run/fs2/*.log
        [ "$(pid)" != "$old" ]; [ "$(failures)" = 0 ]
        not ls /run/fs2/*.failed
        rmdir /run/fs2/*.new
        code=0; fs2 umount /tmp/m || code=$?; [ $code = 4 ]
        {GONE}"#
    ));
    left.says("names a former daemon");
}

/// A daemon that could not make its socket ended, and so did its successors; one that was asked to end while the volume's lock was
/// another's left the device to nobody.
#[test]
fn who_takes_a_device_over_serves_it_in_any_case() {
    let Some(guest) = guest().filter(|_| needs(&[Need::Program("python3")])) else { return };
    let left = guest.run(&format!(
        r#"{MOUNTED}
        ctl=$(echo /run/fs2/*.ctl)
        old=$(pid); rm "$ctl"; mkdir "$ctl"; kill -9 "$old"
        dd if=/dev/zero of=/tmp/m/x bs=64k count=20 conv=fsync status=none
        until_true 60 grep 'and does not answer' /run/fs2/*.log
        rmdir "$ctl"; until_true 30 fs2 status /tmp/m
        [ "$(failures)" = 0 ]; not ls /run/fs2/*.failed
        code=0; fs2 umount /tmp/m || code=$?; [ $code = 4 ]
        {GONE}

        # Nobody supervises this one.
        truncate -s 64M /tmp/disk; mke2fs -q -t ext2 /tmp/disk
        fs2d serve /tmp/disk --frontend ublk 2> /tmp/log & first=$!
        until_true 60 grep 'serving /tmp/disk' /tmp/log
        # Whoever serves it is no hindrance that is waited for.
        not fs2 mount /tmp/disk /tmp/m 2> /tmp/said; grep "is served by process $first (ublk /dev/ublkb0" /tmp/said
        mount -t ext2 /dev/ublkb0 /tmp/m; echo kept > /tmp/m/kept; sync
        kill -9 $first; wait $first || true
        # Another has the lock, for a while.
        python3 -c 'import fcntl, struct, time; disk = open("/tmp/disk", "r+b")
fcntl.fcntl(disk, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)); print("locked", flush=True); time.sleep(600)' > /tmp/log & other=$!
        until_true 60 grep locked /tmp/log
        fs2d serve /tmp/disk --frontend ublk 2> /tmp/log & next=$!
        until_true 60 grep 'taking it over' /tmp/log
        kill -TERM $next; sleep 2; [ -e /proc/$next ]
        kill -TERM $other
        until_true 60 grep 'is mounted: it is served until it is not' /tmp/log
        echo 3 > /proc/sys/vm/drop_caches; grep -x kept /tmp/m/kept
        umount /tmp/m; wait $next || [ $? = 4 ]
        {GONE}"#
    ));
    left.says("and does not answer").says("is mounted: it is served until it is not");
}

/// A daemon is stopped where the driver bears it least: it has begun to take the device over, and no queue, or one of two, has asked for
/// work. Linux 6.12 refused the next one for good where none had, and followed a null pointer where one had.
#[test]
fn a_daemon_killed_while_it_takes_a_device_over_is_followed_by_another() {
    let Some(guest) = guest().filter(|_| needs(&[Need::Program("strace")])) else { return };
    let left = guest.run(
        r#"
        truncate -s 64M /tmp/disk; mke2fs -q -t ext2 /tmp/disk; mkdir /tmp/m
        head -c 5000000 /dev/urandom > /tmp/random
        serve() { # LOG WHAT RUNS IT...: its process, or that
            "${@:2}" fs2d serve /tmp/disk --frontend ublk --queues $queues 2> /tmp/$1 & daemon=$!
        }
        # At the second opening of the device: the first is for queues of a former such end.
        at_the_begin() { echo strace -o /tmp/trace -P /dev/ublkc0 -e trace=openat -e inject=openat:signal=$1:when=2; }
        let_go() { until_true 60 sh -c ': <> /dev/ublkc0'; }
        for queues in 1 2; do
            serve log; until_true 60 grep 'serving /tmp/disk' /tmp/log
            mount -t ext2 /dev/ublkb0 /tmp/m; [ "$(ls /sys/block/ublkb0/mq | wc -l)" = $queues ]
            cp /tmp/random /tmp/m/before; sync; echo 3 > /proc/sys/vm/drop_caches
            kill -9 $daemon; wait $daemon || true
            # They wait for whoever comes.
            cmp /tmp/random /tmp/m/before & reads=$!
            dd if=/tmp/random of=/tmp/m/after bs=64k conv=fsync status=none & writes=$!
            for n in 1 2; do
                let_go; serve log$n $(at_the_begin KILL)
                wait $daemon || [ $? = 137 ]; tail -n 1 /tmp/trace
                grep 'openat.*= ?' /tmp/trace; not grep serving /tmp/log$n
            done
            grep 'tags of /dev/ublkb0 had no server' /tmp/log2
            [ $queues = 1 ] || {
                let_go; serve log3 $(at_the_begin STOP)
                until_true 60 grep 'stopped by SIGSTOP' /tmp/trace
                served=$(cat /proc/$daemon/task/$daemon/children | tr -d ' ')
                for t in /proc/$served/task/*; do [ "$(cat $t/comm)" != ublk-1 ] || thread=${t##*/}; done
                # The second queue stays behind the first: a second for each time it wakes or is woken.
                strace -o /tmp/second -p $thread -e trace=futex,io_uring_enter -e inject=futex:delay_exit=1000000 \
                    -e inject=io_uring_enter:signal=KILL:when=1 2> /tmp/attached &
                until_true 60 grep attached /tmp/attached
                kill -CONT $served; wait $daemon || [ $? = 137 ]
                cat /tmp/second; not grep serving /tmp/log3
            }
            [ -e /proc/$reads ]; [ -e /proc/$writes ]
            let_go; serve last; until_true 60 grep 'serving /tmp/disk' /tmp/last
            grep 'tags of /dev/ublkb0 had no server' /tmp/last
            wait $reads; wait $writes; echo "programs go on with $queues"
            echo 3 > /proc/sys/vm/drop_caches
            cmp /tmp/random /tmp/m/before; cmp /tmp/random /tmp/m/after
            failures=$(dmesg | grep -c 'I/O error' || true); [ "$failures" = 0 ]
            umount /tmp/m; kill -TERM $daemon; wait $daemon || [ $? = 4 ]
            not ls /dev/ublkb0; e2fsck -fn /tmp/disk > /dev/null
        done"#,
    );
    println!("{}", left.log());
    left.says("programs go on with 1").says("programs go on with 2");
}

/// Whoever checked or changed the volume in the gap between a daemon and the next did so below a mount that stands.
#[test]
fn a_volume_whose_next_daemon_is_awaited_is_left_alone() {
    let Some(guest) = guest() else { return };
    let left = guest.run(&format!(
        r#"{MOUNTED}
        cp -r /usr/share/doc/bash /tmp/m/; sums > /tmp/before; sync
        refused() {{ # CODE SAYS COMMAND...
            code=0; "${{@:3}}" > /tmp/said 2>&1 || code=$?; cat /tmp/said; [ $code = "$1" ]; grep "$2" /tmp/said
        }}
        supervisor=$(pgrep -f 'fs2 supervise'); kill -STOP "$supervisor"
        daemon=$(pid); kill -9 "$daemon"; until_true 20 sh -c '! ls /proc/'$daemon'/task/*/fd/ 2> /dev/null | grep -q .'
        says='/dev/vda is mounted at /tmp/m by way of /dev/ublkb0, whose daemon died and is awaited.*: fs2 umount /tmp/m'
        refused 8 "$says" chkfs2 -f -p /dev/vda
        refused 8 "$says" chkfs2 -n /dev/vda
        refused 1 "$says" mkfs2 --undo /dev/vda
        refused 1 "$says" mkfs2 /dev/vda
        kill -CONT "$supervisor"
        until_true 60 fs2 status /tmp/m
        (cd /tmp/m && md5sum --quiet -c /tmp/before)
        code=0; fs2 umount /tmp/m || code=$?; [ $code = 4 ]
        {GONE}
        chkfs2 -f -p /dev/vda || [ $? = 1 ]
        # Without a record.
        truncate -s 64M /tmp/disk; mke2fs -q -t ext2 /tmp/disk
        fs2d serve /tmp/disk --frontend ublk 2> /tmp/log & daemon=$!
        until_true 60 grep 'serving /tmp/disk' /tmp/log
        mount -t ext2 /dev/ublkb0 /tmp/m
        kill -9 $daemon; wait $daemon || true
        mv /tmp/disk /tmp/moved
        says='is mounted at /tmp/m by way of /dev/ublkb0.*: umount /tmp/m'
        refused 1 "$says" mkfs2 /tmp/moved
        # Nor is it served by the way beside the device that waits.
        mkdir /tmp/beside; sums=$(md5sum < /tmp/moved)
        refused 32 "$says" fs2 mount --frontend fuse /tmp/moved /tmp/beside
        refused 2 "$says" fs2d serve /tmp/moved --frontend nbd --listen unix:/tmp/beside.nbd
        not mountpoint -q /tmp/beside; [ "$sums" = "$(md5sum < /tmp/moved)" ]
        fs2d serve /tmp/moved --frontend ublk 2> /tmp/log2 & daemon=$!
        until_true 60 grep 'serving /tmp/moved' /tmp/log2
        umount /tmp/m; kill -TERM $daemon; wait $daemon || [ $? = 4 ]
        # No longer mounted, it may be changed.
        mkfs2 /tmp/moved > /dev/null"#
    ));
    println!("{}", left.log());
    left.says("whose daemon died and is awaited");
}

/// What a deleted image's inode was given to has its name and number, and is another.
#[test]
fn an_image_is_known_by_more_than_its_inode() {
    let Some(guest) = guest() else { return };
    guest.run(
        r#"
        # In one group, of which no other inode is free: one that was just deleted the kernel takes last.
        mke2fs -q -t ext2 -I 256 -b 4096 -N 16 /dev/vda 30000; mkdir /tmp/m /tmp/v; mount -t ext4 /dev/vda /tmp/v
        truncate -s 64M /tmp/v/disk; mke2fs -q -t ext2 /tmp/v/disk; inode=$(stat -c %i /tmp/v/disk)
        n=0; while touch /tmp/v/$n 2> /dev/null; do n=$((n + 1)); done
        fs2d serve /tmp/v/disk --frontend ublk 2> /tmp/log & daemon=$!
        until_true 60 grep 'serving /tmp/v/disk' /tmp/log
        mount -t ext2 -o ro /dev/ublkb0 /tmp/m
        kill -9 $daemon; wait $daemon || true
        rm /tmp/v/disk; sync; truncate -s 64M /tmp/v/disk; mke2fs -q -t ext2 /tmp/v/disk
        [ "$(stat -c %i /tmp/v/disk)" = "$inode" ]
        fs2d serve /tmp/v/disk --frontend ublk 2> /tmp/log2 & daemon=$!
        until_true 60 grep 'serving /tmp/v/disk' /tmp/log2
        not grep 'taking it over' /tmp/log2; ls /dev/ublkb1
        umount /tmp/m; kill -TERM $daemon; wait $daemon
        "#,
    );
}

/// The volume's path names another file by then: a second device over that one would help nobody who waits for the first.
#[test]
fn an_image_that_was_replaced_is_not_served_in_its_place() {
    let Some(guest) = guest() else { return };
    let left = guest.tolerates("EXT4-fs error").run(
        r#"
        truncate -s 64M /tmp/disk; mke2fs -q -t ext2 /tmp/disk; mkfs2 /tmp/disk > /dev/null
        mkdir /tmp/m; fs2 mount --frontend ublk --lock-wait 1 /tmp/disk /tmp/m
        echo x > /tmp/m/x; sync
        cp /tmp/disk /tmp/other; mv /tmp/other /tmp/disk
        kill -9 "$(status pid /tmp/m)"
        code=0; dd if=/dev/zero of=/tmp/m/y bs=64k count=20 conv=fsync || code=$?; [ $code = 1 ]
        until_true 60 test -s /run/fs2/*.failed
        grep 'waits for no daemon of this volume' /run/fs2/*.log
        not ls /dev/ublkb1 2> /dev/null
        code=0; fs2 umount /tmp/m || code=$?; [ $code = 4 ]
        not pgrep -x fs2
        "#,
    );
    left.says("Input/output error").says("waits for no daemon of this volume");
}

#[test]
fn a_daemon_that_dies_while_its_volume_is_being_mounted_is_followed_by_another() {
    let Some(guest) = guest() else { return };
    let left = guest.run(&format!(
        r#"
        mke2fs -q -t ext2 -b 4096 /dev/vda 40000
        mkfs2 /dev/vda > /dev/null
        mkdir /tmp/m
        # On a drive a hundred times as slow mount(2) takes its time.
        fs2 mount --frontend ublk --drive wd800-repaired --time-scale 100 /dev/vda /tmp/m & mount=$!
        until [ -e /run/fs2/*.supervised ]; do sleep 0.1; done
        [ -e /proc/$mount ]
        if mountpoint -q /tmp/m; then false; fi
        kill -9 "$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' /run/fs2/*.mount)"
        wait $mount; echo mounted
        grep 'starting another' /run/fs2/*.log
        echo x > /tmp/m/x
        fs2 umount /tmp/m || [ $? = 4 ]
        # One that fails leaves nothing.
        mkdir /tmp/n; not fs2 mount --frontend ublk -o nonsense /dev/vda /tmp/n
        {GONE}"#
    ));
    left.says("mounted").says("starting another");
}

#[test]
fn a_sigterm_during_an_upgrade_is_heeded_by_the_next_program() {
    let Some(guest) = guest() else { return };
    let left = guest.run(&format!(
        r#"{MOUNTED}
        echo x > /tmp/m/x
        daemon=$(pid); fs2 upgrade /tmp/m & upgrade=$!
        until grep -q 'goes on as' /run/fs2/*.log; do :; done
        kill -TERM "$daemon"
        wait $upgrade
        until_true 20 grep 'is mounted: it is served until it is not' /run/fs2/*.log
        [ "$(pid)" = "$daemon" ]
        grep -x x /tmp/m/x
        umount /tmp/m
        until_true 20 sh -c '! pgrep -x fs2 && ! ls /run/fs2/*.mount'
        {GONE}"#
    ));
    left.says("is mounted: it is served until it is not");
}

/// The daemon of a user: devices of the kernel's unprivileged kind, which udev gives to who made them.
const AS_NOBODY: &str = r#"
    mkdir -p /tmp/n/run; truncate -s 64M /tmp/n/disk
    mke2fs -q -t ext2 -d /usr/share/doc/bash /tmp/n/disk; md5sum < /tmp/n/disk > /tmp/plain
    chown -R nobody:nogroup /tmp/n
    as() { # USER COMMAND...
        setpriv --reuid="$1" --regid="$(id -g "$1")" --clear-groups --bounding-set=-all --no-new-privs env -C /tmp/n FS2_RUNTIME_DIR=/tmp/n/run "${@:2}"
    }
    serve() { as nobody fs2d serve disk --frontend ublk "$@" >> /tmp/log 2>&1; }
    device() { until_true 60 sh -c 'ls /dev/ublkb* > /dev/null 2>&1'; ls /dev/ublkb*; }
"#;

#[test]
fn a_user_serves_a_device_of_their_own() {
    let Some(guest) = guest() else { return };
    let left = guest.run(&format!(
        r#"{AS_NOBODY}
        serve || [ $? = 2 ]
        grep 'ublk-control.*Permission denied' /tmp/log
        chmod 666 /dev/ublk-control
        # No rule gives the device to its maker: it stays, and goes when a later daemon of the volume may remove it.
        serve || [ $? = 2 ]
        grep 'ublkc0: Permission denied.*has udev a rule' /tmp/log
        ls -l /dev/ublk*; not ls /dev/ublkb*
        # What a rule has udev do, half a second late.
        (while sleep 0.5; do
            for node in /dev/ublk[bc]*; do
                owner=$(fs2 ublk-owner "$node" 2> /dev/null) || continue
                case $owner in [0-9]*) chown "${{owner/ /:}}" "$node" || true ;; esac
            done
        done) & udev=$!
        until_true 60 as nobody test -w /dev/ublkc0
        # A plain volume, inactive: byte by byte what the image is.
        serve & daemon=$!
        device=$(device); until_true 60 as nobody test -w "$device"
        ls -l /dev/ublk*
        [ "$(fs2 ublk-owner "$device")" = "$(id -u nobody) $(id -g nobody)" ]
        as nobody dd if="$device" bs=1M status=none | md5sum | cmp - /tmp/plain
        # Nobody else's, whatever the node's mode.
        chmod 666 "$device"
        code=0; as daemon dd if="$device" of=/dev/null count=1 || code=$?; [ $code = 1 ]
        kill -TERM "$(pgrep -x fs2d)"; wait $daemon
        not ls /dev/ublk[bc]*; md5sum < /tmp/n/disk | cmp - /tmp/plain
        # A volume with its table, written and read.
        as nobody mkfs2 disk > /dev/null
        serve --require-active & daemon=$!
        device=$(device); until_true 60 as nobody test -w "$device"
        head -c 5000000 /dev/urandom > /tmp/n/random; chown nobody /tmp/n/random
        as nobody debugfs -w -R 'write random random' "$device"
        echo 3 > /proc/sys/vm/drop_caches
        as nobody debugfs -R 'cat random' "$device" | cmp - /tmp/n/random
        as nobody e2fsck -fn "$device"
        as nobody fs2 status --control /tmp/n/run/*.ctl | grep -e state -e frontend
        # Killed, it takes the device's content along: the kernel grants a user no recovery. The next makes another.
        kill -KILL "$(pgrep -x fs2d)"; wait $daemon || [ $? = 137 ]
        until_true 20 sh -c '! ls /dev/ublkb*'
        serve & daemon=$!
        device=$(device); until_true 60 as nobody test -w "$device"
        [ "$(ls /dev/ublkc* | wc -l)" = 1 ]
        as nobody debugfs -R 'cat random' "$device" | cmp - /tmp/n/random
        kill -TERM "$(pgrep -x fs2d)"; wait $daemon || [ $? = 4 ]
        not ls /dev/ublk[bc]*
        kill $udev
        cat /tmp/log
        as nobody chkfs2 -f -p disk || [ $? = 1 ]
        as nobody e2fsck -fn disk"#
    ));
    println!("{}", left.log());
    left.says("unprivileged, ioctl encoding").says("Operation not permitted");
}
