//! The demo's image: two trees of files in far regions of a sparse ext2 volume.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{DemoError, step};

/// Bytes of the image; sparse, about 40 MB are stored.
pub(super) const IMAGE_BYTES: u64 = 8 << 30;

/// Files of each tree.
const TREE_FILES: usize = 600;

/// Inodes of a block group: few, so that the files spread over ten groups of 128 MiB each.
const GROUP_INODES: usize = 64;

/// Groups of an 8 GiB volume of 4 KiB blocks.
const GROUPS: usize = 64;

/// Empty files between the trees: they use up the inodes of thirty groups, 4 GiB.
const BETWEEN: usize = 30 * GROUP_INODES;

/// A file of the image.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: String,
    seed: u64,
    len: usize,
}

impl File {
    fn content(&self) -> Vec<u8> {
        let mut state = self.seed | 1;
        let mut bytes = Vec::with_capacity(self.len + 8);
        while bytes.len() < self.len {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes.truncate(self.len);
        bytes
    }

    pub(super) fn is_right(&self, bytes: &[u8]) -> bool {
        bytes == self.content()
    }
}

/// The images.
pub(super) struct Made {
    pub(super) plain: PathBuf,
    pub(super) fs2: PathBuf,
    /// First tree, then the second.
    pub(super) files: Vec<File>,
    order: Vec<usize>,
}

impl Made {
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.len as u64).sum()
    }

    /// The two files that are read together at step `n`.
    pub(super) fn pair(&self, n: usize) -> [&File; 2] {
        let i = self.order[n % self.order.len()];
        [&self.files[i], &self.files[TREE_FILES + i]]
    }
}

fn tool(name: &str, args: &[&str], input: Option<&str>) -> Result<(), DemoError> {
    // Root's tools are often not on a user's path.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut child = Command::new(name)
        .args(args)
        .env("PATH", path)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(step(format_args!("{name} (package e2fsprogs)")))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).map_err(step(name))?;
    }
    let out = child.wait_with_output().map_err(step(name))?;
    let said = String::from_utf8_lossy(&out.stderr);
    // debugfs ends well whatever it failed at, as where there is no room.
    let complaint = said.lines().find(|line| name == "debugfs" && !line.starts_with("debugfs "));
    if !out.status.success() || complaint.is_some() {
        let (image, said) = (args.last().unwrap_or(&""), complaint.unwrap_or(said.trim()));
        return Err(DemoError::Step(format!(
            "{name} {image} failed: {said}; TMPDIR says where the image is made"
        )));
    }
    Ok(())
}

/// Makes both images in `dir`.
pub(super) fn make(dir: &Path) -> Result<Made, DemoError> {
    let tree = dir.join("tree");
    std::fs::create_dir(&tree).map_err(step(tree.display()))?;
    let mut files = Vec::new();
    let mut commands = String::new();
    let mut draw = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        draw >> 33
    };
    for name in ["work", "repository"] {
        commands += &format!("mkdir {name}\ncd {name}\n");
        for i in 0..TREE_FILES {
            // 4 to 52 KiB, the size of sources and small pages.
            let len = 4096 + (next() % 48) as usize * 1024 + (next() % 1024) as usize;
            let file = File { path: format!("{name}/{i:03}"), seed: next() << 20 | i as u64, len };
            let local = tree.join(format!("{name}-{i:03}"));
            std::fs::write(&local, file.content()).map_err(step(local.display()))?;
            commands += &format!("write {} {i:03}\n", local.display());
            files.push(file);
        }
        commands += "cd /\n";
        if name == "work" {
            commands += "mkdir between\ncd between\n";
            for i in 0..BETWEEN {
                commands += &format!("write /dev/null {i}\n");
            }
            commands += "cd /\n";
        }
    }
    let (plain, fs2) = (dir.join("ext2.img"), dir.join("fs2.img"));
    let image =
        plain.to_str().ok_or_else(|| DemoError::Step("the temporary directory's name is not text".into()))?;
    std::fs::File::create(&plain).and_then(|f| f.set_len(IMAGE_BYTES)).map_err(step(plain.display()))?;
    let inodes = (GROUPS * GROUP_INODES).to_string();
    let args = ["-q", "-F", "-t", "ext2", "-b", "4096", "-m", "0", "-N", &inodes, image];
    tool("mke2fs", &args, None)?;
    tool("debugfs", &["-w", "-f", "-", image], Some(&commands))?;
    std::fs::remove_dir_all(&tree).map_err(step("the files"))?;
    let copy = fs2.to_str().unwrap_or_default();
    tool("cp", &["--sparse=always", image, copy], None)?;
    convert(&fs2)?;
    let mut order: Vec<usize> = (0..TREE_FILES).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, next() as usize % (i + 1));
    }
    Ok(Made { plain, fs2, files, order })
}

fn convert(image: &Path) -> Result<(), DemoError> {
    let args = ["mkfs2".into(), "--quiet".into(), image.as_os_str().to_owned()];
    let (mut out, mut err) = (Vec::new(), Vec::new());
    match crate::mkfs2::run(args, &mut out, &mut err) {
        0 => Ok(()),
        _ => Err(DemoError::Step(String::from_utf8_lossy(&err).trim().to_owned())),
    }
}

/// The image is consistent.
pub(super) fn check(image: &Path) -> Result<(), DemoError> {
    tool("e2fsck", &["-fn", image.to_str().unwrap_or_default()], None)
}
