//! Directories and paths, read without mounting.

use crate::block_map::BlockMap;
use crate::features::INCOMPAT_FILETYPE;
use crate::inode::{Inode, ROOT_INO};
use crate::layout::{Layout, READ_BYTES_MAX};
use crate::problem::Problem;
use crate::raw::{le16, le32};
use fs2_block::ReadAt;

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: any bytes but `/` and 0.
    pub name: Vec<u8>,
    /// The inode it names.
    pub ino: u32,
    /// 1 regular, 2 directory, 3 character device, 4 block device, 5 fifo, 6 socket, 7 symbolic
    /// link; 0 where the volume does not keep types in directories.
    pub file_type: u8,
}

/// Every name in directory `inode`, `.` and `..` included, in the order they lie. Hashed
/// directories read as plain ones: their index hides in empty entries.
///
/// # Errors
/// [`Problem::NotDirectory`]; [`Problem::Corrupt`] for an entry that leaves its block or names no
/// inode; as [`BlockMap::read`].
pub fn read_dir(layout: &Layout, dev: &mut dyn ReadAt, inode: &Inode) -> Result<Vec<DirEntry>, Problem> {
    if !inode.is_directory() {
        return Err(Problem::NotDirectory { path: format!("inode {}", inode.ino) });
    }
    let mut entries = Vec::new();
    read_file(layout, dev, inode, |at, bytes| {
        let block_bytes = layout.block_size().bytes() as usize;
        for (i, block) in bytes.chunks(block_bytes).enumerate() {
            let wrong = |byte: usize, what: String| {
                let at = at + (i * block_bytes + byte) as u64;
                Problem::corrupt(format!("directory inode {}, byte {at}", inode.ino), what)
            };
            parse_block(layout, block, &wrong, &mut entries)?;
        }
        Ok(())
    })?;
    Ok(entries)
}

fn parse_block(
    layout: &Layout,
    block: &[u8],
    wrong: &dyn Fn(usize, String) -> Problem,
    entries: &mut Vec<DirEntry>,
) -> Result<(), Problem> {
    let typed = layout.superblock().features().incompat & INCOMPAT_FILETYPE != 0;
    let mut at = 0;
    while at < block.len() {
        if block.len() - at < 8 {
            return Err(wrong(at, format!("{} bytes left for an entry", block.len() - at)));
        }
        let ino = le32(block, at);
        let len = usize::from(le16(block, at + 4));
        let name_len = if typed { usize::from(block[at + 6]) } else { usize::from(le16(block, at + 6)) };
        if len < 8 + name_len || !len.is_multiple_of(4) || at + len > block.len() {
            return Err(wrong(at, format!("an entry of {len} bytes for a name of {name_len}")));
        }
        if ino > layout.superblock().inodes_count() {
            return Err(wrong(at, format!("an entry for inode {ino}")));
        }
        if ino != 0 {
            let name = block[at + 8..at + 8 + name_len].to_vec();
            entries.push(DirEntry { name, ino, file_type: if typed { block[at + 7] } else { 0 } });
        }
        at += len;
    }
    Ok(())
}

/// Hands on the content of `inode` in file order, in pieces of whole blocks up to 1 MiB (the last
/// ends with the file): byte of the file, bytes. Holes are left out.
///
/// # Errors
/// As [`BlockMap::read`], or what `each` returns.
pub fn read_file(
    layout: &Layout,
    dev: &mut dyn ReadAt,
    inode: &Inode,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let map = BlockMap::read(layout, dev, inode)?;
    let mut buffer = Vec::new();
    for (start, extent) in map.file_extents(layout) {
        let mut done = 0;
        while done < extent.len() {
            let len = (extent.len() - done).min(READ_BYTES_MAX as u64);
            let at = extent.offset() + done;
            buffer.resize(len as usize, 0);
            dev.read_at(at, &mut buffer).map_err(|e| {
                Problem::io(format!("reading inode {} at byte {at} of the volume", inode.ino), e)
            })?;
            each(start + done, &buffer)?;
            done += len;
        }
    }
    Ok(())
}

/// The inode that `path` leads to from the root, symbolic links not followed. Empty parts and `.`
/// stay where they are.
///
/// # Errors
/// [`Problem::NotFound`], [`Problem::NotDirectory`]; as [`read_dir`].
pub fn lookup(layout: &Layout, dev: &mut dyn ReadAt, path: impl AsRef<[u8]>) -> Result<Inode, Problem> {
    let mut inode = Inode::read(layout, dev, ROOT_INO)?;
    let mut walked = String::new();
    for part in path.as_ref().split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if !inode.is_directory() {
            return Err(Problem::NotDirectory { path: walked });
        }
        walked.push('/');
        walked.push_str(&String::from_utf8_lossy(part));
        let entries = read_dir(layout, dev, &inode)?;
        let Some(entry) = entries.iter().find(|entry| entry.name == part) else {
            return Err(Problem::NotFound { path: walked });
        };
        inode = Inode::read(layout, dev, entry.ino)?;
    }
    Ok(inode)
}
