//! A session of the real engine on a small volume in memory, driven by hand.

use std::sync::{Arc, Mutex};

use fs2_block::{
    BlockNo, BlockRange, ConnectionId, Extent, Flags, Nanos, Op, Permille, ReadAt, Request, RequestId,
    WriteAt,
};
use fs2_engine::offline::{CreateOptions, Devices, ReplicateOptions, create, replicate};
use fs2_engine::policy::{Asked, Place, Policy, PolicyKind, ReadSeen, Space};
use fs2_engine::{
    AttachOptions, AttachReport, EngineConfig, Head, Io, IoData, IoOp, Log, Outcome, Target, Volume,
};
use fs2_sim::glue::Scripted;
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, Shape};
use fs2_table::{Header, Mark, PAGE_BYTES};

pub(crate) const BLOCK: usize = 1024;
/// The volume's one file: what each block holds, as 16 bits over and over.
pub(crate) const DATA: [(u32, u16); 8] = [
    (1100, 0x11),
    (1101, 0x12),
    (1102, 0x13),
    (1103, 0x14),
    (1104, 0x15),
    (1105, 0x16),
    (1500, 0x17),
    (1501, 0x18),
];

/// A converted volume, with `copied` replicated from block `near` on.
pub(crate) fn image(data: &[(u32, u16)], copied: &[BlockRange], near: u32) -> Vec<u8> {
    image_of(Shape::Plain, data, copied, near)
}

