//! Between the engine and the device: the queue, and what happens when the device does something.

use super::*;

impl World {
    /// Takes everything the engine has to say.
    pub(super) fn pump(&mut self) -> Result<(), Violation> {
        loop {
            self.take_replies()?;
            let Some(volume) = &mut self.volume else { return Ok(()) };
            if self.queue.len() >= self.setup.slots {
                return Ok(());
            }
            match volume.poll_dispatch(NOW) {
                Some(io) => self.enqueue(io),
                None if volume.detached().is_some() => {
                    self.volume = None;
                    self.policy = policy(self.plan());
                    self.hang_up();
                    return Ok(());
                }
                // A dispatch that needs no I/O answers at once.
                None => return self.take_replies(),
            }
        }
    }

    pub(super) fn take_replies(&mut self) -> Result<(), Violation> {
        while let Some(reply) = self.volume.as_mut().and_then(Volume::poll_reply) {
            self.answer(reply.request.0, reply.result)?;
        }
        Ok(())
    }

    pub(super) fn background(&mut self) {
        if self.queue.len() >= self.setup.slots {
            return;
        }
        self.policy.eager = true;
        self.set_policy();
        let io = self.volume.as_mut().and_then(|v| v.poll_dispatch(NOW));
        self.policy.eager = false;
        self.set_policy();
        if let Some(io) = io {
            self.enqueue(io);
        }
    }

    pub(super) fn enqueue(&mut self, io: Io) {
        let device = usize::from(io.target == Target::Table);
        let asked = self.asked(&io.data);
        let client = io.data.request().map(|id| id.0);
        // A discard has no memory of its own; a client's never lands on a live block either.
        let own = client.is_none() && !matches!(io.op, IoOp::WriteZeroes { .. } | IoOp::Flush);
        let bytes: Arc<[u8]> = match (&io.op, io.data) {
            (IoOp::Write { .. }, IoData::Engine(bytes)) => bytes,
            (IoOp::Write { .. }, IoData::Client(id)) => self.buffers[&id.0].clone(),
            _ => Arc::new([]),
        };
        let covers = self.devices[device].flush_covers();
        let covers = if io.op == IoOp::Flush { covers } else { 0 };
        self.queue.push(Queued {
            io: Some(io.id),
            own,
            device,
            op: io.op,
            extent: io.extent,
            client,
            asked,
            bytes,
            covers,
            excused: false,
        });
    }

    /// Where in the whole blocks that are read for a request lies what it asks for.
    fn asked(&self, data: &IoData) -> Option<Range<usize>> {
        let IoData::Around { request, lead } = data else { return None };
        let lead = *lead as usize;
        // Nobody looks at what is read for a client that is gone.
        let len = self.kernel.outstanding.get(&request.0).map_or(0, |o| self.request(o.ask).1.len());
        Some(lead..lead + len as usize)
    }

    /// The device does, or fails, an I/O.
    pub(super) fn land(&mut self, index: usize, fails: bool) -> Result<(), Violation> {
        let q = self.queue.remove(index);
        let zeroes;
        let bytes = match q.op {
            IoOp::WriteZeroes { .. } | IoOp::Discard => {
                zeroes = vec![0; q.extent.len() as usize];
                Some(&zeroes[..])
            }
            IoOp::Write { .. } => Some(&q.bytes[..]),
            _ => None,
        };
        let mut read = Vec::new();
        match (q.op, bytes) {
            (IoOp::Flush, _) if fails => self.devices[q.device].flush_failed(q.covers),
            (IoOp::Flush, _) => {
                self.flushes += 1;
                self.devices[q.device].flushed(q.covers);
            }
            _ if fails => {}
            (IoOp::Read, _) => {
                read = self.devices[q.device].read(q.extent);
                self.masked(&q, &mut read);
            }
            (op, Some(bytes)) => self.landed(&q, op, bytes)?,
            (_, None) => {}
        }
        if let (Some(id), IoOp::Read, false) = (q.client, q.op, fails) {
            let asked = q.asked.clone().unwrap_or(0..read.len());
            self.buffers.insert(id, read[asked].into());
        }
        if fails {
            self.fails_to_read(&q);
        }
        if let (Some(io), Some(volume)) = (q.io, &mut self.volume) {
            let outcome = if fails { Outcome::failed(5) } else { Outcome { result: Ok(()), data: &read } };
            volume.complete(NOW, io, outcome);
        }
        Ok(())
    }

    /// The device fails an I/O: is it a client's read?
    fn fails_to_read(&mut self, q: &Queued) {
        let outstanding = q.client.and_then(|id| Some((id, self.kernel.outstanding.get(&id)?.ask)));
        let Some((id, Ask::Read(b) | Ask::ReadPart(b, _))) = outstanding else { return };
        let of_block = q.extent.overlaps(self.extent(b));
        let stood = self.trusted_copies(b);
        let unread = self.unread.entry(id).or_default();
        unread.failed.push(q.extent);
        if of_block {
            unread.stood = stood;
        }
    }

    fn trusted_copies(&self, b: Tracked) -> Vec<BlockNo> {
        self.volume.as_ref().map_or(Vec::new(), |v| trusted_copies(v, BlockNo(self.blocks[b])))
    }

