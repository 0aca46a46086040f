//! Inodes, block maps, directories and contents against debugfs. Needs e2fsprogs, no root.

use fs2_block::{BlockNo, BlockRange};
use fs2_ext2::{BlockMap, Inode, Layout, Problem, RESIZE_INO, TableFile, lookup, read_dir};
use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{
    self, FileDev, debugfs, joined, large_content, mke2fs, need_e2fsprogs, range, small_content,
};

/// Data runs and indirect blocks from the `BLOCKS:` lines of debugfs's `stat`:
/// `(0-11):300-311, (IND):312, (12):313`.
fn stat_blocks(said: &str) -> (Vec<(u32, BlockRange)>, Vec<BlockNo>) {
    let (mut data, mut indirect): (Vec<(u32, BlockRange)>, Vec<BlockNo>) = Default::default();
    let Some((_, list)) = said.split_once("BLOCKS:\n") else { return (data, indirect) };
    let list = list.split("\nTOTAL").next().unwrap().replace('\n', "");
    for item in list.split(',').map(str::trim).filter(|s| !s.is_empty()) {
        let (key, blocks) = item.strip_prefix('(').unwrap().split_once("):").unwrap();
        if key.ends_with("IND") {
            indirect.push(BlockNo(blocks.parse().unwrap()));
            continue;
        }
        let blocks = range(blocks);
        let first = range(key).start();
        match data.last_mut() {
            // debugfs ends a run where an indirect block lies between in the file, we do not.
            Some((at, last)) if at.wrapping_add(last.len()) == first && last.end() == blocks.start() => {
                *last = BlockRange::new(last.start(), blocks.end());
            }
            _ => data.push((first, blocks)),
        }
    }
    (data, indirect)
}

/// The value behind `key` in what `stat` prints.
fn field<'a>(said: &'a str, key: &str) -> &'a str {
    let at = said.find(key).unwrap_or_else(|| panic!("no {key:?} in {said}")) + key.len();
    said[at..].split_whitespace().next().unwrap()
}

fn compare_inode(image: &Path, layout: &Layout, dev: &mut FileDev, ino: u32) -> BlockMap {
    let said = debugfs(image, &format!("stat <{ino}>"));
    let inode = Inode::read(layout, dev, ino).unwrap();
    assert_eq!(
        inode.mode & 0o7777,
        u16::from_str_radix(field(&said, "Mode:"), 8).unwrap() & 0o7777,
        "inode {ino}"
    );
    assert_eq!(inode.links, field(&said, "Links:").parse().unwrap(), "inode {ino}");
    assert_eq!(inode.blocks, field(&said, "Blockcount:").parse().unwrap(), "inode {ino}");
    assert_eq!(inode.size, field(&said, "Size:").parse().unwrap(), "inode {ino}");
    let map = BlockMap::read(layout, dev, &inode).unwrap();
    let (data, indirect) = stat_blocks(&said);
    assert_eq!(map.data, data, "inode {ino}");
    assert_eq!(map.indirect, indirect, "inode {ino}");
    let all = data.iter().map(|(_, r)| *r).chain(indirect.into_iter().map(BlockRange::one)).collect();
    assert_eq!(map.all_blocks(), joined(all));
    map
}

