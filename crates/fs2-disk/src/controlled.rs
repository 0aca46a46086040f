//! Accesses of a drive whose electronics are known in detail.
//!
//! A read's data crosses the bus while it is read, each sector once it has been read whole; a
//! write's crosses it before the head gets there. Which overhead applies depends on the command
//! before. So are the drives described that were taken apart for DiskSim (Worthington, Ganger et
//! al., "On-line extraction of SCSI disk drive parameters", 1995; DiskSim's manual, version 4.0).

use fs2_block::{Nanos, Op};

use crate::cache::Found;
use crate::controller::ControllerSpec;
use crate::disk::{Disk, Effect, Medium, Task, micros, times};
use crate::geometry::Geometry;
use crate::service::Service;

/// A [`ControllerSpec`] in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Controller {
    read_hit: [Nanos; 2],
    read_miss: [Nanos; 2],
    pub(crate) write: [Nanos; 2],
    pub(crate) write_bus: Nanos,
    write_seek_min: Nanos,
    reconnect: Nanos,
    read_water: f64,
    water_by_request: bool,
    pub(crate) complete: [Nanos; 2],
    zero_latency_read: bool,
    zero_latency_write: bool,
    read_any_free: bool,
    ahead_on_hit: bool,
    pub(crate) hits_on_written: bool,
}

impl Controller {
    pub(crate) fn new(spec: &ControllerSpec) -> Controller {
        Controller {
            read_hit: spec.read_hit_us.map(micros),
            read_miss: spec.read_miss_us.map(micros),
            write: spec.write_us.map(micros),
            write_bus: micros(spec.write_bus_us),
            write_seek_min: micros(spec.write_seek_min_us),
            reconnect: micros(spec.reconnect_us),
            read_water: spec.read_water,
            water_by_request: spec.water_by_request,
            complete: spec.complete_us.map(micros),
            zero_latency_read: spec.zero_latency_read,
            zero_latency_write: spec.zero_latency_write,
            read_any_free: spec.read_any_free,
            ahead_on_hit: spec.ahead_on_hit,
            hits_on_written: spec.hits_on_written,
        }
    }
}

/// How sectors pass the head that has just arrived at their track.
struct Passing {
    /// Until the first of them begins to pass.
    rotation: Nanos,
    /// From there until all have passed.
    media: Nanos,
    /// From there until the first of them has passed.
    first: Nanos,
    /// From there until all have crossed the bus too.
    crossed: Nanos,
    /// From there until the sector after the last begins to pass.
    next: Nanos,
}

impl Disk {
    /// As [`Disk::plan`], for reads and writes of at least a sector.
    pub(crate) fn plan_controlled(&self, g: &Geometry, c: &Controller, task: &Task) -> (Service, Effect) {
        let Task { start, op, first, end, .. } = *task;
        let after = usize::from(!self.after_read);
        if op != Op::Read {
            return self.plan_controlled_write(g, c, task);
        }
        let bus = times(end - first, self.fixed.bus_fixed);
        let mut s = Service {
            op,
            start,
            overhead: c.read_hit[after],
            seek: Nanos(0),
            rotation: Nanos(0),
            transfer: bus + c.complete[0],
            cache_hit: true,
        };
        match (self.cache.find(g, task.ahead, first, end), task.ahead) {
            (Found::All { segment, stopped_here }, _) => {
                let resume = task.ahead.filter(|_| stopped_here && c.ahead_on_hit).map(|a| {
                    let angle = g.angle_at(start).wrapping_add(task.phase);
                    start + g.rotation_from(angle, a.filled)
                });
                let further = !stopped_here || c.ahead_on_hit;
                (s, Effect::Answered { ahead: task.ahead, segment, start: first, end, resume, further })
            }
            (Found::Coming { segment }, Some(a)) => {
                let begin = start + s.overhead;
                let passed = a.since + g.transfer(a.from, end - a.from) + times(1, self.fixed.bus_fixed);
                s.transfer = passed.max(begin + bus).since(begin) + c.complete[0];
                (
                    s,
                    Effect::Answered {
                        ahead: task.ahead,
                        segment,
                        start: first,
                        end,
                        resume: None,
                        further: true,
                    },
                )
            }
            (Found::Part { segment, rest }, _) => {
                // What is there crosses the bus while the arm moves.
                let crossed = start + s.overhead + bus;
                self.plan_controlled_read(g, c, task, rest, Some(segment), crossed)
            }
            _ => self.plan_controlled_read(g, c, task, first, None, Nanos(0)),
        }
    }

