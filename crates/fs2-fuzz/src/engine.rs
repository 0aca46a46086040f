//! Any requests, completions and times at the engine: every invariant holds after each event, every
//! request is answered once, the session ends, and a read brings what was written last.
//!
//! Byte 0: policy, mode of discards, punching, degree, trust, how often pages are written, which volume,
//! whether it is served as a plain device. After it events of 4 bytes.
//!
//! Oracle: a plain copy of the volume, sector by sector. Overlapping requests are served in the order of
//! their arrival, so a read brings what the writes before it left. Not defined, and not compared, is a
//! sector that was discarded or whose write failed, until it is written again by a request that arrived
//! later; a free sector, until it is written; and a sector of the table.
//!
//! And no copy, page or header lands on a block that counts: one of a file or of metadata, or that was written, or called
//! used by a bitmap whose write was answered, and not discarded whole since.

use std::collections::BTreeMap;

use fs2_block::{
    BlockNo, BlockRange, BlockSize, ConnectionId, Extent, Flags, Nanos, Op, ReadAt, Request, RequestId,
};
use fs2_engine::{AttachOptions, DiscardMode, EngineConfig, Io, IoData, IoOp, Outcome, PolicyKind, Volume};
use fs2_ext2::TableFile;

use crate::image::{BLOCK, BYTES, Base, DATA, Patched};
use crate::session::perform;

const SECTOR: u64 = 512;
/// Events at most: time grows with requests that wait for one another.
const EVENTS: usize = 4096;

struct Client {
    request: Request,
    buffer: Vec<u8>,
    /// A change: the device has done it.
    done: bool,
}

/// What a sector holds, and the last request that made it undefined.
#[derive(Clone, Copy)]
struct Sector {
    /// `None`: anything.
    fill: Option<u8>,
    undefined_by: u64,
}

struct World {
    volume: Volume,
    device: Patched,
    clients: BTreeMap<u64, Client>,
    in_flight: Vec<Io>,
    /// Sectors told apart by one byte that fills them: of the data blocks, and of all that was written.
    sectors: Vec<Sector>,
    /// Each block of the file system: whether it counts, and the last discard of all of it.
    blocks: Vec<(bool, u64)>,
    /// The table's, in use by the daemon itself.
    table: Vec<BlockRange>,
    /// The numbers of the two that live; one that is gone is not used again.
    connections: [u32; 2],
    now: Nanos,
    next: u64,
}

pub(crate) fn run(data: &[u8]) {
    let Some((&setup, events)) = data.split_first() else { return };
    let mut world = World::new(setup);
    for e in events.chunks_exact(4).take(EVENTS) {
        world.event(e);
        world.answers();
    }
    world.end();
}

impl World {
    fn new(setup: u8) -> World {
        let base = if setup & 64 == 0 { Base::Replicas } else { Base::Pieces };
        let mut device = Patched::new(base);
        let config = EngineConfig {
            policy: if setup & 1 == 0 { PolicyKind::Torture } else { PolicyKind::Fs2 },
            discard: if setup & 2 == 0 { DiscardMode::Memory } else { DiscardMode::Pass },
            punch: setup & 4 != 0,
            degree: 1 + (setup >> 3 & 1),
            distrust: setup & 16 != 0,
            paranoid: true,
            idle_after: Nanos(0),
            table_flush_every: Nanos::from_millis(if setup & 32 == 0 { 5000 } else { 0 }),
            ..EngineConfig::default()
        };
        let options = AttachOptions { passive: setup & 128 != 0, ..AttachOptions::default() };
        let (volume, _) = Volume::attach(&mut device, None, config, &options).expect("it attaches");
        let mut sectors = vec![Sector { fill: None, undefined_by: 0 }; (BYTES / SECTOR) as usize];
        // All else is metadata, which is not filled with one byte, the table's, or free.
        for (block, _) in DATA {
            for n in [0, 1] {
                let mut bytes = [0; SECTOR as usize];
                let at = u64::from(block) * BLOCK as u64 + n * SECTOR;
                device.read_at(at, &mut bytes).expect("within the volume");
                // Their value in the image is two bytes, of which one is zero: the first is compared.
                sectors[(at / SECTOR) as usize].fill = Some(bytes[0]);
            }
        }
        let mut blocks = vec![(false, 0); (BYTES / BLOCK as u64) as usize];
        DATA.iter().for_each(|(block, _)| blocks[*block as usize].0 = true);
        let layout = volume.layout().expect("there is a file system").clone();
        let all = BlockRange::new(0, layout.blocks());
        layout.static_metadata_in(all).flat_map(|r| r.iter()).for_each(|b| blocks[b.0 as usize].0 = true);
        let table =
            TableFile::find(&layout, &mut device).expect("it can be read").expect("there is a table").blocks;
        let (clients, in_flight, now) = Default::default();
        World {
            volume,
            device,
            clients,
            in_flight,
            sectors,
            blocks,
            table,
            connections: [0, 1],
            now,
            next: 1,
        }
    }

