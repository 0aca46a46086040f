//! What a failed flush may have lost is remembered outside the process before anybody is answered: a daemon that takes over gets no error
//! from the system for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fs2_block::{Extent, Flags, Op};
use fs2_engine::{AttachOptions, EngineConfig, Volume};
use fs2_store::{AlignedBuf, Fault, FaultKind, FaultStore, MemStore, Store, StoreIo};
use fs2d::server::{Drive, Server};
use fs2d::service::{ClientRequest, Service};

#[test]
fn a_failed_flush_is_remembered_and_a_failed_write_is_not() {
    // A flush, and a write that is one as well.
    for (op, fua) in [(Op::Flush, false), (Op::Write, true)] {
        for rotational in [false, true] {
            let store = Arc::new(FaultStore::new(MemStore::new(1 << 20)));
            let as_store: Arc<dyn Store> = store.clone();
            let (options, config) = (AttachOptions::default(), EngineConfig::default());
            let (volume, _) = Volume::attach(&mut StoreIo::new(&*as_store), None, config, &options).unwrap();
            let drive = Drive { depth: 2, time_scale: 1.0, host_reserve: 0, rotational };
            let server = Server::start(volume, as_store, None, drive, "failing".into()).unwrap();
            let told = Arc::new(AtomicU32::new(0));
            let tell = told.clone();
            server.tell_of_lost_writes(move || {
                tell.fetch_add(1, Ordering::SeqCst);
            });
            let connection = server.connect();
            let call = |op, fua| {
                let (extent, buffer) = match op {
                    Op::Flush => (Extent::default(), AlignedBuf::zeroed(0)),
                    _ => (Extent::new(4096, 4096), AlignedBuf::zeroed(4096)),
                };
                let flags = Flags { fua, ..Flags::default() };
                server.call(ClientRequest { connection, op, extent, flags, buffer }).1.is_ok()
            };
            store.plan(Fault::on(&[Op::Write], FaultKind::Error(libc::EIO)).times(1));
            assert!(!call(Op::Write, false) && call(Op::Write, false) && call(Op::Flush, false));
            assert_eq!(told.load(Ordering::SeqCst), 0, "a flush tells of what was lost");
            let fails: &[Op] = if fua { &[Op::Write] } else { &[Op::Flush] };
            store.plan(Fault::on(fails, FaultKind::Error(libc::EIO)).times(1));
            assert!(!call(op, fua));
            assert_eq!(told.load(Ordering::SeqCst), 1, "{op:?}, rotational {rotational}");
            assert!(!call(Op::Write, false) && !call(Op::Flush, false) && call(Op::Read, false));
            server.detach();
        }
    }
}

/// A full file system below a sparse image refused one write with force unit access, and the volume refused all that came after. What a
/// flush says of it is of an earlier write.
#[test]
fn a_write_that_finds_no_room_loses_nothing() {
    let store = Arc::new(FaultStore::new(MemStore::new(1 << 20)));
    let as_store: Arc<dyn Store> = store.clone();
    let (options, config) = (AttachOptions::default(), EngineConfig::default());
    let (volume, _) = Volume::attach(&mut StoreIo::new(&*as_store), None, config, &options).unwrap();
    let drive = Drive { depth: 2, time_scale: 1.0, host_reserve: 0, rotational: false };
    let server = Server::start(volume, as_store, None, drive, "full".into()).unwrap();
    let connection = server.connect();
    let call = |op, fua| {
        let buffer = AlignedBuf::zeroed(if op == Op::Write { 4096 } else { 0 });
        let flags = Flags { fua, ..Flags::default() };
        let request = ClientRequest { connection, op, extent: Extent::new(4096, 4096), flags, buffer };
        server.call(request).1.map_err(|e| e.0)
    };
    for op in [Op::Write, Op::WriteZeroes] {
        store.plan(Fault::on(&[Op::Write, Op::WriteZeroes], FaultKind::Error(libc::ENOSPC)).times(1));
        assert_eq!(call(op, true), Err(libc::ENOSPC), "{op:?}");
        assert_eq!((call(Op::Write, false), call(op, true)), (Ok(()), Ok(())), "{op:?}");
    }
    store.plan(Fault::on(&[Op::Flush], FaultKind::Error(libc::ENOSPC)).times(1));
    assert_eq!(call(Op::WriteZeroes, true), Err(libc::EIO));
    assert!(call(Op::Write, false).is_err(), "latched");
    server.detach();
}