/// The same in another shape.
pub(crate) fn image_of(shape: Shape, data: &[(u32, u16)], copied: &[BlockRange], near: u32) -> Vec<u8> {
    let mut image = Plan { shape, grain: Grain::SMALL }.make(data, &[]);
    let space = Permille::new(400).unwrap();
    let options = CreateOptions { space, volume_id: 7, now_secs: 1, checked: true };
    create(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    if !copied.is_empty() {
        let options = ReplicateOptions { blocks: copied, near: BlockNo(near), written_since: false };
        replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    }
    image
}

pub(crate) fn config() -> EngineConfig {
    EngineConfig { paranoid: true, ..EngineConfig::default() }
}

pub(crate) struct Session {
    pub(crate) volume: Volume,
    pub(crate) device: Vec<u8>,
    /// The table's device, where it lives apart.
    pub(crate) table: Vec<u8>,
    pub(crate) now: Nanos,
    next: u64,
    buffers: std::collections::BTreeMap<u64, Vec<u8>>,
    /// How many bytes each request is for.
    asked: std::collections::BTreeMap<u64, usize>,
    /// Fails an I/O where it says so.
    pub(crate) fail: fn(&Io) -> Option<i32>,
    /// What an I/O takes.
    pub(crate) takes: Nanos,
    /// Every I/O that was done.
    pub(crate) done: Vec<(IoOp, Extent)>,
}

/// A request's answer, with what a read brought.
pub(crate) type Answer = Result<Vec<u8>, i32>;

impl Session {
    pub(crate) fn attach(mut device: Vec<u8>, config: EngineConfig) -> Session {
        let (volume, _) = Volume::attach(&mut device, None, config, &AttachOptions::default()).unwrap();
        Session::of(volume, device)
    }

    /// Of a volume attached by whoever calls.
    pub(crate) fn of(volume: Volume, device: Vec<u8>) -> Session {
        let (fail, now) = ((|_| None) as fn(&Io) -> Option<i32>, Nanos::from_millis(1_000_000));
        let table = Vec::new();
        let (buffers, asked, takes) = (Default::default(), Default::default(), Nanos::from_millis(1));
        Session { volume, device, table, now, next: 1, buffers, asked, fail, takes, done: Vec::new() }
    }

    /// Of [`DATA`], none of which has replicas.
    pub(crate) fn plain(config: EngineConfig) -> Session {
        Session::attach(image(&DATA, &[], 0), config)
    }

    /// The same, with replicas of 1100 to 1103 from 1300 on.
    pub(crate) fn copied(config: EngineConfig) -> Session {
        Session::attach(image(&DATA, &[BlockRange::new(1100, 1104)], 1300), config)
    }

    /// With an empty table on a device of its own.
    pub(crate) fn attach_apart(data: &[(u32, u16)], config: EngineConfig) -> Session {
        let mut device = Plan { shape: Shape::Plain, grain: Grain::SMALL }.make(data, &[]);
        let mut table = vec![0; 128 << 10];
        let options =
            CreateOptions { space: Permille::new(50).unwrap(), volume_id: 7, now_secs: 1, checked: true };
        create(&mut Devices::new(&mut device, Some(&mut table)), &options, &mut |_| {}).unwrap();
        Session::attach_both(device, table, config).0
    }

    /// With a table of so many pages on a device of its own, into which `fill` may put what it likes before
    /// the attach.
    pub(crate) fn attach_apart_of(pages: usize, fill: fn(&mut [u8])) -> (Session, AttachReport) {
        let mut device = Plan { shape: Shape::Plain, grain: Grain::SMALL }.make(&DATA, &[]);
        // Two header slots, and a page of checksums for each.
        let mut table = vec![0; (4 + pages) * PAGE_BYTES];
        let options =
            CreateOptions { space: Permille::new(50).unwrap(), volume_id: 7, now_secs: 1, checked: true };
        create(&mut Devices::new(&mut device, Some(&mut table)), &options, &mut |_| {}).unwrap();
        // As many as for a volume of another size.
        for slot in [0, PAGE_BYTES].map(|at| at..at + PAGE_BYTES) {
            if let Some(header) = Header::parse(&table[slot.clone()]).unwrap() {
                // By an FS2 that did not say which of them are zero.
                let mark = header.mark.map(|mark| Box::new(Mark { pages_end: None, ..*mark }));
                table[slot].copy_from_slice(&Header { pages: pages as u32, mark, ..header }.encode());
            }
        }
        fill(&mut table[4 * PAGE_BYTES..]);
        Session::attach_both(device, table, config())
    }

    /// A volume whose table lives on a device of its own.
    pub(crate) fn attach_both(
        mut device: Vec<u8>,
        mut table: Vec<u8>,
        config: EngineConfig,
    ) -> (Session, AttachReport) {
        let options = AttachOptions::default();
        let (volume, report) = Volume::attach(&mut device, Some(&mut table), config, &options).unwrap();
        (Session { volume, table, ..Session::attach(device, EngineConfig::default()) }, report)
    }

    /// Puts the scripted policy in force.
    pub(crate) fn policy(&mut self, policy: Scripted) -> &mut Session {
        self.volume.set_policy(Box::new(policy));
        self
    }

    /// Reads that are captured, for a copy that begins at `target`.
    pub(crate) fn copying_to(&mut self, target: u32) -> &mut Session {
        self.policy(Scripted { capture: true, eager: true, target: Some(target), ..Scripted::default() })
    }

    /// Reads that take a replica where there is one; nothing is copied.
    pub(crate) fn reading_copies(&mut self) -> &mut Session {
        self.policy(Scripted { prefer: true, ..Scripted::default() })
    }

    /// Submits; nothing is dispatched.
    pub(crate) fn submit(&mut self, op: Op, offset: u64, len: u64, payload: Option<&[u8]>) -> u64 {
        self.submit_flagged(op, offset, len, payload, Flags::default())
    }

    /// The same with flags.
    pub(crate) fn submit_flagged(
        &mut self,
        op: Op,
        offset: u64,
        len: u64,
        payload: Option<&[u8]>,
        flags: Flags,
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        let extent = if op == Op::Flush { Extent::default() } else { Extent::new(offset, len) };
        let request = Request { id: RequestId(id), connection: ConnectionId(0), op, extent, flags };
        self.volume.submit(self.now, request, payload);
        self.buffers.insert(id, payload.unwrap_or_default().to_vec());
        self.asked.insert(id, extent.len() as usize);
        id
    }

    /// Dispatches one I/O.
    pub(crate) fn dispatch(&mut self) -> Option<Io> {
        self.volume.poll_dispatch(self.now)
    }

    /// Does an I/O and completes it, a millisecond later or as [`Session::takes`] says.
    pub(crate) fn complete(&mut self, io: Io) {
        self.now += self.takes;
        self.done.push((io.op, io.extent));
        if let Some(errno) = (self.fail)(&io) {
            return self.volume.complete(self.now, io.id, Outcome::failed(errno));
        }
        let (at, len) = (io.extent.offset(), io.extent.len());
        match (&io.op, &io.data) {
            (IoOp::Read, data) => {
                let mut bytes = vec![0; len as usize];
                self.target(&io).read_at(at, &mut bytes).unwrap();
                if let Some(id) = data.request() {
                    let asked = self.asked[&id.0];
                    self.buffers.insert(id.0, data.asked_of(&bytes, asked).to_vec());
                }
                return self.volume.complete(self.now, io.id, Outcome::read(&bytes));
            }
            (IoOp::Write { .. }, IoData::Client(id)) => {
                self.device.write_at(at, &self.buffers[&id.0]).unwrap();
            }
            (IoOp::Write { .. }, IoData::Engine(bytes)) => self.target(&io).write_at(at, bytes).unwrap(),
            (IoOp::WriteZeroes { .. }, _) => self.device.write_zeroes(at, len).unwrap(),
            _ => {}
        }
        self.volume.complete(self.now, io.id, Outcome::done());
    }

    fn target(&mut self, io: &Io) -> &mut Vec<u8> {
        if io.target == Target::Volume { &mut self.device } else { &mut self.table }
    }

    /// Does everything there is to do now; the answers by request.
    pub(crate) fn run(&mut self) -> Vec<(u64, Answer)> {
        while let Some(io) = self.dispatch() {
            self.complete(io);
        }
        let mut answers = Vec::new();
        while let Some(reply) = self.volume.poll_reply() {
            let id = reply.request.0;
            answers.push((id, reply.result.map(|()| self.buffers.remove(&id).unwrap())));
        }
        answers
    }

    fn only(&mut self, id: u64) -> Answer {
        let mut answers = self.run();
        assert_eq!(answers.len(), 1, "one answer");
        let (of, answer) = answers.remove(0);
        assert_eq!(of, id);
        answer
    }

    pub(crate) fn read(&mut self, block: u32, blocks: u32) -> Answer {
        let (at, len) = bytes(block, blocks);
        let id = self.submit(Op::Read, at, len, None);
        self.only(id)
    }

    /// Reads one block; the two bytes it is filled with.
    pub(crate) fn value(&mut self, block: u32) -> u16 {
        let bytes = self.read(block, 1).unwrap();
        let value = [bytes[0], bytes[1]];
        assert!(bytes.chunks(2).all(|pair| pair == value), "block {block} is filled with one value");
        u16::from_le_bytes(value)
    }

    pub(crate) fn write(&mut self, block: u32, blocks: u32, byte: u8) -> Answer {
        let (at, len) = bytes(block, blocks);
        let id = self.submit(Op::Write, at, len, Some(&vec![byte; len as usize]));
        self.only(id)
    }

    pub(crate) fn other(&mut self, op: Op, block: u32, blocks: u32) -> Answer {
        let (at, len) = bytes(block, blocks);
        let id = self.submit(op, at, len, None);
        self.only(id)
    }

    /// What the client writes to the superblock: clean or not, and how often it was mounted.
    pub(crate) fn superblock(&mut self, clean: bool, mounts: u16) {
        let mut bytes = self.device[1024..2048].to_vec();
        bytes[52..54].copy_from_slice(&mounts.to_le_bytes());
        bytes[58] = u8::from(clean);
        let id = self.submit(Op::Write, 1024, 1024, Some(&bytes));
        assert_eq!(self.run(), [(id, Ok(bytes))]);
    }

    /// Writes the bitmap as it is, and gets it read by that.
    pub(crate) fn load_bitmap(&mut self) -> &mut Session {
        let at = Plan { shape: Shape::Plain, grain: Grain::SMALL }.bitmap(0) as usize * BLOCK;
        let bytes = self.device[at..at + BLOCK].to_vec();
        let id = self.submit(Op::Write, at as u64, BLOCK as u64, Some(&bytes));
        assert_eq!(self.run(), [(id, Ok(bytes))]);
        self
    }

    /// So many milliseconds pass; then the engine does what it wants to.
    pub(crate) fn idle(&mut self, ms: u64) -> &mut Session {
        self.now += Nanos::from_millis(ms);
        self.volume.handle_timeout(self.now);
        assert_eq!(self.run(), []);
        self
    }

    /// Ends the session; whether the mark stands, and the device.
    pub(crate) fn detach(mut self) -> (bool, Vec<u8>) {
        self.volume.begin_detach(self.now);
        self.run();
        (self.volume.detached().expect("it ended").marked, self.device)
    }

    /// Where the replicas are: original, replica.
    pub(crate) fn replicas(&self) -> Vec<(u32, u32)> {
        let mut all: Vec<_> = self.volume.table().iter().map(|r| (r.original.0, r.replica.0)).collect();
        all.sort();
        all
    }
}

fn bytes(block: u32, blocks: u32) -> (u64, u64) {
    (u64::from(block) * BLOCK as u64, u64::from(blocks) * BLOCK as u64)
}

type Behind = (BlockRange, Vec<BlockNo>);

type Vacant = (Option<Vec<BlockRange>>, bool);

/// Asks for free space and replicas as policies do, and remembers the answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    /// Runs of the first group that are vacant, and whether the block read has all the replicas it may have.
    pub(crate) seen: Arc<Mutex<Vec<Vacant>>>,
    /// Whether a read was shown with what it brought.
    pub(crate) captured: Arc<Mutex<Vec<bool>>>,
    /// Whether a read that has copies went to a drive with others to serve.
    pub(crate) in_company: Arc<Mutex<Vec<bool>>>,
    /// What went to the drive behind such a read, from the last to the first, with its copies.
    pub(crate) behind: Arc<Mutex<Vec<Vec<Behind>>>>,
    /// Originals whose copies are rather read.
    pub(crate) rather_copied: Vec<BlockNo>,
    /// Whether reads are served from copies, though originals are as good.
    pub(crate) reads_copies: bool,
    /// Which of the blocks read have no replica.
    pub(crate) lacking: Arc<Mutex<Vec<Vec<BlockRange>>>>,
    /// Since when reads waited, and what serving them took.
    pub(crate) times: Arc<Mutex<Vec<(Nanos, Nanos)>>>,
    /// Read to nowhere after each read.
    pub(crate) trail: Option<BlockRange>,
}