    fn plan_controlled_read(
        &self,
        g: &Geometry,
        c: &Controller,
        task: &Task,
        rest: u64,
        reuse: Option<usize>,
        crossed: Nanos,
    ) -> (Service, Effect) {
        let Task { start, op, first, end, phase, ahead } = *task;
        let after = usize::from(!self.after_read);
        let needed = (start + c.read_miss[after]).max(self.media_free);
        let begin = self.spinning_at(needed);
        let seek = self.seek_to(g, ahead, op, rest);
        let landed = begin + seek;
        let angle = g.angle_at(landed).wrapping_add(phase);
        let p = self.passing(g, c.zero_latency_read, angle, rest, end - rest);
        // The bus is taken again once there is enough to send.
        let enough = self.enough_to_send(c, end - rest);
        let ready = if enough > 1 { g.transfer(rest, enough) } else { p.first };
        let crosses = p.crossed.max(ready + c.reconnect + times(end - rest, self.fixed.bus_fixed));
        let from = landed + p.rotation;
        let done = (from + crosses).max(crossed) + c.complete[0];
        let service = Service {
            op,
            start,
            overhead: begin.since(start),
            seek,
            rotation: p.rotation,
            transfer: done.since(from),
            cache_hit: false,
        };
        let got_from = match reuse {
            None if c.read_any_free => self.free_before(g, angle, first),
            _ => first,
        };
        let effect = Effect::Read {
            ahead,
            reuse,
            start: got_from,
            end,
            since: from + p.next,
            medium: Medium { begin: needed, seek, rotation: p.rotation, transfer: p.media },
        };
        (service, effect)
    }

    /// Sectors of a read of so many that must have been read before the first crosses the bus.
    fn enough_to_send(&self, c: &Controller, sectors: u64) -> u64 {
        let whole = if c.water_by_request { sectors.min(self.cache.size()) } else { self.cache.size() };
        ((whole as f64 * c.read_water) as u64).clamp(1, sectors)
    }

    fn plan_controlled_write(&self, g: &Geometry, c: &Controller, task: &Task) -> (Service, Effect) {
        let Task { start, op, first, end, ahead, .. } = *task;
        let ready = start + c.write[usize::from(!self.after_read)];
        let (medium, done) = self.write_to_medium(g, task, ready, ready + c.write_bus);
        let from = self.spinning_at(medium.begin);
        let crossed = ready + c.write_bus + times(end - first, self.fixed.bus_write_fixed);
        let end_at = done.max(crossed) + c.complete[1];
        let service = Service {
            op,
            start,
            overhead: from.since(start),
            seek: medium.seek,
            rotation: medium.rotation,
            transfer: end_at.since(from + medium.seek + medium.rotation),
            cache_hit: false,
        };
        (service, Effect::Written { ahead, start: first, end, medium })
    }

    /// Writes `task` to the platters from `begin` on, its data having begun to cross the bus at
    /// `bus_from`: what the medium takes, and when it is done.
    pub(crate) fn write_to_medium(
        &self,
        g: &Geometry,
        task: &Task,
        begin: Nanos,
        bus_from: Nanos,
    ) -> (Medium, Nanos) {
        let Task { op, first, end, phase, ahead, .. } = *task;
        let needed = begin.max(self.media_free);
        let seek_min = self.fixed.controller.as_ref().map_or(Nanos(0), |c| c.write_seek_min);
        let seek = self.seek_to(g, ahead, op, first).max(seek_min);
        let landed = self.spinning_at(needed) + seek;
        let angle = g.angle_at(landed).wrapping_add(phase);
        let zero_latency = self.fixed.controller.as_ref().is_some_and(|c| c.zero_latency_write);
        let mut p = self.passing(g, zero_latency, angle, first, end - first);
        if p.media != g.turn() {
            p.media = g.transfer_settling(first, end - first, self.settle_ns(op));
        }
        // What is written must have crossed the bus. Where the first sector has not, the head waits
        // whole turns for it; where it is a later one, for that one.
        let turns = |late: Nanos| Nanos(late.0.div_ceil(g.turn().0).saturating_mul(g.turn().0));
        let in_buffer = |n: u64| bus_from + times(n, self.fixed.bus_write_fixed);
        p.rotation += turns(in_buffer(1).since(landed + p.rotation));
        let last = landed + p.rotation + p.media - g.transfer(end - 1, 1);
        p.media += turns(in_buffer(end - first).since(last));
        let medium = Medium { begin: needed, seek, rotation: p.rotation, transfer: p.media };
        (medium, landed + p.rotation + p.media)
    }

    fn passing(&self, g: &Geometry, zero_latency: bool, angle: u64, first: u64, count: u64) -> Passing {
        let bus = self.fixed.bus_fixed;
        if zero_latency
            && let Some(spot) = g.platter.as_ref().map(|p| p.locate(first))
            && spot.run >= count
        {
            // A head within the sectors begins with the next whole one and is done a turn later.
            let within = angle.wrapping_sub(spot.angle);
            let sector = within.div_ceil(spot.unit);
            if within > 0 && sector < count {
                let rotation = g.time_of(sector * spot.unit - within);
                let turn = g.turn();
                let one = g.time_of(spot.unit);
                return Passing {
                    rotation,
                    media: turn,
                    first: one,
                    crossed: (turn + times(1, bus)).max(one + times(count, bus)),
                    next: turn + g.time_of((count - sector) * spot.unit),
                };
            }
        }
        let (media, crossed) = g.delivery(first, count, bus);
        let one = g.transfer(first, 1);
        Passing { rotation: g.rotation_from(angle, first), media, first: one, crossed, next: media }
    }

    /// The first sector kept of those that pass on the track before `first`, for a head that arrives
    /// there at `angle`.
    fn free_before(&self, g: &Geometry, angle: u64, first: u64) -> u64 {
        let Some(p) = &g.platter else { return first };
        let track = p.track_first(first);
        let spot = p.locate(first);
        let to_go = spot.angle.wrapping_sub(angle);
        // Whole sectors that pass before it.
        (first - (to_go / spot.unit).min(first - track)).max(track)
    }
}
