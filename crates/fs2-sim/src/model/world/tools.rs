//! Programs that work on the unmounted volume through the daemon, and a kernel that freezes or remounts.
//!
//! A program is a row of batches: the requests of one may be carried out in any order, the next begins when
//! all of them are answered. What it reads is left out; what it finds counts from the write of the superblock
//! that says so.

use super::*;

impl World {
    /// The program sends its next requests, if it waits for none. Says whether anything was done.
    pub(super) fn tool_goes_on(&mut self) -> Result<bool, Violation> {
        let mut moved = false;
        while let Some((tool, step)) = self.tool {
            if !self.served() || !self.kernel.is_idle() {
                break;
            }
            moved = true;
            let Some(batch) = self.batch(tool, step) else {
                self.tool = None;
                break;
            };
            self.tool = Some((tool, step + 1));
            for ask in batch {
                self.send(ask);
            }
            self.pump()?;
        }
        Ok(moved)
    }

    fn batch(&mut self, tool: Tool, step: u8) -> Option<Vec<Ask>> {
        let flush = vec![Ask::Flush];
        let mounts = u16::from_le_bytes(self.mnt_count());
        let superblock = |mounts, state, role| vec![Ask::Super { mounts, state, role }];
        Some(match (tool, step) {
            (Tool::Check | Tool::CheckClears, 0) => {
                let refs = self.refs_on_disk();
                // Bitmaps are written only where they are wrong.
                let wrong = |g: &u32| {
                    self.devices[0].block(self.plan().bitmap(*g)).bytes(self.grain()) != self.bitmap(*g, refs)
                };
                let mut all: Vec<Ask> =
                    self.groups().into_iter().filter(wrong).map(|g| Ask::Bitmap(g, refs)).collect();
                if tool == Tool::CheckClears {
                    all.push(Ask::Meta(Meta::ClearTable));
                }
                all
            }
            (Tool::Check | Tool::CheckClears, 1 | 3) => flush,
            (Tool::Check | Tool::CheckClears, 2) => superblock(0, 1, Role::Checked),
            (Tool::Grow | Tool::Shrink, 0) => {
                self.resized = true;
                // It marks the file system as damaged while it works.
                superblock(mounts, 2, Role::Resizing)
            }
            (Tool::Grow, 1 | 3 | 5) => flush,
            (Tool::Grow, 2) => vec![Ask::Meta(Meta::NewBitmap), Ask::Meta(Meta::Descriptors)],
            (Tool::Grow, 4) => superblock(mounts, 1, Role::Resized(1)),
            (Tool::Shrink, 1 | 4 | 6) => flush,
            (Tool::Shrink, 2) => {
                self.kernel.allocate(S);
                self.kernel.forget(S);
                vec![Ask::Meta(Meta::MoveTable(S))]
            }
            (Tool::Shrink, 3) => {
                let mask = self.kernel.bitmap;
                vec![Ask::Meta(Meta::TableMoved(S)), Ask::Bitmap(self.group_of(S), mask)]
            }
            (Tool::Shrink, 5) => superblock(mounts, 1, Role::Resized(-1)),
            _ => return None,
        })
    }

    /// Where a superblock is written, and what.
    pub(super) fn superblock_for(&self, mounts: u16, state: u16, role: Role) -> (Extent, Vec<u8>) {
        let mut bytes = self.superblock(mounts, state);
        match role {
            Role::Checked => bytes[image::LAST_CHECK] = bytes[image::LAST_CHECK].wrapping_add(1),
            Role::Resized(groups) => self.plan().resize(&mut bytes, groups),
            _ => {}
        }
        if role.is_tool() {
            return (Extent::new(image::SUPERBLOCK, 1024), bytes);
        }
        // A kernel writes the whole block that holds it.
        let size = self.grain().block() as u64;
        let extent = self.extent_of_block((image::SUPERBLOCK / size) as u32);
        let mut block = self.devices[0].read(extent);
        block[(image::SUPERBLOCK % size) as usize..][..1024].copy_from_slice(&bytes);
        (extent, block)
    }

    /// Where other metadata is written, and what.
    pub(super) fn meta(&self, meta: Meta) -> (Extent, Vec<u8>) {
        let plan = self.plan();
        let inode_5 = |change: &dyn Fn(&mut [u8])| {
            let (at, len) = plan.table_inode();
            let size = self.grain().block() as u64;
            let extent = self.extent_of_block((at / size) as u32);
            let mut block = self.devices[0].read(extent);
            change(&mut block[(at % size) as usize..][..len]);
            (extent, block)
        };
        match meta {
            Meta::ClearTable => inode_5(&|inode| inode.fill(0)),
            // Its first block.
            Meta::TableMoved(to) => {
                inode_5(&|inode| inode[40..44].copy_from_slice(&self.blocks[to].to_le_bytes()))
            }
            Meta::MoveTable(to) => {
                let first = self.extent_of_block(self.ground.table_blocks[0]);
                (self.extent(to), self.devices[0].read(first))
            }
            Meta::Descriptors => {
                let extent = self.extent_of_block(plan.descriptors());
                let mut block = self.devices[0].read(extent);
                plan.describe_group(&mut block, plan.groups());
                (extent, block)
            }
            Meta::NewBitmap => {
                let extent = self.extent_of_block(plan.bitmap(plan.groups()));
                (extent, vec![0; self.grain().block()])
            }
        }
    }

    /// A kernel freezes the file system or remounts it read-only: everything is written, then the superblock.
    pub(super) fn falls_quiet(&mut self, role: Role) -> Result<(), Violation> {
        self.write_all()?;
        self.send(Ask::Super { mounts: self.mounts, state: 1, role });
        Ok(())
    }

    /// A kernel thaws it or remounts it for writing.
    pub(super) fn wakes(&mut self, role: Role) {
        let mounts = self.mounts + u16::from(role == Role::Writable);
        self.send(Ask::Super { mounts, state: 0, role });
    }

    /// A kernel writes all that is only in its memory, and waits.
    pub(super) fn write_all(&mut self) -> Result<(), Violation> {
        self.bitmap_sent.clear();
        for group in self.groups() {
            self.send(Ask::Bitmap(group, self.kernel.bitmap));
            self.drain()?;
        }
        let refs = REFS | self.refs();
        self.send(Ask::Write(P, refs));
        self.drain()?;
        self.send(Ask::Flush);
        self.drain()
    }

    /// A new daemon finds the table where inode 5 says it is: S may be the table's by now.
    pub(super) fn table_moved(&mut self) {
        if self.ground.apart {
            return;
        }
        let (at, len) = self.plan().table_inode();
        let inode = self.devices[0].read(Extent::new(at, len as u64));
        if inode[40..44] == self.blocks[S].to_le_bytes() {
            Arc::make_mut(&mut self.ground).table_blocks[0] = self.blocks[S];
            self.kernel.free(S);
        }
    }

    /// A superblock's write was answered.
    pub(super) fn superblock_written(&mut self, mounts: u16, role: Role) -> Result<(), Violation> {
        match role {
            Role::Mount | Role::Checked => {
                // Who mounts or checks reads what belongs to files; earlier than now nobody looks.
                // A check also frees what a tool marked used and no file has.
                if self.died || role == Role::Checked {
                    self.reload()?;
                    self.died = false;
                }
                self.kernel.mounted = role == Role::Mount;
            }
            Role::Unmount => self.kernel.mounted = false,
            Role::Freeze | Role::ReadOnly => self.quiet = true,
            Role::Thaw | Role::Writable => self.quiet = false,
            Role::Resizing | Role::Resized(_) => {}
        }
        self.mounts = mounts;
        Ok(())
    }
}
