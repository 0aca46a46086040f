//! What is counted and sampled on the way.

use fs2_block::{Extent, Nanos, Op, Sector};
use fs2_disk::{Activity, Energy, Service};
use fs2_engine::{Io, IoData, IoOp};

use super::{Replay, is_request, op_of};
use crate::replay::Run;
use crate::replay::samples::{Samples, kind_of};

impl Replay {
    /// From the next run on keeps what pictures are drawn from: so many accesses of each run, drawn evenly
    /// among all, and how the copies grew.
    pub fn keep_samples(&mut self, dots_max: usize) {
        self.dots_max = Some(dots_max);
    }

    /// The samples of the last run and the idle time after it so far.
    pub fn last_samples(&self) -> Option<&Samples> {
        self.samples.as_deref()
    }

    pub(super) fn begin_run(&mut self) {
        let before = std::mem::take(&mut self.run);
        let head = self.samples.as_ref().map_or(Sector(0), |s| s.head());
        self.samples = self.dots_max.map(|n| Box::new(Samples::new(self.now, head, n)));
        self.sample_moment(false);
        let power = self.disk.profile().power();
        self.energy = Energy::new(power);
        self.by_itself[1] = self.disk.activity(self.now);
        self.paid_joules = 0.0;
        if std::mem::take(&mut self.prepared) {
            self.run = Run {
                copy_sectors: before.copy_sectors,
                own_read_sectors: before.own_read_sectors,
                table_sectors: before.table_sectors,
                own_idle: before.own_idle,
                ..Run::default()
            };
        } else {
            self.own_energy = Energy::new(power);
            self.by_itself[0] = self.by_itself[1];
        }
        self.between_runs = false;
        self.copies_read = self.volume.stats().reads_from_replica;
        self.last_answer = self.now;
    }

    /// The run is over: what the drive did beside its accesses.
    pub(super) fn end_run(&mut self) {
        let did = self.disk.activity(self.now).since(&self.by_itself[1]);
        let accesses = self.run.split.total() + self.run.own.total();
        let rest = self.beside(self.run.elapsed.since(accesses), &did);
        self.run.idle_joules = rest.idle_joules() + rest.standby_joules() + rest.spin_up_joules();
        self.paid_joules = self.beside(Nanos(u64::MAX), &did).background_joules() - rest.background_joules();
        self.between_runs = true;
    }

    /// What the drive did by itself in a time that accesses left it.
    fn beside(&self, time: Nanos, did: &Activity) -> Energy {
        let mut energy = Energy::new(self.disk.profile().power());
        energy.finish(time, did);
        energy
    }

    pub(super) fn finish_sums(&mut self) {
        self.run.request_joules = self.energy.access_joules();
        self.run.own_joules = self.own_energy.access_joules();
        let did = self.disk.activity(self.now).since(&self.by_itself[0]);
        self.run.background_joules =
            self.beside(Nanos(u64::MAX), &did).background_joules() - self.paid_joules;
        self.run.replicas = self.volume.table().len() as u64;
        self.run.reads_from_copies = self.volume.stats().reads_from_replica - self.copies_read;
        self.sample_moment(true);
    }

    pub(super) fn sample_moment(&mut self, last: bool) {
        if let Some(samples) = &mut self.samples {
            let replicas = self.volume.table().len() as u64;
            samples.moment(self.now, replicas, self.volume.policy().hot_region(), last);
        }
    }

    /// The drive begins with an access of these bytes, or of several pieces of which this is the first and the
    /// last ends at `end`.
    pub(super) fn sample_access(&mut self, io: &Io, at: Extent, end: u64, service: &Service) {
        let Some(samples) = &mut self.samples else { return };
        let kind = match io.data.request() {
            Some(request) => {
                let asked = self.requests.get(request.0 as usize).map(|r| r.offset);
                kind_of(service.op, asked != Some(at.offset()))
            }
            _ if is_request(io) => kind_of(service.op, false),
            _ => None,
        };
        if !at.is_empty() {
            samples.access(service, at.sector(), Sector(end / fs2_block::SECTOR_BYTES), kind);
        }
    }

    pub(super) fn count(&mut self, io: &Io, service: &Service) {
        let sectors = io.extent.sectors();
        let run = &mut self.run;
        if is_request(io) {
            self.energy.add(service);
            run.sectors += sectors;
            run.split.add(service);
            run.access.add(service.total());
            if io.op == IoOp::Read {
                run.reads_split.add(service);
                run.access_reads.add(service.total());
            }
            return;
        }
        if io.op == IoOp::Flush {
            return;
        }
        self.count_own(op_of(io), sectors, service, matches!(io.data, IoData::Unseen));
    }

    pub(super) fn count_own(&mut self, op: Op, sectors: u64, service: &Service, copy: bool) {
        let run = &mut self.run;
        self.own_energy.add(service);
        if self.between_runs {
            run.own_idle.add(service)
        } else {
            run.own.add(service)
        }
        match op {
            Op::Write if copy => run.copy_sectors += sectors,
            Op::Write => run.table_sectors += sectors,
            Op::Read => run.own_read_sectors += sectors,
            _ => {}
        }
    }
}