/// Every file of the image: its inode and blocks, directories by `ls`, contents by `dump`.
fn compare_volume(dir: &Path, image: &Path) {
    let mut dev = FileDev::open(image);
    let layout = Layout::read(&mut dev).unwrap();
    let files = common::walk(&mut dev).unwrap();
    let out = dir.join("out");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir(&out).unwrap();
    debugfs(image, &format!("rdump / {}", out.display()));
    for (path, seen) in &files {
        compare_inode(image, &layout, &mut dev, seen.ino);
        assert_eq!(lookup(&layout, &mut dev, path).unwrap().ino, seen.ino);
        let real = out.join(path.trim_start_matches('/'));
        match seen.mode >> 12 {
            0o10 => {
                let mut content = vec![0; seen.size as usize];
                for (at, bytes) in &seen.content {
                    content[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
                }
                assert!(std::fs::read(&real).unwrap() == content, "{path}: content differs");
            }
            0o12 => {
                let target: Vec<u8> = seen.content.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
                let target = String::from_utf8(target[..seen.size as usize].to_vec()).unwrap();
                assert_eq!(std::fs::read_link(&real).unwrap().to_str(), Some(target.as_str()));
            }
            0o4 => {
                let inode = Inode::read(&layout, &mut dev, seen.ino).unwrap();
                let ours: BTreeMap<_, _> = read_dir(&layout, &mut dev, &inode)
                    .unwrap()
                    .into_iter()
                    .map(|e| (String::from_utf8(e.name).unwrap(), e.ino))
                    .collect();
                // Lines of `/ino/mode/uid/gid/name/size/`.
                let theirs: BTreeMap<_, _> = debugfs(image, &format!("ls -p <{}>", seen.ino))
                    .lines()
                    // Entries of inode 0 are holes.
                    .filter(|line| !line.is_empty() && !line.starts_with("/0/"))
                    .map(|line| {
                        let parts: Vec<&str> = line.split('/').collect();
                        (parts[5].to_string(), parts[1].parse::<u32>().unwrap())
                    })
                    .collect();
                assert_eq!(ours, theirs, "{path}");
            }
            other => panic!("{path}: type {other:o}"),
        }
    }
    assert!(files.len() > 70);
    let root = lookup(&layout, &mut dev, "/").unwrap();
    assert_eq!(root.ino, 2);
    assert_eq!(lookup(&layout, &mut dev, "//./sub/../sub").unwrap().mode >> 12, 0o4);
    let missing = lookup(&layout, &mut dev, "/sub/none/x").unwrap_err();
    assert!(matches!(&missing, Problem::NotFound { path } if path == "/sub/none"), "{missing}");
    let through = lookup(&layout, &mut dev, "/one/x").unwrap_err();
    assert!(matches!(&through, Problem::NotDirectory { path } if path == "/one"), "{through}");
    assert_eq!(TableFile::find(&layout, &mut dev).unwrap(), None);
}

#[test]
fn small_files_of_every_geometry() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = small_content(dir.path());
    for options in ["-b 1024 -I 128", "-b 2048 -I 256 -O none", "-b 4096 -I 128", "-b 1024 -r 0"] {
        let image = mke2fs(dir.path(), "v", options, "12M", Some(&content));
        compare_volume(dir.path(), &image);
    }
}

#[test]
fn triple_indirect_and_holes() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = large_content(dir.path());
    for (options, levels) in [("-b 1024 -g 2048", 3), ("-b 2048", 2), ("-b 4096", 2)] {
        let image = mke2fs(dir.path(), "v", options, "40M", Some(&content));
        let mut dev = FileDev::open(&image);
        let layout = Layout::read(&mut dev).unwrap();
        for name in ["triple", "double", "dense", "holes"] {
            let inode = lookup(&layout, &mut dev, name).unwrap();
            let map = compare_inode(&image, &layout, &mut dev, inode.ino);
            let bmap = debugfs(&image, &format!("bmap <{}> {}", inode.ino, map.data[0].0));
            assert_eq!(bmap.trim(), map.data[0].1.start().to_string());
            if name == "triple" {
                assert!(inode.block[11 + levels] != 0, "{options}: the file is to reach level {levels}");
            }
            for (at, extent) in map.file_extents(&layout) {
                assert!(at + extent.len() <= inode.size);
            }
        }
        let resize = compare_inode(&image, &layout, &mut dev, RESIZE_INO);
        assert!(!resize.indirect.is_empty(), "{options}: the blocks reserved for growing");
        if options == "-b 2048" {
            compare_volume(dir.path(), &image);
        }
    }
}

#[test]
fn hashed_directory() {
    need_e2fsprogs!();
    let dir = common::scratch();
    let content = dir.path().join("c");
    std::fs::create_dir_all(content.join("d")).unwrap();
    for i in 0..1500 {
        std::fs::write(content.join(format!("d/{i:0100}")), "").unwrap();
    }
    let image = mke2fs(dir.path(), "v", "-b 1024 -N 2000", "8M", Some(&content));
    // e2fsck -D builds the index.
    let (code, said) = common::e2fsck(&image, "-fyD");
    assert!(code <= 1, "{said}");
    let mut dev = FileDev::open(&image);
    let layout = Layout::read(&mut dev).unwrap();
    let inode = lookup(&layout, &mut dev, "d").unwrap();
    assert_ne!(inode.flags & 0x1000, 0, "the directory has an index");
    let names = read_dir(&layout, &mut dev, &inode).unwrap();
    assert_eq!(names.len(), 1502);
    assert_eq!(names.iter().filter(|e| e.file_type == 1).count(), 1500);
}
