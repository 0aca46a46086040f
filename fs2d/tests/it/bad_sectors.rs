//! What the disk below cannot read is answered from its copy, by a daemon with its own threads and by one that reads in its callers'.

use std::sync::Arc;

use fs2_block::{BlockNo, BlockRange, Extent, Flags, Op, Permille};
use fs2_engine::offline::{CreateOptions, Devices, ReplicateOptions, create, replicate};
use fs2_engine::policy::PolicyKind;
use fs2_engine::{AttachOptions, EngineConfig, Volume};
use fs2_sim::model::content::Grain;
use fs2_sim::model::image::{Plan, Shape};
use fs2_store::{AlignedBuf, Fault, FaultKind, FaultStore, MemStore, Store, StoreIo};
use fs2d::server::{Drive, Server};
use fs2d::service::{ClientRequest, Service};

const BLOCK: u64 = 1024;

#[test]
fn a_bad_sector_under_a_replica_is_no_error() {
    let data: Vec<(u32, u16)> = (1100..1164).map(|b| (b, b as u16)).collect();
    let mut image = Plan { shape: Shape::Plain, grain: Grain::SMALL }.make(&data, &[]);
    let options =
        CreateOptions { space: Permille::new(400).unwrap(), volume_id: 7, now_secs: 1, checked: true };
    create(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    let blocks = [BlockRange::new(1100, 1132)];
    let options = ReplicateOptions { blocks: &blocks, near: BlockNo(1300), written_since: false };
    replicate(&mut Devices::new(&mut image, None), &options, &mut |_| {}).unwrap();
    for rotational in [false, true] {
        let store = Arc::new(FaultStore::new(MemStore::from_bytes(&image)));
        let as_store: Arc<dyn Store> = store.clone();
        // Originals first.
        let config = EngineConfig { policy: PolicyKind::None, ..EngineConfig::default() };
        let options = AttachOptions::default();
        let (volume, _) = Volume::attach(&mut StoreIo::new(&*as_store), None, config, &options).unwrap();
        let drive = Drive { depth: 2, time_scale: 1.0, host_reserve: 0, rotational };
        let server = Server::start(volume, as_store, None, drive, "bad sectors".into()).unwrap();
        let connection = server.connect();
        let read = |first: u64, blocks: u64| {
            let buffer = AlignedBuf::zeroed((blocks * BLOCK) as usize);
            let extent = Extent::new(first * BLOCK, blocks * BLOCK);
            let request = ClientRequest { connection, op: Op::Read, extent, flags: Flags::default(), buffer };
            let (buffer, result) = server.call(request);
            result.map(|()| buffer.to_vec()).map_err(|e| e.0)
        };
        let bad = Fault::on(&[Op::Read], FaultKind::Error(libc::EIO));
        let bad = store.plan(bad.within(Extent::new(1100 * BLOCK, 64 * BLOCK)));
        for (first, blocks) in [(1100, 1), (1107, 16), (1100, 32), (1100, 1)] {
            let want = &image[(first * BLOCK) as usize..][..(blocks * BLOCK) as usize];
            assert!(read(first, blocks).unwrap() == want, "{first}, rotational {rotational}");
        }
        let failed = store.fired(bad);
        assert_eq!(failed, 2, "what is known to be bad is not tried again, nor what has such a block in it");
        assert_eq!(read(1130, 4), Err(libc::EIO), "some of it has no replica");
        store.end(bad);
        assert!(read(1130, 4).unwrap() == image[(1130 * BLOCK) as usize..][..4 * BLOCK as usize]);
        let errors = server.with_volume(|v| v.stats().original_errors);
        assert_eq!(errors, 2, "the third one the client was told of");
        server.detach();
    }
}
