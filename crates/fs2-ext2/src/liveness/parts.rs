//! A notion of liveness taken apart, for another process that goes on where this one ends.

use super::freeze::FIXED;
use super::*;

/// All that [`Liveness`] has learnt and the layout does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct LivenessParts {
    /// The superblock as the client last wrote it.
    pub superblock: Box<[u8; 1024]>,
    /// The superblock at the attach, with the state and the counts seen last.
    pub at_attach: Box<[u8; 1024]>,
    /// The descriptors as the client last wrote them.
    pub descriptors: Vec<u8>,
    /// F.
    pub free: RoaringBitmap,
    /// Blocks by the connection that last wrote or claimed them, connections ascending.
    pub written: Vec<(ConnectionId, RoaringBitmap)>,
    /// Such blocks over connections that are gone.
    pub orphaned: RoaringBitmap,
    /// Blocks claimed in groups not loaded.
    pub set_unloaded: RoaringBitmap,
    /// Groups whose bitmap has joined F.
    pub loaded: RoaringBitmap,
    /// A kernel mount was seen and no unmount since.
    pub mounted: bool,
    /// What only a check does was seen while VALID was clear.
    pub mended: bool,
    /// Blocks written while the superblock called the volume unmounted, and in no bitmap write since.
    pub unannounced: RoaringBitmap,
    /// Such blocks that a superblock was written after.
    pub told: RoaringBitmap,
    /// Bits set in bitmaps written then, and no superblock since.
    pub set_unannounced: RoaringBitmap,
    /// Groups whose bitmap was written then, and no superblock since.
    pub bitmaps_unannounced: RoaringBitmap,
}

impl Liveness {
    /// What another process needs to go on; `None` once frozen, when there is nothing to go on with.
    pub fn parts(&self) -> Option<LivenessParts> {
        if self.frozen.is_some() {
            return None;
        }
        Some(LivenessParts {
            superblock: self.superblock.clone(),
            at_attach: self.at_attach.clone(),
            descriptors: self.descriptors.clone(),
            free: self.free.clone(),
            written: self.written.iter().map(|(c, set)| (*c, set.clone())).collect(),
            orphaned: self.all_orphaned(),
            set_unloaded: self.set_unloaded.clone(),
            loaded: self.loaded.clone(),
            mounted: self.mounted,
            mended: self.mended,
            unannounced: self.unannounced.clone(),
            told: self.told.clone(),
            set_unannounced: self.set_unannounced.clone(),
            bitmaps_unannounced: self.bitmaps_unannounced.clone(),
        })
    }

    /// Puts it together again over `layout`, as read from the volume now. `table` is as in
    /// [`Liveness::new`].
    ///
    /// # Errors
    /// What contradicts the volume, or the invariants: nothing of it may be used then.
    pub fn from_parts(
        layout: Arc<Layout>,
        table: &[BlockRange],
        parts: LivenessParts,
    ) -> Result<Liveness, &'static str> {
        let mut live = Liveness::new(layout, table);
        let LivenessParts { superblock, at_attach, descriptors, .. } = parts;
        if live.superblock != superblock {
            return Err("the superblock on the volume is not the one the client wrote");
        }
        if live.descriptors != descriptors {
            return Err("the descriptors on the volume are not those the client wrote");
        }
        if FIXED.iter().any(|&(at, len, _)| at_attach[at..at + len] != superblock[at..at + len]) {
            return Err("another volume was attached");
        }
        let blocks = live.layout.blocks();
        let groups = live.layout.group_count();
        let beyond = |set: &RoaringBitmap, end: u32| set.max().is_some_and(|last| last >= end);
        let mut all = vec![&parts.free, &parts.orphaned, &parts.set_unloaded];
        all.extend([&parts.unannounced, &parts.told, &parts.set_unannounced]);
        all.extend(parts.written.iter().map(|(_, set)| set));
        let of_groups = [&parts.loaded, &parts.bitmaps_unannounced];
        if all.iter().any(|set| beyond(set, blocks)) || of_groups.iter().any(|set| beyond(set, groups)) {
            return Err("blocks beyond the volume's end");
        }
        // Keeps I1 for what somebody else has computed.
        // Looked up, not taken out of it: that goes through all of F for each range, and there is one in each group.
        let any_free = |r: BlockRange| parts.free.range_cardinality(r.start()..r.end()) > 0;
        let before = BlockRange::new(0, live.layout.first_data_block());
        if any_free(before)
            || live.excluded.iter().any(|&r| any_free(r))
            || live.layout.static_metadata_in(BlockRange::new(0, blocks)).any(any_free)
        {
            return Err("blocks that are never free");
        }
        // Keeps I2 and I3: a block joins F again only by leaving these.
        if !parts.set_unloaded.is_disjoint(&parts.free) {
            return Err("free blocks that were claimed");
        }
        live.free_count = parts.free.len();
        live.free = parts.free;
        live.at_attach = at_attach;
        live.written = parts.written.into_iter().collect();
        live.orphaned = parts.orphaned;
        live.set_unloaded = parts.set_unloaded;
        live.unloaded_free =
            (0..groups).filter(|g| !parts.loaded.contains(*g)).map(|g| live.unloaded_free_of(g)).sum();
        live.loaded = parts.loaded;
        live.pass_loaded();
        live.mounted = parts.mounted;
        live.mended = parts.mended;
        live.unannounced = parts.unannounced;
        live.told = parts.told;
        live.set_unannounced = parts.set_unannounced;
        live.bitmaps_unannounced = parts.bitmaps_unannounced;
        Ok(live)
    }
}
