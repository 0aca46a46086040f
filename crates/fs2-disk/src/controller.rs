//! What a drive's electronics add to its mechanics: overheads, the bus, the write cache, remapping.

/// How far a drive reads on after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAhead {
    /// Until the segment holds its size from the read's start, half its size where the read was long.
    Segment,
    /// Not at all.
    None,
    /// To the end of the track.
    Track,
    /// To the end of the cylinder.
    Cylinder,
    /// So many sectors beyond the read.
    Past(u32),
    /// To the end of the track, and of the next one where the segment reaches back before this one.
    NextTrack,
}

/// Command overheads and abilities of a drive known in detail. Pairs of times are of a command that
/// follows a read and of one that follows a write; microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControllerSpec {
    /// Before data in the cache begins to cross the bus.
    pub(crate) read_hit_us: [f64; 2],
    /// Before the arm moves for a read.
    pub(crate) read_miss_us: [f64; 2],
    /// Before a write's data crosses the bus and the arm moves.
    pub(crate) write_us: [f64; 2],
    /// How much later than the arm moves a write's data begins to cross the bus.
    pub(crate) write_bus_us: f64,
    /// What a write's seek takes at least.
    pub(crate) write_seek_min_us: f64,
    /// Between a read's first sector having been read and its crossing the bus.
    pub(crate) reconnect_us: f64,
    /// Share of a read, or of a segment, that must have been read before it begins to cross the bus.
    pub(crate) read_water: f64,
    /// That share is one of the read.
    pub(crate) water_by_request: bool,
    /// At the end of a read and of a write.
    pub(crate) complete_us: [f64; 2],
    /// A read begins with whatever part of it passes first.
    pub(crate) zero_latency_read: bool,
    /// A write does.
    pub(crate) zero_latency_write: bool,
    /// What passes on the track before the read's first sector is kept.
    pub(crate) read_any_free: bool,
    /// A read from the cache sets reading ahead going again where it had stopped.
    pub(crate) ahead_on_hit: bool,
    /// What was written can be read from the cache.
    pub(crate) hits_on_written: bool,
}

/// A write-back cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WriteCacheSpec {
    /// Stretches of contiguous sectors it holds at most.
    pub(crate) extents: u32,
    /// Sectors it holds at most.
    pub(crate) sectors: u32,
    /// Writing begins when the drive had nothing to do for so long; with 0 at once, while the data still
    /// crosses the bus.
    pub(crate) idle_ms: f64,
}

/// Sectors that lie elsewhere than their numbers say, drawn at random but the same each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemapSpec {
    /// Share of all sectors, thousandths.
    pub(crate) permille: u16,
    pub(crate) seed: u64,
}