    fn event(&mut self, e: &[u8]) {
        self.now += Nanos::from_millis(u64::from(e[3] % 16) * 50);
        match e[0] % 8 {
            0..=3 => self.request(e),
            4 | 5 => {
                if let Some(io) = self.volume.poll_dispatch(self.now) {
                    self.in_flight.push(io);
                }
            }
            6 if !self.in_flight.is_empty() => {
                let io = self.in_flight.swap_remove(usize::from(e[1]) % self.in_flight.len());
                // Now and then the device fails.
                self.finish(&io, e[2] == 255);
            }
            6 => self.volume.handle_timeout(self.now),
            _ => match e[1] {
                0..16 => {
                    let gone = &mut self.connections[usize::from(e[3] % 2)];
                    self.volume.connection_gone(ConnectionId(*gone));
                    *gone += 2;
                }
                16..32 => self.volume.host_is_short(e[2] % 2 == 1),
                32 => self.volume.foreign_writer(self.now),
                33 => self.volume.begin_detach(self.now),
                _ => self.volume.handle_timeout(self.now),
            },
        }
    }

    fn request(&mut self, e: &[u8]) {
        let op =
            [Op::Read, Op::Write, Op::WriteZeroes, Op::Discard, Op::Punch, Op::Flush, Op::Read, Op::Read]
                [usize::from(e[0] / 8 % 8)];
        // Anywhere: metadata, table and data; whole blocks and parts. Or where replicas and originals are.
        let at = u64::from(u16::from_le_bytes([e[1], e[2]]));
        let offset = if e[0] & 64 == 0 {
            at * SECTOR % BYTES
        } else {
            (1090 + at % 32) * BLOCK as u64 + at / 32 % 2 * SECTOR
        };
        let len = ((u64::from(e[3] / 16) + 1) * SECTOR).min(BYTES - offset);
        let extent = if op == Op::Flush { Extent::default() } else { Extent::new(offset, len) };
        let request = Request {
            id: RequestId(self.next),
            connection: ConnectionId(self.connections[usize::from(e[3] % 2)]),
            op,
            extent,
            flags: Flags { fua: e[1].is_multiple_of(16), no_hole: e[1] % 32 == 1 },
        };
        let buffer = vec![e[2] ^ e[3]; extent.len() as usize];
        if matches!(op, Op::Discard | Op::Punch) {
            self.undefine(extent, self.next);
            for b in extent.blocks_covered(BlockSize::B1024).iter() {
                self.blocks[b.0 as usize] = (false, self.next);
            }
        }
        self.volume.submit(self.now, request, (op == Op::Write).then_some(&buffer[..]));
        self.clients.insert(self.next, Client { request, buffer, done: false });
        self.next += 1;
    }

    fn sectors(&mut self, extent: Extent) -> impl Iterator<Item = &mut Sector> {
        let from = (extent.offset() / SECTOR) as usize;
        self.sectors[from..from + extent.sectors() as usize].iter_mut()
    }

    fn undefine(&mut self, extent: Extent, by: u64) {
        for s in self.sectors(extent) {
            *s = Sector { fill: None, undefined_by: by };
        }
    }

    /// A client's I/O or one of the engine's ends.
    fn finish(&mut self, io: &Io, fail: bool) {
        let by = self.client_of(io);
        let client = by.and_then(|id| self.clients.get(&id));
        let (payload, zeroes) =
            (client.map_or(&[][..], |c| &c.buffer[..]), matches!(io.op, IoOp::WriteZeroes { .. }));
        let fill = if zeroes { 0 } else { payload.first().copied().unwrap_or(0) };
        let bytes = if fail { Vec::new() } else { perform(&mut self.device, io, payload) };
        let is_change = zeroes || matches!(io.op, IoOp::Write { .. });
        let touched = io.extent.blocks_touched(BlockSize::B1024);
        let own = by.is_none() && matches!((&io.op, &io.data), (IoOp::Write { .. }, IoData::Engine(_)));
        if own && let Some(block) = touched.iter().find(|b| self.blocks[b.0 as usize].0) {
            panic!("{io:?} lands on block {block}, which counts");
        }
        if let Some(id) = by.filter(|_| is_change) {
            touched.iter().for_each(|b| self.counts(b, id));
            for s in self.sectors(io.extent).filter(|s| s.undefined_by <= id) {
                *s = if fail {
                    Sector { fill: None, undefined_by: id }
                } else {
                    Sector { fill: Some(fill), ..*s }
                };
            }
        }
        if let Some(client) = by.and_then(|id| self.clients.get_mut(&id)) {
            client.done = true;
            if io.op == IoOp::Read {
                let len = client.request.extent.len() as usize;
                client.buffer = if fail { Vec::new() } else { io.data.asked_of(&bytes, len).to_vec() };
            }
        }
        let outcome = match (fail, &io.op) {
            (true, _) => Outcome::failed(fs2_engine::EIO),
            (false, IoOp::Read) => Outcome::read(&bytes),
            (false, _) => Outcome::done(),
        };
        self.volume.complete(self.now, io.id, outcome);
    }

