//! The demo's volume in this process, for whoever is not root.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use fs2_block::{ConnectionId, Extent, Flags, Op, ReadAt};
use fs2_control::Status;
use fs2_ext2::Layout;
use fs2_store::AlignedBuf;
use fs2d::daemon::{Served, open as serve};
use fs2d::service::{ClientRequest, Service};
use fs2d::settings::Settings;

use super::{DemoError, System};

/// A kernel's read-ahead: what one request reads at most.
const REQUEST_BYTES: u64 = 128 << 10;

/// A client that reads like a kernel does: whole blocks, each once until the next run.
struct ClientIo<'a> {
    served: &'a Served,
    connection: ConnectionId,
    blocks: &'a mut HashMap<u64, Vec<u8>>,
}

/// Bytes of a page.
const PAGE: u64 = 4096;

impl ReadAt for ClientIo<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let (first, last) = (offset / PAGE, end.div_ceil(PAGE));
        let mut page = first;
        while page < last {
            if self.blocks.contains_key(&page) {
                page += 1;
                continue;
            }
            let n = (last - page).min(REQUEST_BYTES / PAGE);
            let extent = Extent::new(page * PAGE, n * PAGE);
            let (connection, flags) = (self.connection, Flags::default());
            let buffer = AlignedBuf::zeroed(extent.len() as usize);
            let request = ClientRequest { connection, op: Op::Read, extent, flags, buffer };
            let (data, result) = self.served.server.call(request);
            result.map_err(|e| io::Error::from_raw_os_error(e.0))?;
            for (i, bytes) in data.chunks(PAGE as usize).enumerate() {
                self.blocks.insert(page + i as u64, bytes.to_vec());
            }
            page += n;
        }
        for (i, byte) in buf.iter_mut().enumerate() {
            let at = offset + i as u64;
            *byte = self.blocks[&(at / PAGE)][(at % PAGE) as usize];
        }
        Ok(())
    }

    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(self.served.server.info().size_bytes)
    }
}

struct InProcess {
    served: Served,
    connection: ConnectionId,
    blocks: HashMap<u64, Vec<u8>>,
    layout: Layout,
}

pub(super) fn open(image: &Path, settings: &Settings) -> Result<Box<dyn System>, DemoError> {
    let served = serve(image, settings).map_err(|e| DemoError::Step(e.to_string()))?;
    let connection = served.server.connect();
    let mut blocks = HashMap::new();
    let layout = Layout::read(&mut ClientIo { served: &served, connection, blocks: &mut blocks })
        .map_err(|e| DemoError::Step(e.to_string()))?;
    Ok(Box::new(InProcess { served, connection, blocks, layout }))
}

impl System for InProcess {
    fn frontend(&self) -> String {
        "in this process".into()
    }

    fn cold(&mut self) -> Result<(), DemoError> {
        self.blocks.clear();
        Ok(())
    }

    fn read(&mut self, path: &str) -> Result<Vec<u8>, DemoError> {
        let wrong = |e: fs2_ext2::Problem| DemoError::Step(format!("{path}: {e}"));
        let dev =
            &mut ClientIo { served: &self.served, connection: self.connection, blocks: &mut self.blocks };
        let inode = fs2_ext2::lookup(&self.layout, dev, path).map_err(wrong)?;
        let mut bytes = vec![0; inode.size as usize];
        let map = fs2_ext2::BlockMap::read(&self.layout, dev, &inode).map_err(wrong)?;
        for (at, extent) in map.file_extents(&self.layout) {
            let n = extent.len().min(inode.size - at) as usize;
            dev.read_at(extent.offset(), &mut bytes[at as usize..at as usize + n])
                .map_err(|e| DemoError::Step(format!("{path}: {e}")))?;
        }
        Ok(bytes)
    }

    fn status(&mut self) -> Result<Status, DemoError> {
        Ok(self.served.status("in process"))
    }

    fn trace_start(&mut self, path: &Path) -> Result<(), DemoError> {
        self.served.start_trace(path).map_err(|e| DemoError::Step(e.to_string()))
    }

    fn trace_stop(&mut self) -> Result<(), DemoError> {
        self.served.stop_trace().map(drop).map_err(|e| DemoError::Step(e.to_string()))
    }

    fn end(self: Box<Self>) -> Result<(), DemoError> {
        self.served.end();
        Ok(())
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.served.end();
    }
}
