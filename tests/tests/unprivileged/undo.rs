//! `mkfs2 --undo` straight after `mkfs2` gives the volume of before, but for time stamps.

use std::path::Path;

use fs2_tests::{Need, Rng, Scratch, debugfs, dump, e2fsck_clean, mke2fs, needs};

fn undo_at_once(block: &str, inode: &str) {
    if !needs(&[Need::Program("mke2fs"), Need::Program("dumpe2fs"), Need::Program("debugfs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, files) = (scratch.path("image"), scratch.make_dir("files"));
    let mut rng = Rng::new(8);
    for i in 0..60 {
        let len = rng.below(300_000) as usize;
        std::fs::write(files.join(format!("{i}")), rng.bytes(len)).unwrap();
    }
    let files = files.to_str().unwrap();
    mke2fs(&image, 160 << 20, &["-t", "ext2", "-b", block, "-I", inode, "-d", files]);
    let before = dump(&image);
    let blocks = before.block_digests(&image, false);
    assert!(blocks.len() > 1000, "{} blocks", blocks.len());
    let made = scratch.run("mkfs2", [Path::new("--json"), &image]).ended(0).json();
    e2fsck_clean(&image);
    // The table takes what mkfs2 says it takes, and no more.
    let taken = made["volume_bytes_taken"].as_u64().unwrap();
    assert_eq!(before.free_blocks() - dump(&image).free_blocks(), taken / before.block_bytes);
    assert!(taken > 0 && debugfs(&image, false, "stat <5>").out.contains("Mode:  0600"));
    scratch.run("mkfs2", [Path::new("--undo"), &image]).ended(0).says("is a plain ext2 volume again");
    e2fsck_clean(&image);
    let after = dump(&image);
    assert_eq!(before.text, after.text);
    let blocks_after = after.block_digests(&image, false);
    // The superblock, the inode table's first block and nothing else bear a time stamp.
    let differing: Vec<_> =
        blocks.iter().zip(&blocks_after).filter(|(a, b)| a != b).map(|(a, b)| (a.0, b.0)).collect();
    assert_eq!(blocks.len(), blocks_after.len());
    let first = u64::from(before.block_bytes == 1024);
    assert!(differing.iter().all(|&(a, b)| a == b && a == first), "blocks {differing:?} differ");
    // Of the table itself nothing is left.
    assert_eq!(after.block_digests(&image, true), []);
}

#[test]
fn blocks_of_1_kib_inodes_of_128_bytes() {
    undo_at_once("1024", "128");
}

#[test]
fn blocks_of_1_kib_inodes_of_256_bytes() {
    undo_at_once("1024", "256");
}

#[test]
fn blocks_of_2_kib_inodes_of_128_bytes() {
    undo_at_once("2048", "128");
}

#[test]
fn blocks_of_2_kib_inodes_of_256_bytes() {
    undo_at_once("2048", "256");
}

#[test]
fn blocks_of_4_kib_inodes_of_128_bytes() {
    undo_at_once("4096", "128");
}

#[test]
fn blocks_of_4_kib_inodes_of_256_bytes() {
    undo_at_once("4096", "256");
}