impl Policy for Probe {
    fn kind(&self) -> PolicyKind {
        PolicyKind::None
    }
    fn choose(&mut self, _: Nanos, head: &Head, asked: &Asked<'_>) -> Option<usize> {
        self.in_company.lock().unwrap().push(head.in_company());
        let behind = asked.behind.backwards().map(|(read, copies)| (read, copies.to_vec()));
        self.behind.lock().unwrap().push(behind.collect());
        (self.reads_copies || asked.only_copies).then_some(0)
    }
    fn prefers_copy(&self, first: BlockNo, _: BlockNo) -> bool {
        self.rather_copied.contains(&first)
    }
    fn read_seen(&mut self, seen: &ReadSeen<'_>, space: &dyn Space, _: &mut Log) {
        self.captured.lock().unwrap().push(!seen.hashes.is_empty());
        self.times.lock().unwrap().push((seen.arrived, seen.served));
        let mut lacking = Vec::new();
        space.lacking(seen.touched, &mut |part| lacking.push(part));
        self.lacking.lock().unwrap().push(lacking);
        self.seen.lock().unwrap().push((space.vacant(0), space.has_replica(seen.touched.first())));
    }
    fn trail(&mut self) -> Option<BlockRange> {
        self.trail
    }
    fn idle(&mut self, _: Nanos, _: &mut Log) {}
    fn place(&mut self, _: u32, _: &Head, _: &dyn Space) -> Place {
        Place::Nowhere
    }
    fn hot_region(&self) -> Option<BlockRange> {
        None
    }
    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}