    /// Request `id` makes a block count, unless it was discarded behind it.
    fn counts(&mut self, block: BlockNo, id: u64) {
        let (counts, discarded) = &mut self.blocks[block.0 as usize];
        *counts |= id > *discarded;
    }

    /// A write was answered: what it brought of bitmaps holds.
    fn claimed(&mut self, request: Request, bytes: &[u8]) {
        let layout = self.volume.layout().expect("there is a file system").clone();
        for (group, bitmap) in layout.bitmaps_in(request.extent.blocks_touched(BlockSize::B1024)) {
            let here = bitmap.extent(BlockSize::B1024);
            let Some(part) = request.extent.intersect(here) else { continue };
            let from = (part.offset() - request.extent.offset()) as usize;
            let first = layout.group_blocks(group).start() + ((part.offset() - here.offset()) * 8) as u32;
            let blocks = BlockRange::new(first, layout.group_blocks(group).end().max(first));
            for used in fs2_ext2::bit_runs(&bytes[from..][..part.len() as usize], blocks, true) {
                let table = self.table.clone();
                let others = used.iter().filter(|b| !table.iter().any(|own| own.contains(*b)));
                others.for_each(|b| self.counts(b, request.id.0));
            }
        }
    }

    /// Whose I/O this is. Zeroes bear no name; the engine has none of its own, and of requests for the
    /// same bytes the first is served first.
    fn client_of(&self, io: &Io) -> Option<u64> {
        match (&io.op, &io.data) {
            (_, IoData::Client(id) | IoData::Around { request: id, .. }) => Some(id.0),
            (IoOp::WriteZeroes { .. }, _) => {
                let asked = |c: &Client| matches!(c.request.op, Op::WriteZeroes | Op::Punch);
                let mut same =
                    self.clients.iter().filter(|(_, c)| asked(c) && !c.done && c.request.extent == io.extent);
                Some(*same.next().expect("zeroes that nobody asked for").0)
            }
            _ => None,
        }
    }

    fn answers(&mut self) {
        while let Some(reply) = self.volume.poll_reply() {
            let id = reply.request.0;
            let Client { request, buffer, .. } =
                self.clients.remove(&id).expect("a request is answered once");
            match (request.op, reply.result) {
                (Op::Read, Ok(())) => self.compare(request, &buffer),
                (Op::Write, Ok(())) => self.claimed(request, &buffer),
                _ => {}
            }
        }
    }

    fn compare(&self, request: Request, bytes: &[u8]) {
        let first = (request.extent.offset() / SECTOR) as usize;
        for (n, sector) in bytes.chunks_exact(SECTOR as usize).enumerate() {
            if let Some(fill) = self.sectors[first + n].fill {
                let at = first + n;
                let got = sector[0];
                assert_eq!(got, fill, "sector {at}, read by {request:?}: not what was written last");
            }
        }
    }

    /// Everything that was asked ends, and the session does.
    fn end(mut self) {
        self.volume.begin_detach(self.now);
        for _ in 0..100_000 {
            while let Some(io) = self.volume.poll_dispatch(self.now) {
                self.in_flight.push(io);
            }
            self.answers();
            match self.in_flight.pop() {
                Some(io) => self.finish(&io, false),
                None if self.volume.detached().is_some() => break,
                None => panic!("nothing in flight, and not detached"),
            }
        }
        self.answers();
        for (n, sector) in self.sectors.iter().enumerate() {
            let mut bytes = [0; SECTOR as usize];
            self.device.read_at(n as u64 * SECTOR, &mut bytes).expect("within the volume");
            assert!(
                sector.fill.is_none_or(|fill| bytes[0] == fill),
                "sector {n} holds {} in the end",
                bytes[0]
            );
        }
        assert!(self.clients.is_empty(), "{} requests were never answered", self.clients.len());
        assert!(self.volume.detached().is_some(), "the session ends");
    }
}
