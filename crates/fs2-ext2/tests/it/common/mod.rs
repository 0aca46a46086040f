//! What the tests against e2fsprogs share: running its programs, reading what dumpe2fs prints,
//! images, and a plain walk over every file.

pub(crate) mod crash;

use fs2_block::{BlockRange, ReadAt, WriteAt};
use fs2_ext2::{Inode, Layout, Problem, ROOT_INO, read_dir, read_file};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Ends the test where e2fsprogs is not there.
macro_rules! need_e2fsprogs {
    () => {
        for program in ["mke2fs", "dumpe2fs", "debugfs", "e2fsck"] {
            if !$crate::common::has(program) {
                println!("skipped: {program} not found");
                return;
            }
        }
    };
}
pub(crate) use need_e2fsprogs;

/// A directory for images, in memory where there is such a place: mke2fs and e2fsck flush a lot.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Whether `program` can be run.
pub(crate) fn has(program: &str) -> bool {
    command(program).arg("-V").output().is_ok()
}

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    // These live in sbin, which is not on everyone's path.
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .env("MKE2FS_CONFIG", "/dev/null");
    command
}

/// Runs a program.
pub(crate) fn run(program: &str, args: &[&str]) -> Output {
    command(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// Runs a program that must succeed; its standard output.
pub(crate) fn output(program: &str, args: &[&str]) -> String {
    let out = run(program, args);
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// What one command of debugfs prints.
pub(crate) fn debugfs(image: &Path, request: &str) -> String {
    output("debugfs", &["-R", request, text(image)])
}

/// e2fsck with `flags`: exit code and what it said.
pub(crate) fn e2fsck(image: &Path, flags: &str) -> (i32, String) {
    let out = run("e2fsck", &[flags, text(image)]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().unwrap_or(-1), said)
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes an image: `options` as mke2fs takes them, blank-separated, and a size it understands.
pub(crate) fn mke2fs(dir: &Path, name: &str, options: &str, size: &str, content: Option<&Path>) -> PathBuf {
    let image = dir.join(name);
    let _ = std::fs::remove_file(&image);
    let mut args = vec!["-q", "-F", "-t", "ext2", "-U", "0123abcd-4567-89ab-cdef-0123456789ab"];
    if !options.contains("-O") && !options.contains("-r 0") {
        args.extend(["-O", "none,ext_attr,resize_inode,dir_index,filetype,sparse_super,large_file"]);
    }
    args.extend(options.split_whitespace());
    if let Some(content) = content {
        args.extend(["-d", text(content)]);
    }
    args.extend([text(&image), size]);
    output("mke2fs", &args);
    image
}

/// An image as a device.
pub(crate) struct FileDev(pub(crate) File);

impl FileDev {
    pub(crate) fn open(path: &Path) -> FileDev {
        FileDev(File::options().read(true).write(true).open(path).unwrap())
    }
}

impl ReadAt for FileDev {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        assert!(buf.len() <= 1 << 20, "a read of {} bytes", buf.len());
        self.0.read_exact_at(buf, offset)
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl WriteAt for FileDev {
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        // Plain writes, but none where zeroes are already: keeps images sparse.
        let mut buf = vec![0; 1 << 20];
        let mut at = offset;
        while at < offset + len {
            let n = (offset + len - at).min(1 << 20) as usize;
            self.0.read_exact_at(&mut buf[..n], at)?;
            if buf[..n].iter().any(|&b| b != 0) {
                buf[..n].fill(0);
                self.0.write_all_at(&buf[..n], at)?;
            }
            at += n as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One group as dumpe2fs prints it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DumpGroup {
    pub(crate) blocks: BlockRange,
    /// Superblock, descriptors and what is reserved for growing.
    pub(crate) copies: Vec<BlockRange>,
    pub(crate) block_bitmap: u32,
    pub(crate) inode_bitmap: u32,
    pub(crate) inode_table: BlockRange,
    pub(crate) free_blocks: u32,
    pub(crate) free_inodes: u32,
    pub(crate) directories: u32,
    pub(crate) free: Vec<BlockRange>,
}

/// What dumpe2fs prints.
#[derive(Debug, Default)]
pub(crate) struct Dump {
    pub(crate) header: BTreeMap<String, String>,
    pub(crate) groups: Vec<DumpGroup>,
}

impl Dump {
    pub(crate) fn of(image: &Path) -> Dump {
        Dump::parse(&output("dumpe2fs", &[text(image)]))
    }

    pub(crate) fn parse(said: &str) -> Dump {
        let mut dump = Dump::default();
        for line in said.lines() {
            if let Some(rest) = line.strip_prefix("Group ") {
                let blocks = rest.split_once("(Blocks ").unwrap().1.split(')').next().unwrap();
                dump.groups.push(DumpGroup { blocks: range(blocks), ..DumpGroup::default() });
            } else if let Some(group) = dump.groups.last_mut() {
                group.line(line.trim());
            } else if let Some((key, value)) = line.split_once(':') {
                dump.header.insert(key.trim().into(), value.trim().into());
            }
        }
        dump
    }

    pub(crate) fn number(&self, key: &str) -> u64 {
        let value = self.header.get(key).unwrap_or_else(|| panic!("dumpe2fs printed no {key}"));
        value.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl DumpGroup {
    fn line(&mut self, line: &str) {
        let number = |s: &str| -> u32 { s.trim().split(' ').next().unwrap().parse().unwrap() };
        if let Some(list) = line.strip_prefix("Free blocks:") {
            self.free = list.split(',').map(str::trim).filter(|s| !s.is_empty()).map(range).collect();
            return;
        }
        if line.starts_with("Free inodes") {
            return;
        }
        for part in line.split(", ") {
            match part.split_once(" at ") {
                Some((
                    "Primary superblock" | "Backup superblock" | "Group descriptors" | "Reserved GDT blocks",
                    at,
                )) => {
                    self.copies.push(range(at));
                }
                Some(("Group descriptor", at)) => self.copies.push(range(at)),
                Some(("Block bitmap", at)) => self.block_bitmap = number(at),
                Some(("Inode bitmap", at)) => self.inode_bitmap = number(at),
                Some(("Inode table", at)) => self.inode_table = range(at.split(' ').next().unwrap()),
                _ => match part.split_once(' ') {
                    Some((n, "free blocks")) => self.free_blocks = number(n),
                    Some((n, "free inodes")) => self.free_inodes = number(n),
                    Some((n, "directories")) => self.directories = number(n),
                    _ => {}
                },
            }
        }
    }
}

/// `7` or `7-9`, both ends included.
pub(crate) fn range(text: &str) -> BlockRange {
    let (a, b) = text.trim().split_once('-').unwrap_or((text.trim(), text.trim()));
    BlockRange::new(a.parse().unwrap(), b.parse::<u32>().unwrap() + 1)
}

/// Sorted ranges, joined where they touch.
pub(crate) fn joined(mut ranges: Vec<BlockRange>) -> Vec<BlockRange> {
    ranges.sort();
    let mut out: Vec<BlockRange> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.end() >= range.start() => {
                *last = BlockRange::new(last.start(), last.end().max(range.end()))
            }
            _ => out.push(range),
        }
    }
    out
}

/// A file as the walk sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ino: u32,
    pub(crate) mode: u16,
    pub(crate) size: u64,
    pub(crate) links: u16,
    /// Content without holes' zeroes: byte of the file, bytes.
    pub(crate) content: Vec<(u64, Vec<u8>)>,
}

/// Every file and directory of a volume, by path.
pub(crate) fn walk(dev: &mut dyn ReadAt) -> Result<BTreeMap<String, Seen>, Problem> {
    let layout = Layout::read(dev)?;
    let mut seen = BTreeMap::new();
    let mut todo = vec![(String::new(), ROOT_INO)];
    while let Some((path, ino)) = todo.pop() {
        let inode = Inode::read(&layout, dev, ino)?;
        let mut content = Vec::new();
        read_file(&layout, dev, &inode, |at, bytes| {
            content.push((at, bytes.to_vec()));
            Ok(())
        })?;
        if inode.is_symlink() && content.is_empty() {
            content.push((0, inode.block.iter().flat_map(|p| p.to_le_bytes()).collect()));
        }
        if inode.is_directory() {
            for entry in read_dir(&layout, dev, &inode)? {
                if entry.name != b"." && entry.name != b".." {
                    todo.push((format!("{path}/{}", String::from_utf8_lossy(&entry.name)), entry.ino));
                }
            }
        }
        seen.insert(path, Seen { ino, mode: inode.mode, size: inode.size, links: inode.links, content });
    }
    Ok(seen)
}

/// Compares two walks; names what differs, not its bytes.
pub(crate) fn assert_same(now: &BTreeMap<String, Seen>, before: &BTreeMap<String, Seen>, what: &str) {
    let names = |a: &BTreeMap<String, Seen>, b: &BTreeMap<String, Seen>| -> Vec<String> {
        a.iter().filter(|(path, seen)| b.get(*path) != Some(seen)).map(|(path, _)| path.clone()).collect()
    };
    let (new, old) = (names(now, before), names(before, now));
    assert!(new.is_empty() && old.is_empty(), "{what}: files changed: {old:?} became {new:?}");
}

/// An image that e2fsck has nothing left to do on: mke2fs leaves directories without their index.
pub(crate) fn settled(dir: &Path, name: &str, options: &str, size: &str, content: Option<&Path>) -> PathBuf {
    let image = mke2fs(dir, name, options, size, content);
    let (code, said) = e2fsck(&image, "-fp");
    assert!(code <= 1, "{said}");
    image
}

/// A small generator for seeded tests (SplitMix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A directory to populate images from: small files, an empty one, holes, links of both kinds, a
/// directory of several blocks. Fits into half a MiB.
pub(crate) fn small_content(dir: &Path) -> PathBuf {
    let root = dir.join("small");
    std::fs::create_dir_all(root.join("sub/deeper")).unwrap();
    std::fs::create_dir_all(root.join("many")).unwrap();
    let mut rng = Rng(1);
    let mut noise = |n: usize| -> Vec<u8> { (0..n).map(|_| rng.next() as u8).collect() };
    std::fs::write(root.join("empty"), b"").unwrap();
    std::fs::write(root.join("one"), b"x").unwrap();
    std::fs::write(root.join("sub/direct"), noise(12 * 1024)).unwrap();
    std::fs::write(root.join("sub/deeper/single"), noise(70_001)).unwrap();
    for i in 0..60 {
        std::fs::write(root.join(format!("many/a-rather-long-name-for-a-file-{i:04}")), noise(i * 7))
            .unwrap();
    }
    std::os::unix::fs::symlink("one", root.join("short-link")).unwrap();
    std::os::unix::fs::symlink("x/".repeat(100), root.join("long-link")).unwrap();
    let holes = File::create(root.join("holes")).unwrap();
    for at in [5_000u64, 300_000, 1_000_000] {
        holes.write_all_at(&noise(3_000), at).unwrap();
    }
    root
}

/// As [`small_content`], with sparse files that reach double and triple indirect blocks of 1 KiB.
pub(crate) fn large_content(dir: &Path) -> PathBuf {
    let small = small_content(dir);
    let root = dir.join("large");
    std::fs::rename(small, &root).unwrap();
    let mut rng = Rng(2);
    let file = File::create(root.join("triple")).unwrap();
    // Around every boundary of 1 KiB blocks: 12, 12 + 256, 12 + 256 + 65536, and far beyond.
    let edges =
        [0u64, 11, 12, 267, 268, 523, 524, 65_803, 65_804, 65_805, 66_059, 66_060, 131_339, 131_340, 400_000];
    for block in edges {
        file.write_all_at(&rng.next().to_le_bytes(), block * 1024).unwrap();
    }
    let file = File::create(root.join("double")).unwrap();
    for i in 0..40u64 {
        file.write_all_at(&rng.next().to_le_bytes(), i * i * 30_000).unwrap();
    }
    let dense: Vec<u8> = (0..700_000).map(|_| rng.next() as u8).collect();
    std::fs::write(root.join("dense"), dense).unwrap();
    root
}
