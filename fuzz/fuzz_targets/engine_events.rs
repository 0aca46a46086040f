//! Any requests, completions and times at the engine: every invariant holds after each event, every
//! request is answered once, and a block that nothing was written to reads as it did.
#![no_main]

use std::collections::BTreeMap;

use fs2_block::{ConnectionId, Extent, Flags, Nanos, Op, Permille, ReadAt, Request, RequestId, WriteAt};
use fs2_engine::offline::{CreateOptions, Devices, create};
use fs2_engine::{AttachOptions, DiscardMode, EngineConfig, Io, IoData, IoOp, Outcome, PolicyKind, Volume};
use fs2_sim::model::image::{BLOCKS, Shape, make};
use libfuzzer_sys::fuzz_target;

struct Client {
    request: Request,
    buffer: Vec<u8>,
}

fuzz_target!(|data: &[u8]| {
    let Some((&setup, events)) = data.split_first() else { return };
    let mut disk = make(Shape::Plain, &[], &[]);
    let space = Permille::new(50).expect("below 1000");
    let options = CreateOptions { space, volume_id: 7, now_secs: 1 };
    create(&mut Devices::new(&mut disk, None), &options, &mut |_| {}).expect("the image can be converted");
    let config = EngineConfig {
        policy: if setup & 1 == 0 { PolicyKind::Torture } else { PolicyKind::Fs2 },
        discard: if setup & 2 == 0 { DiscardMode::Memory } else { DiscardMode::Pass },
        punch: setup & 4 != 0,
        paranoid: true,
        idle_after: Nanos(0),
        ..EngineConfig::default()
    };
    let (mut volume, _) = Volume::attach(&mut disk, None, config, &AttachOptions::default()).expect("it attaches");
    let (mut clients, mut in_flight): (BTreeMap<u64, Client>, Vec<Io>) = Default::default();
    let (mut now, mut next) = (Nanos(0), 0u64);
    for e in events.chunks_exact(4) {
        now += Nanos::from_millis(u64::from(e[3] % 16) * 50);
        match e[0] % 8 {
            0..=3 => {
                let op = [Op::Read, Op::Write, Op::WriteZeroes, Op::Discard, Op::Punch, Op::Flush][usize::from(e[0] / 8 % 6)];
                // Anywhere: metadata, table and data; whole blocks and parts.
                let offset = u64::from(u16::from_le_bytes([e[1], e[2]])) * 512 % (u64::from(BLOCKS) * 1024);
                let len = (u64::from(e[3] / 16) + 1) * 512;
                let extent = if op == Op::Flush { Extent::default() } else { Extent::new(offset, len) };
                let request = Request {
                    id: RequestId(next),
                    connection: ConnectionId(u32::from(e[3] % 2)),
                    op,
                    extent,
                    flags: Flags { fua: e[1] % 16 == 0, no_hole: false },
                };
                let buffer = vec![e[2]; if op == Op::Flush { 0 } else { len as usize }];
                volume.submit(now, request, (op == Op::Write).then_some(&buffer[..]));
                clients.insert(next, Client { request, buffer });
                next += 1;
            }
            4 | 5 => {
                if let Some(io) = volume.poll_dispatch(now) {
                    in_flight.push(io);
                }
            }
            6 if !in_flight.is_empty() => {
                let io = in_flight.swap_remove(usize::from(e[1]) % in_flight.len());
                // Now and then the device fails.
                finish(&mut volume, &mut disk, &mut clients, now, &io, e[2] == 255);
            }
            _ => volume.handle_timeout(now),
        }
        answers(&mut volume, &mut clients);
    }
    // Everything that was asked ends, and the session does.
    volume.begin_detach(now);
    for _ in 0..100_000 {
        while let Some(io) = volume.poll_dispatch(now) {
            in_flight.push(io);
        }
        answers(&mut volume, &mut clients);
        match in_flight.pop() {
            Some(io) => finish(&mut volume, &mut disk, &mut clients, now, &io, false),
            None if volume.detached().is_some() => break,
            None => panic!("nothing in flight, and not detached"),
        }
    }
    answers(&mut volume, &mut clients);
    assert!(clients.is_empty(), "{} requests were never answered", clients.len());
});

fn finish(v: &mut Volume, disk: &mut Vec<u8>, clients: &mut BTreeMap<u64, Client>, now: Nanos, io: &Io, fail: bool) {
    if fail {
        return v.complete(now, io.id, Outcome::failed(fs2_engine::EIO));
    }
    let (at, len) = (io.extent.offset(), io.extent.len() as usize);
    match (&io.op, &io.data) {
        (IoOp::Read, _) => {
            let mut bytes = vec![0; len];
            disk.read_at(at, &mut bytes).expect("within the volume");
            v.complete(now, io.id, Outcome::read(&bytes));
        }
        (IoOp::Write { .. }, IoData::Client(id)) => {
            disk.write_at(at, &clients[&id.0].buffer).expect("within the volume");
            v.complete(now, io.id, Outcome::done());
        }
        (IoOp::Write { .. }, IoData::Engine(bytes)) => {
            disk.write_at(at, bytes).expect("within the volume");
            v.complete(now, io.id, Outcome::done());
        }
        (IoOp::WriteZeroes { .. }, _) => {
            disk.write_zeroes(at, len as u64).expect("within the volume");
            v.complete(now, io.id, Outcome::done());
        }
        _ => v.complete(now, io.id, Outcome::done()),
    }
}

fn answers(volume: &mut Volume, clients: &mut BTreeMap<u64, Client>) {
    while let Some(reply) = volume.poll_reply() {
        let client = clients.remove(&reply.request.0).expect("a request is answered once");
        assert_eq!(client.request.id, reply.request);
    }
}
