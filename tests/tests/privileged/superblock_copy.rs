//! A volume with replicas, mounted elsewhere by a copy of its superblock (`mount -o sb=N`): the kernel writes that copy and the descriptors
//! behind it, and leaves the primary ones as they were.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use fs2_tests::{KERNEL, Mounted, PlainMount, Rng, Scratch, e2fsck_clean, mke2fs, needs};

const MIB: usize = 1 << 20;
/// Group 1 of blocks of 4 KiB, and in the units of `sb=`.
const COPY: u64 = 32768;
const SB: &str = "rw,sb=131072";

/// The first bytes of the volume: superblock and descriptors.
fn primary(image: &Path) -> Vec<u8> {
    read(image, 0)
}

fn read(image: &Path, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 2 * 4096];
    File::open(image).unwrap().read_exact_at(&mut bytes, block * 4096).unwrap();
    bytes
}

/// As on another machine, or after a start of this one: nothing but the volume tells.
fn forget_stamps(scratch: &Scratch) {
    for entry in fs::read_dir(scratch.runtime()).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|x| x == "stamp") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[test]
fn what_was_written_through_a_mount_by_a_copy_of_the_superblock_is_read() {
    if !needs(KERNEL) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.path("image");
    mke2fs(&image, 512 << 20, &["-t", "ext2", "-m", "0", "-b", "4096"]);
    let mut rng = Rng::new(7);
    let old = rng.bytes(8 * MIB);
    // One block of many: the sample that is hashed after an attach most likely has others.
    let block = rng.bytes(4096);
    let new = [&old[..4 * MIB], &block, &old[4 * MIB + 4096..]].concat();
    let plain = |options: &str| PlainMount::new(&image, &scratch.path("plain"), options);
    fs::write(plain("rw").dir().join("file"), &old).unwrap();
    scratch.run("mkfs2", [&image]).ended(0);
    let mnt = scratch.path("fs2");
    let mounted = |options: &[&str]| {
        forget_stamps(&scratch);
        Mounted::new(&scratch, &image, &mnt, options)
    };
    let file = mnt.join("file");
    {
        let mounted = mounted(&["--policy", "torture", "--paranoid", "--require-active"]);
        mounted.read_until(6, &[("copies_written", 500)], || assert!(fs::read(&file).unwrap() == old));
        mounted.umount().ended(0);
    }
    {
        // Trusted at once, so that what comes would have been believed.
        let mounted = mounted(&["--policy", "torture", "--require-active"]);
        assert!(fs::read(&file).unwrap() == old);
        assert!(mounted.status()["reads_from_replica"].as_u64() > Some(5), "{}", mounted.status());
        mounted.umount().ended(0);
    }

    let (before, copy) = (primary(&image), read(&image, COPY));
    {
        let plain = plain(SB);
        let file = File::options().write(true).open(plain.dir().join("file")).unwrap();
        file.write_all_at(&block, 4 << 20).unwrap();
        file.sync_all().unwrap();
    }
    assert!(primary(&image) == before, "the primary superblock and descriptors tell nothing");
    assert!(read(&image, COPY) != copy);

    {
        let mounted = mounted(&["--policy", "torture"]);
        let mut is = [0; 4096];
        File::open(&file).unwrap().read_exact_at(&mut is, 4 << 20).unwrap();
        assert!(is[..] == block, "what was there before the mount by the copy is read");
        assert!(fs::read(&file).unwrap() == new);
        let status = mounted.status();
        let why = status.to_string();
        assert!(why.contains("mounted by a copy of its superblock (sb=)"), "{why}");
        mounted.umount().ended(0);
    }
    forget_stamps(&scratch);
    let checked = scratch.run("chkfs2", [Path::new("-f"), Path::new("-p"), &image]);
    assert!(checked.code <= 1, "{checked:?}");
    e2fsck_clean(&image);
    let mounted = mounted(&["--require-active"]);
    assert!(fs::read(&file).unwrap() == new);
    mounted.umount().ended(0);
}
