//! What lies in an entry's memory, as /dev/fuse would have brought it.

use std::io::{self, ErrorKind};

use fs2_store::AlignedBuf;
use zerocopy::FromBytes;

use super::super::device::Inbox;
use super::super::wire::{InHeader, RingHeader};

/// Takes a request in. `payload` is the entry's memory whole; it goes with the request where that needs it.
///
/// # Errors
/// `InvalidData` for what is no request; the header then has the number under which it is answered.
pub(in super::super) fn arrived(
    header: &RingHeader,
    payload: AlignedBuf,
    inbox: &mut Inbox,
) -> io::Result<InHeader> {
    let wrong = |what| Err(io::Error::new(ErrorKind::InvalidData, what));
    let Ok((request, _)) = InHeader::read_from_prefix(&header.in_out) else {
        return wrong("no header");
    };
    let len = header.payload_bytes as usize;
    if len > payload.capacity() {
        return wrong("a payload beyond its memory");
    }
    // What is neither header nor payload is the fixed part.
    let rest = (request.len as usize).checked_sub(size_of::<InHeader>() + len);
    let Some(fixed) = rest.and_then(|n| header.op_in.get(..n)) else {
        return wrong("a length that is not its parts'");
    };
    inbox.take_in(request, fixed, payload, len);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use fs2_store::Parts;
    use zerocopy::{FromZeros, IntoBytes};

    use super::super::super::wire::{FallocateIn, IoIn, op};
    use super::*;

    fn header(opcode: u32, fixed: &[u8], payload: usize) -> RingHeader {
        let len = (size_of::<InHeader>() + fixed.len() + payload) as u32;
        let request = InHeader { len, opcode, unique: 77, nodeid: 2, ..InHeader::new_zeroed() };
        // What an earlier request left there.
        let mut header = RingHeader { in_out: [0xff; 128], op_in: [0xff; 128], ..RingHeader::new_zeroed() };
        header.in_out[..40].copy_from_slice(request.as_bytes());
        header.op_in[..fixed.len()].copy_from_slice(fixed);
        header.payload_bytes = payload as u32;
        header
    }

    fn other(_: usize) -> AlignedBuf {
        panic!("there is room")
    }

    #[test]
    fn a_write_stays_where_it_came_and_a_read_goes_there() {
        let parts = Parts::zeroed(2, 8192).unwrap();
        let mut inbox = Inbox::new(0);
        let io = IoIn { size: 5000, offset: 4096, ..IoIn::new_zeroed() };
        let mut payload = parts.lend(1).unwrap();
        payload[..5000].fill(9);
        let request = arrived(&header(op::WRITE, io.as_bytes(), 5000), payload, &mut inbox).unwrap();
        assert_eq!((request.unique, inbox.payload_len(), inbox.head.io.size), (77, 5000, 5000));
        let got = inbox.payload(other);
        assert_eq!((got.as_ptr(), got.len()), (parts.address(1).cast_const(), 5000));
        assert!(got.iter().all(|&b| b == 9));
        arrived(&header(op::READ, io.as_bytes(), 0), parts.lend(0).unwrap(), &mut inbox).unwrap();
        assert_eq!(inbox.buffer(5000, other).as_ptr(), parts.address(0).cast_const());
    }

    #[test]
    fn others_are_read_as_from_the_device() {
        let parts = Parts::zeroed(1, 4096).unwrap();
        let mut inbox = Inbox::new(0);
        let mut payload = parts.lend(0).unwrap();
        payload[..7].copy_from_slice(b"volume\0");
        arrived(&header(op::LOOKUP, &[], 7), payload, &mut inbox).unwrap();
        assert_eq!(inbox.name(), b"volume");
        assert!(!parts.is_lent(0));
        let asked = [1u64, 2, 3, 3].map(u64::to_ne_bytes).concat();
        arrived(&header(op::FALLOCATE, &asked, 0), parts.lend(0).unwrap(), &mut inbox).unwrap();
        let got = inbox.fixed::<FallocateIn>().unwrap();
        assert_eq!((got.offset, got.length, got.mode), (2, 3, 3));
        // A fixed part that is longer than a write's.
        let long: Vec<u8> = (0..88).collect();
        arrived(&header(op::SETATTR, &long, 0), parts.lend(0).unwrap(), &mut inbox).unwrap();
        assert_eq!(inbox.fixed::<[u8; 88]>().unwrap()[..], long[..]);
        assert!(inbox.fixed::<[u8; 89]>().is_none());
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let parts = Parts::zeroed(1, 4096).unwrap();
        let mut inbox = Inbox::new(0);
        let good = header(op::WRITE, &[0; 40], 100);
        for (at, value) in [(0, 179u32), (0, 0), (0, 39), (0, 40), (0, u32::MAX), (0, 140 + 129)] {
            let mut wrong = good;
            wrong.in_out[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            let refused = arrived(&wrong, parts.lend(0).unwrap(), &mut inbox);
            if value == 179 {
                // One byte of the fixed part less: not a write, and found so later.
                assert!(refused.is_ok());
                inbox.clear();
            } else {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidData, "{value}");
            }
        }
        for bytes in [4097, u32::MAX] {
            let wrong = RingHeader { payload_bytes: bytes, ..good };
            assert!(arrived(&wrong, parts.lend(0).unwrap(), &mut inbox).is_err());
        }
        assert!(!parts.is_lent(0));
    }
}
