//! Actions and I/Os in words.

use super::*;

impl World {
    /// The action in words, for the state it is about to be done in.
    pub fn describe(&self, action: Action) -> String {
        let name = |b: Tracked| NAMES[b];
        match action {
            Action::Land(i) => format!("device does {}", self.describe_io(i)),
            Action::Fail(i) => format!("device fails {}", self.describe_io(i)),
            Action::Read(b, From::Original) | Action::ReadFree(b, From::Original) => {
                format!("read {}", name(b))
            }
            Action::Read(b, From::Replica) | Action::ReadFree(b, From::Replica) => {
                format!("read {} from its replica", name(b))
            }
            Action::ReadPart(b, s, From::Original) => format!("read part {s} of {}", name(b)),
            Action::ReadPart(b, s, From::Replica) => {
                format!("read part {s} of {} from its replica", name(b))
            }
            Action::Write(b) | Action::WriteToo(b) => format!("write {}", name(b)),
            Action::ReadTwo(b, From::Original) => format!("read {} and {}", name(b), name(b + 1)),
            Action::ReadTwo(b, From::Replica) => {
                format!("read {} and {} from replicas", name(b), name(b + 1))
            }
            Action::WriteTwo(b) => format!("write {} and {}", name(b), name(b + 1)),
            Action::DiscardOdd(b) => format!("discard {} and half of {}", name(b), name(b + 1)),
            Action::WritePart(b, s) => format!("write part {s} of {}", name(b)),
            Action::ZeroPart(b, s) => format!("write zeroes to part {s} of {}", name(b)),
            Action::DiscardPart(b) => format!("discard a part of {}", name(b)),
            Action::Route(n) => format!("next requests go over connection {n}"),
            Action::Arrives(n) => format!("daemon reads connection {n}"),
            Action::Notice(c) => format!("daemon sees that the client of connection {c} is gone"),
            Action::Zero(b) => format!("write zeroes to {}", name(b)),
            Action::Alloc(b) => format!("allocate {}", name(b)),
            Action::Free(b) => format!("free {}", name(b)),
            Action::Discard(b) | Action::DiscardToo(b) => format!("discard {}", name(b)),
            Action::Punch(b) => format!("punch {}", name(b)),
            Action::GiveUp(b) => format!("give up on the discard of {}", name(b)),
            Action::Claim(b) => format!("a tool marks {} used", name(b)),
            Action::SendDiscard(b) => format!("discard {} into the socket", name(b)),
            Action::Receive(c) => format!("daemon reads the socket of connection {c}"),
            Action::Target(b) => format!("copies go to {}", name(b)),
            Action::Evict(b) => format!("evict the replica in {}", name(b)),
            Action::Fetch(b) => format!("the policy would read {}", name(b)),
            Action::ElsewhereByCopy(b) => format!("mounted elsewhere by a copy: write {}", name(b)),
            Action::ElsewhereWrites(b) => format!("mounted elsewhere: write {}", name(b)),
            Action::ForeignWrites(b) => format!("something else writes {}", name(b)),
            Action::ForeignTakes(b) => format!("something else mounts, and writes {}", name(b)),
            Action::PowerLossTorn(seed) => format!("power fails, sectors kept by seed {seed}"),
            Action::PowerLoss(keep) => format!("power fails, kept: {keep:b}"),
            other => format!("{other:?}"),
        }
    }

    pub(super) fn describe_io(&self, i: usize) -> String {
        let Some(q) = self.queue.get(i) else { return "nothing".into() };
        let whose = match (q.own, q.io) {
            (false, Some(_)) => "the client's",
            (true, Some(_)) => "the daemon's",
            (false, None) => "a dead client's",
            (true, None) => "a dead daemon's",
        };
        let op = match q.op {
            IoOp::Read => "read",
            IoOp::Write { .. } => "write",
            IoOp::WriteZeroes { .. } => "zeroes",
            // Whose cannot be told.
            IoOp::Discard => return format!("a discard of {}", self.describe_place(q)),
            IoOp::Flush => return format!("{whose} flush"),
        };
        format!("{whose} {op} of {}", self.describe_place(q))
    }

    pub(super) fn describe_place(&self, q: &Queued) -> String {
        let tracked: Vec<&str> = (0..TRACKED)
            .filter(|&b| q.device == 0 && self.extent(b).overlaps(q.extent))
            .map(|b| NAMES[b])
            .collect();
        let size = self.grain().block() as u64;
        let first = (q.extent.offset() / size) as u32;
        let group = (0..self.plan().groups()).find(|g| q.device == 0 && self.plan().bitmap(*g) == first);
        match (!tracked.is_empty()).then(|| tracked.join(" and ")) {
            Some(names) => names,
            None if q.device == 0 && q.extent.overlaps(Extent::new(image::SUPERBLOCK, 1024)) => {
                "the superblock".into()
            }
            None if group == Some(self.group_of(R)) => "the bitmap".into(),
            None if group.is_some() => format!("the bitmap of group {}", group.unwrap_or_default()),
            None => match self.ground.table_blocks.iter().position(|b| *b == first) {
                Some(at) => match at * size as usize / 4096 {
                    page @ 0..2 => format!("header slot {page}"),
                    2 | 3 => "checksums".into(),
                    page => format!("table page {}", page - 4),
                },
                None => format!("block {first}"),
            },
        }
    }

    /// The device's queue in words.
    pub fn queue_in_words(&self) -> Vec<String> {
        (0..self.queue.len()).map(|i| self.describe_io(i)).collect()
    }
}
