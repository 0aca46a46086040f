//! Volumes that are mounted elsewhere than where `fs2 mount` mounted them: bound to a second directory and unmounted from the first, moved, or
//! in another mount namespace.

use super::conventions::script;

/// The directory was named where nothing was mounted any more, the volume was not known where it was, and what was told to be done did
/// nothing: `fs2 umount` ended with 0 as often as it was called, and no other volume could be mounted on that directory.
#[test]
fn a_volume_is_found_where_it_is_mounted_now() {
    script(
        r#"
        truncate -s 64M e g; mkdir A B C; here=$PWD
        for image in e g; do mkfs -t fs2 -q $image; done
        on() { fs2 mount --frontend fuse "$@" > /dev/null; }
        fails() { local want=$1 code=0; shift; "$@" > said 2>&1 || code=$?; [ $code = "$want" ] || { cat said; return 1; }; }
        bind() { mount --bind A B; umount -i A; }
        move() { mount --move A B; }
        for away in bind move; do
            on e A; $away; pid=$(daemon e)
            [[ $(fs2 status) == "$here/B  $here/e  active"* ]]
            fs2 status --json | grep -qF "\"dir\":\"$here/B\""
            fs2 status B | grep -q 'state *active'; fs2 trim B | grep -q "^$here/B: "
            fails 2 fs2 status A; grep -q 'A is not mounted by FS2' said
            # Where it is, and what works.
            fails 32 fs2 umount A; grep -q "^fs2: A is not mounted by FS2; $here/e is mounted on $here/B now; fs2 umount $here/B$" said
            mount -t tmpfs none A; fails 32 fs2 umount A; grep -q "fs2 umount $here/B$" said; umount A
            fails 32 fs2 mount e C; grep -q "mounted by FS2 on $here/B; fs2 umount $here/B first" said
            # The directory is free.
            on g A; [ "$(fs2 status | wc -l)" = 2 ]; fs2 umount A; left g; kill -0 "$pid"
            fs2 umount B 2> said; [ ! -s said ]; left e; not kill -0 "$pid" 2> /dev/null
        done
        # By its image; a part of it, where nothing else is.
        on e A; bind; fs2 umount e; left e
        # By what df shows of it, which is nothing to FS2 once it is another's.
        on e A; served=$(findmnt -no SOURCE A); fs2 status "$served" | grep -q 'state *active'; fs2 trim "$served" > /dev/null
        fs2 umount "$served"; left e; fails 32 fs2 umount "$served"; grep -q "$served is not mounted by FS2" said
        on e A; mkdir A/sub; mount --bind A/sub C; umount -i A; fs2 status C | grep -q active; fs2 umount C; left e
        # On both: each is unmounted by its name.
        on e A; mount --bind A B; mount -t fs2 e B 2> said; grep -q "mounted on $here/B already" said
        fails 32 fs2 mount --frontend fuse g B; grep -q "mounted by FS2 on $here/B; fs2 umount $here/B first" said
        fs2 umount B 2> said; grep -q "^fs2: $here/B is unmounted; $here/e is still mounted on $here/A, and its daemon" said
        findmnt A > /dev/null; not findmnt B; fs2 umount A; left e
        # A daemon that died.
        on e A; move; kill -9 "$(daemon e)"; dead() { ! kill -0 "$(daemon e)"; }; within dead
        fails 2 fs2 status; grep -q "^fs2: $here/B: its daemon is gone .*; fs2 umount $here/B, then chkfs2" said
        fails 4 fs2 umount B; left e
        "#,
    );
}

/// It was told as a success, and the directory was in use for any other volume.
#[test]
fn what_only_another_namespace_has_is_told_of_as_used_elsewhere() {
    script(
        r#"
        truncate -s 64M e g; mkdir A; here=$PWD
        for image in e g; do mkfs -t fs2 -q $image; done
        fs2 mount --frontend fuse e A > /dev/null
        unshare --mount --propagation private sleep 1000 & held=$!
        apart() { [ "$(readlink /proc/$held/ns/mnt)" != "$(readlink /proc/self/ns/mnt)" ]; }
        within apart; within grep -q "$here/A " /proc/$held/mounts
        fs2 umount A 2> said; grep -q "^fs2: $here/A is unmounted; /dev/loop.* is used elsewhere, and its daemon" said
        for i in 1 2; do
            code=0; fs2 umount A 2> said || code=$?; [ $code = 32 ]
            grep -q "^fs2: $here/A is not mounted by FS2 any more; $here/e, .* is used elsewhere: /dev/loop" said
        done
        fs2 mount --frontend fuse g A > /dev/null; fs2 umount A; left g
        fs2 status e | grep -q active
        kill $held; within left e
        "#,
    );
}
