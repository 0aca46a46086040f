//! A served volume as the control socket tells of it.

use fs2_block::{Permille, SECTOR_BYTES};
use fs2_control::{
    AccessMs, Control, DetachInfo, EnergyJ, Failed, HotRegion, Liveness, Marks, Parts, PauseWork,
    ReplicaGate, Sample, Source, Status, TotalS, WatermarkState, quoted,
};
use fs2_engine::{AccessKind, DetachReport, PolicyKind, Standing};
use fs2_ext2::uuid_text;
use fs2_store::ModelTotals;

use crate::daemon::Served;

/// How the volume is doing. `frontend` is its name and place.
pub(crate) fn status_of(served: &Served, frontend: &str, detach: Option<&DetachReport>) -> Status {
    let modelled = served.server.store().modelled();
    let device = quoted(&served.device);
    let table = served.table.as_deref().map(quoted);
    let mut status = served.server.with_volume(|v| {
        let s = v.stats();
        let (liveness, remedy) = match v.standing() {
            Standing::Active => (Liveness::Active, None),
            Standing::Frozen(why) => {
                let table = table.as_deref().map_or(String::new(), |table| format!("--table {table} "));
                let remedy = format!("unmount, then chkfs2 -f -p {table}{device}");
                (Liveness::Frozen(why.to_string()), Some(remedy))
            }
            Standing::Inactive(why) => {
                (Liveness::Inactive(why.to_string()), why.remedy(&device, table.as_deref()))
            }
        };
        let copies = liveness == Liveness::Active
            && !matches!(v.policy().kind(), PolicyKind::None | PolicyKind::Static);
        let watermark_state = match v.watermark_state() {
            _ if !copies => WatermarkState::Off,
            fs2_engine::WatermarkState::Copying if v.is_host_short() => WatermarkState::HostShort,
            fs2_engine::WatermarkState::Copying => WatermarkState::Copying,
            fs2_engine::WatermarkState::Suspended => WatermarkState::Suspended,
            fs2_engine::WatermarkState::Low => WatermarkState::Low,
            fs2_engine::WatermarkState::Critical => WatermarkState::Critical,
        };
        let hot = v.policy().hot_region().filter(|r| !r.is_empty());
        let reads = s.read_access.count() > 0;
        let ms = |n: u128, count: u64| (count > 0).then(|| n as f64 / count as f64 / 1e6);
        let m = &s.modelled;
        let s_of = |ns: u128| ns as f64 / 1e9;
        let share = |p: Permille| f64::from(p.get()) / 1000.0;
        let marks = v.config().watermarks;
        let parts = |kind| s.parts.counts(kind).to_vec();
        let pauses = v.pause_work();
        let gate = v.replica_gate().unwrap_or_default();
        let block_bytes = v.block_size().bytes();
        Status {
            volume_bytes: v.size_bytes(),
            block_bytes,
            watermarks: Marks {
                high: share(marks.high()),
                low: share(marks.low()),
                critical: share(marks.critical()),
            },
            space_share: share(v.config().space),
            head_block: v.head().last().0 / (u64::from(block_bytes) / SECTOR_BYTES),
            parts: Parts {
                reads: parts(AccessKind::Read),
                replica_reads: parts(AccessKind::ReplicaRead),
                writes: parts(AccessKind::Write),
                own: parts(AccessKind::Own),
            },
            verified: s.verified,
            refuted: s.refuted,
            read_bytes: s.read_bytes,
            write_bytes: s.write_bytes,
            requests_waiting: v.requests_waiting() as u64,
            ios_in_flight: v.ios_in_flight() as u64,
            copy_errors: s.copy_errors,
            pause_work: PauseWork {
                allowed: pauses.allowed,
                cost_ms: pauses.cost_ms,
                limit_ms: if copies { pauses.limit_ms } else { 0.0 },
            },
            replica_gate: ReplicaGate { closed_for: gate.closed_for, closings: gate.closings },
            total_s: TotalS {
                reads: s.read_access.count(),
                read: s.read_access.total().as_secs_f64(),
                read_wait: s.read_wait.as_secs_f64(),
                writes: s.write_access.count(),
                write: s.write_access.total().as_secs_f64(),
                accesses: m.count,
                seek: s_of(m.seek),
                rotation: s_of(m.rotation),
                transfer: s_of(m.transfer),
                saved: s.saved.as_secs_f64(),
            },
            control: control_of(&v.control()),
            liveness,
            remedy,
            policy: v.policy().kind().to_string(),
            free_share: f64::from(v.free_share().get()) / 1000.0,
            watermark_state,
            discard_seen: s.discards > 0,
            hot_region: hot
                .map(|r| HotRegion { first_block: r.start().into(), last_block: u64::from(r.end()) - 1 }),
            replicas: v.table().len() as u64,
            replica_bytes: v.table().len() as u64 * u64::from(v.block_size().bytes()),
            replicas_unverified: v.table().unverified_count() as u64,
            reads: s.reads,
            reads_from_replica: s.reads_from_replica,
            writes: s.writes,
            discards: s.discards,
            flushes: s.flushes,
            failed: Failed {
                reads: s.failed.reads,
                writes: s.failed.writes,
                flushes: s.failed.flushes,
                last: s.failed.last.map(|f| f.to_string()),
                refuses_changes: v.refuses_changes().map(str::to_owned),
            },
            invalidated: s.invalidated,
            reclaimed: s.reclaimed,
            copies_waiting: v.log_blocks() as u64,
            copies_written: s.copies_written,
            copies_void: s.copies_void,
            hash_mismatches: s.hash_mismatches,
            replica_errors: s.replica_errors,
            original_errors: s.original_errors,
            table_pages_written: s.table_pages_written,
            table_errors: s.table_errors,
            clients_cut: served.server.clients_cut(),
            access_ms: AccessMs {
                mean: reads.then(|| s.read_access.mean().as_millis_f64()),
                p99: reads.then(|| s.read_access.quantile(0.99).as_millis_f64()),
                wait: reads.then(|| s.read_wait.as_millis_f64() / s.read_access.count() as f64),
                seek: ms(m.seek, m.count),
                rotation: ms(m.rotation, m.count),
                transfer: ms(m.transfer, m.count),
                accesses: m.count,
                source: match (&served.drive, m.count) {
                    (Some(drive), 1..) => Source::Modelled(drive.clone()),
                    _ => Source::None,
                },
            },
            ..Status::default()
        }
    });
    if let (Some(totals), Some(drive)) = (&modelled, &served.drive) {
        simulated(&mut status, totals, drive);
    }
    status.volume = served.device.display().to_string();
    status.uuid = served.report.uuid.as_ref().map(uuid_text).unwrap_or_default();
    status.frontend = frontend.to_owned();
    status.drive = match (&served.drive, served.modelled) {
        (Some(d), true) => format!("{d} (simulated)"),
        (Some(d), false) => d.clone(),
        (None, _) => "unknown".into(),
    };
    status.data_path = served.data_path.clone();
    status.uptime_s = served.server.now().as_secs_f64();
    status.trace = served.trace_path();
    status.trace_failed = served.trace_failed();
    status.detach = detach.map(|d| DetachInfo {
        marked: d.marked,
        why_not: d.why_not.clone(),
        replicas: d.replicas as u64,
    });
    status.pid = std::process::id();
    status.version = env!("CARGO_PKG_VERSION").into();
    status
}

fn control_of(c: &fs2_engine::Control) -> Control {
    let sample = |s: &fs2_engine::Sample| Sample { reads: s.reads, mean_ms: s.mean_ms, error_ms: s.error_ms };
    Control { every: c.every.into(), copies: sample(&c.chosen), originals: sample(&c.home) }
}

/// The simulated drive knows what its accesses were made of, the engine's included.
fn simulated(status: &mut Status, t: &ModelTotals, drive: &str) {
    let n = t.reads + t.writes;
    let ms = |ns: u64| (n > 0).then(|| ns as f64 / n as f64 / 1e6);
    let access = &mut status.access_ms;
    access.seek = ms(t.seek_ns);
    access.rotation = ms(t.rotation_ns);
    access.transfer = ms(t.transfer_ns + t.overhead_ns);
    access.accesses = n;
    let total = &mut status.total_s;
    total.accesses = n;
    total.seek = t.seek_ns as f64 / 1e9;
    total.rotation = t.rotation_ns as f64 / 1e9;
    total.transfer = (t.transfer_ns + t.overhead_ns) as f64 / 1e9;
    access.source = Source::Simulated(drive.into());
    status.energy_j = EnergyJ { value: Some(t.energy_joules), source: Source::Simulated(drive.into()) };
}