    /// A read failed: no copy that could have answered it was left untried.
    fn judge_unread(&self, ask: Ask, unread: Option<Unread>) -> Result<(), Violation> {
        let (Ask::Read(b) | Ask::ReadPart(b, _), Some(unread)) = (ask, unread) else { return Ok(()) };
        let untried = |c: &BlockNo| {
            let here = c.extent(self.grain().size);
            unread.stood.contains(c) && !unread.failed.iter().any(|f| f.overlaps(here))
        };
        match self.trusted_copies(b).iter().find(|c| untried(c)) {
            Some(c) => {
                Err(violation(Oracle::Answer, format!("{ask:?} failed, and {c} holds what it asked for")))
            }
            None => Ok(()),
        }
    }

    /// [`Plant::ReplicaMasked`] lives here: the engine has no way to answer but from the device.
    pub(super) fn masked(&self, q: &Queued, read: &mut [u8]) {
        let holds = |v: &Volume| {
            let block = BlockNo((q.extent.offset() / self.grain().block() as u64) as u32);
            v.table().by_replica(block).is_some()
        };
        if self.planted(Plant::ReplicaMasked)
            && q.client.is_some_and(|id| {
                let asked = self.kernel.outstanding.get(&id).map(|o| o.ask.blocks());
                asked.is_some_and(|mut all| all.any(|b| self.extent(b) == q.extent))
            })
            && self.volume.as_ref().is_some_and(holds)
        {
            read.fill(0);
        }
    }

    pub(super) fn landed(&mut self, q: &Queued, op: IoOp, bytes: &[u8]) -> Result<(), Violation> {
        let tracked: Vec<Tracked> =
            (0..TRACKED).filter(|&b| q.device == 0 && self.extent(b).overlaps(q.extent)).collect();
        for &b in &tracked {
            if q.own && !q.excused && self.kernel.is_live(b) {
                let what = if op == IoOp::Discard { "a discard" } else { "the daemon's write" };
                return Err(violation(Oracle::Live, format!("{what} lands on {}, which is live", NAMES[b])));
            }
        }
        let of_table = self.ground.table_blocks.iter().any(|b| {
            let here = self.extent_of_block(*b);
            usize::from(self.ground.apart) == q.device && here.overlaps(q.extent)
        });
        // With a rule broken on purpose its consequences are looked for, not the breach itself.
        if self.setup.plants.is_empty() && !(q.own && of_table) && q.io.is_some() {
            self.judge_erased()?;
        }
        if matches!(op, IoOp::Write { fua: true } | IoOp::WriteZeroes { fua: true, .. }) {
            self.devices[q.device].write_through(q.extent.offset(), bytes);
        } else {
            self.devices[q.device].write_as(q.extent.offset(), bytes, q.own);
        }
        for b in tracked {
            if !q.own {
                if TABLE.contains(&b) {
                    self.kernel.allocate(b);
                }
                if self.kernel.is_allocated(b) {
                    self.kernel.landed |= 1 << b;
                }
            }
            let now = self.devices[0].block(self.blocks[b]).cells();
            self.kernel.content_changed(b, now);
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, id: u64, result: Result<(), i32>) -> Result<(), Violation> {
        let buffer = self.buffers.remove(&id);
        let grain = self.grain();
        let size = grain.block();
        let cells = |b: &[u8]| (b.len() == size).then(|| Content::from_bytes(b, grain).cells()).flatten();
        let data = match self.kernel.outstanding.get(&id).map(|o| o.ask) {
            Some(Ask::ReadPart(..)) => {
                let value = buffer.as_deref().and_then(Content::part_from_bytes);
                vec![value.map(|v| [v; 2])]
            }
            _ => buffer.iter().flat_map(|b| b.chunks(size)).map(cells).collect(),
        };
        let ask = self.kernel.answered(id, result.is_ok(), &data).map_err(|Wrong(what)| {
            let oracle = if what.starts_with("an answer") { Oracle::Answer } else { Oracle::Read };
            violation(oracle, what)
        })?;
        let unread = self.unread.remove(&id);
        if let Err(errno) = result {
            if !self.failed {
                return Err(violation(Oracle::Answer, format!("{ask:?} failed with {errno}")));
            }
            if let Some(ask) = ask {
                self.judge_unread(ask, unread)?;
            }
        }
        match (ask, self.claiming) {
            (Some(Ask::Bitmap(..)), Some(b)) => {
                self.kernel.claim(b);
                self.claiming = None;
            }
            (Some(Ask::Super { mounts, role, .. }), _) if result.is_ok() => {
                self.superblock_written(mounts, role)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Lets the device do everything, in order, until nothing is left.
    ///
    /// # Errors
    /// What must never happen.
    pub fn drain(&mut self) -> Result<(), Violation> {
        self.pump()?;
        loop {
            if !self.deliver() {
                if !self.queue.is_empty() {
                    self.land(0, false)?;
                } else if !self.tool_goes_on()? {
                    break;
                }
            }
            self.pump()?;
        }
        self.part_with_the_left();
        self.judge_trust()
    }
}
