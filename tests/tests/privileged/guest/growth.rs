//! A mounted volume is grown (`resize2fs`), which the kernel lets only root with CAP_SYS_RESOURCE do.

use fs2_tests::{Guest, Need, needs};

/// By FUSE the kernel's zeroes for the new groups come as punches, which a volume that is not active refused: the file system's own
/// superblock freezes the session on the way.
#[test]
fn a_mounted_volume_grows_in_any_state() {
    if !needs(&[Need::Root, Need::Guest]) {
        return;
    }
    let left = Guest::new(&["loop"]).run(
        r#"
        mkdir /tmp/m
        resized() { # BLOCKS: what was behind the end is no inode
            resize2fs "$(findmnt -nro SOURCE /tmp/m | tail -1)" "$1"
            sync
        }
        same() { echo 3 > /proc/sys/vm/drop_caches; (cd /tmp/m && md5sum --quiet -c /tmp/sums); }
        made() { # an FS2 volume of two groups where a disk full of something else was
            dd if=/tmp/full of=/dev/vda bs=1M conv=fsync status=none
            mke2fs -q -t ext2 -b 1024 -E nodiscard /dev/vda 16384; mkfs2 -q /dev/vda
        }
        head -c 100M /dev/zero | tr '\0' '\377' > /tmp/full
        made
        fs2 mount --frontend fuse --policy torture /dev/vda /tmp/m | grep '^active'
        mkdir /tmp/m/d; for i in $(seq 100); do head -c 9000 /dev/urandom > /tmp/m/d/$i; done; sync
        (cd /tmp/m && md5sum d/*) > /tmp/sums
        until_true 60 eval 'same && [ "$(status copies_written /tmp/m)" -gt 50 ]'
        resized 40000
        fs2 status /tmp/m | grep 'frozen: .*block count'
        same
        resized 81920
        head -c 40M /dev/urandom > /tmp/m/new; rm /tmp/m/d/1*; sync
        (cd /tmp/m && md5sum new d/*) > /tmp/sums; same
        fs2 umount /tmp/m || true
        e2fsck -fn /dev/vda
        chkfs2 -f -p /dev/vda || [ $? = 1 ]
        fs2 mount --frontend fuse --require-active --policy torture /dev/vda /tmp/m
        same; same
        fs2 umount /tmp/m
        e2fsck -fn /dev/vda
        made; tune2fs -C 7 /dev/vda
        fs2 mount --frontend fuse /dev/vda /tmp/m | grep '^inactive'
        resized 81920
        fs2 umount /tmp/m || true
        e2fsck -fn /dev/vda
        "#,
    );
    println!("{}", left.log());
}
