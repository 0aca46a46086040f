//! Replicas take nobody's space: a file fills a mounted volume to the very block at which it fills the same
//! volume without FS2, but for the table's blocks.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs2_tests::{KERNEL, Mounted, Need, PlainMount, Rng, Scratch, Tree, e2fsck_clean, mke2fs, needs};

/// A 96 MiB image with some files, the same each time.
fn image(scratch: &Scratch, name: &str) -> (PathBuf, Tree) {
    let image = scratch.path(name);
    mke2fs(
        &image,
        96 << 20,
        &["-t", "ext2", "-m", "0", "-b", "4096", "-U", "5b0f9b4a-5d3c-4d0c-9f0e-3f6f2b1c7a55"],
    );
    let plain = PlainMount::new(&image, &scratch.path("plain"), "rw");
    let dirs = Tree::far_apart(plain.dir());
    let tree = Tree::make(plain.dir(), &dirs, 60, &mut Rng::new(1));
    (image, tree)
}

/// Appends until there is no space; blocks that the file takes then, its indirect ones included.
fn fill(root: &Path) -> u64 {
    let path = root.join("filler");
    let mut file = File::create(&path).unwrap();
    let block = Rng::new(2).bytes(4096);
    let full = loop {
        if let Err(e) = file.write_all(&block) {
            break e;
        }
    };
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    file.sync_all().unwrap();
    let free = nix::sys::statvfs::statvfs(root).unwrap().blocks_free();
    assert_eq!(free, 0, "no block is kept back");
    assert!(fs::metadata(&path).unwrap().len() > 80 << 20);
    fs::metadata(&path).unwrap().blocks() / 8
}

#[test]
fn a_volume_fills_to_the_last_block() {
    if !needs(KERNEL) || !needs(&[Need::Program("debugfs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (plain_image, _) = image(&scratch, "plain.img");
    let without = {
        let plain = PlainMount::new(&plain_image, &scratch.path("plain"), "rw,discard");
        fill(plain.dir())
    };
    for apart in [false, true] {
        let (image, tree) = image(&scratch, if apart { "apart.img" } else { "fs2.img" });
        let table = scratch.path("table");
        let place = if apart { vec!["--table", table.to_str().unwrap()] } else { vec![] };
        let mut mkfs2 = vec!["--json"];
        mkfs2.extend(&place);
        mkfs2.push(image.to_str().unwrap());
        let made = scratch.run("mkfs2", mkfs2).ended(0).json();
        let taken = made["volume_bytes_taken"].as_u64().unwrap() / 4096;
        assert_eq!(taken == 0, apart, "{made}");

        let mut args = vec!["--policy", "torture", "--paranoid", "--require-active", "--space", "90%"];
        args.extend(&place);
        let mounted = Mounted::new(&scratch, &image, &scratch.path("mnt"), &args);
        // They are in the way.
        mounted.read_until(2, &[("replicas", 500)], || tree.compare(mounted.dir()));
        assert_eq!(fill(mounted.dir()) + taken, without);
        let status = mounted.status();
        assert!(status["replicas"].as_u64() < Some(50), "they made way: {status}");
        assert_eq!((&status["liveness"], &status["hash_mismatches"]), (&"active".into(), &0.into()));
        mounted.cold();
        let filler = fs::read(mounted.dir().join("filler")).unwrap();
        assert!(filler.chunks(4096).all(|b| b == &Rng::new(2).bytes(4096)[..b.len()]));
        // With space again, there are copies again.
        fs::remove_file(mounted.dir().join("filler")).unwrap();
        mounted.cold();
        tree.compare(mounted.dir());
        assert!(mounted.status()["replicas"].as_u64() > Some(100));
        mounted.umount().ended(0);
        e2fsck_clean(&image);
    }
}
