//! Generic netlink, as little of it as one family's commands need.
//!
//! The crates that speak netlink bring routing, buffers of their own and macros; what is needed here is three
//! commands of a few attributes and one kind of event, which is shorter than their use.
//!
//! Invariants:
//! 1. What comes from the kernel is read within its own lengths: cut short or wrong, it is an error, never a panic.
//! 2. A call takes only answers to its own sequence number; events come over another socket ([`Genl::join`]).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto, setsockopt,
    socket,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// Bytes of one datagram that are taken; the answer to CTRL_CMD_GETFAMILY has some hundred.
const DATAGRAM_BYTES: usize = 16 << 10;

/// How long the kernel may take to answer. Guess: it answers within the call but for a device's start.
const PATIENCE: Duration = Duration::from_secs(30);

/// Of `linux/netlink.h` and `linux/genetlink.h`.
mod abi {
    pub(super) const HEADER_BYTES: usize = 16;
    pub(super) const GENL_HEADER_BYTES: usize = 4;
    pub(super) const ATTR_HEADER_BYTES: usize = 4;
    pub(super) const REQUEST: u16 = 1;
    pub(super) const ACK: u16 = 4;
    pub(super) const NESTED: u16 = 1 << 15;
    /// What is left of a kind without the flags nested and network byte order.
    pub(super) const KIND_MASK: u16 = 0x3fff;
    pub(super) const ERROR: u16 = 2;
    pub(super) const CONTROL: u16 = 16;
    pub(super) const GET_FAMILY: u8 = 3;
    pub(super) const FAMILY_ID: u16 = 1;
    pub(super) const FAMILY_NAME: u16 = 2;
    pub(super) const MCAST_GROUPS: u16 = 7;
    pub(super) const GROUP_NAME: u16 = 1;
    pub(super) const GROUP_ID: u16 = 2;
}

/// Attributes as they go over the wire.
#[derive(Clone, Debug, Default)]
pub(super) struct Attrs(Vec<u8>);

impl Attrs {
    pub(super) fn bytes(mut self, kind: u16, value: &[u8]) -> Attrs {
        let len = abi::ATTR_HEADER_BYTES + value.len();
        assert!(len <= usize::from(u16::MAX), "an attribute of {len} bytes");
        self.0.extend((len as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn u32(self, kind: u16, value: u32) -> Attrs {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub(super) fn u64(self, kind: u16, value: u64) -> Attrs {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// With the zero byte at the end.
    pub(super) fn string(self, kind: u16, value: &str) -> Attrs {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(super) fn nest(self, kind: u16, inner: &Attrs) -> Attrs {
        self.bytes(kind | abi::NESTED, &inner.0)
    }
}

/// Kinds and values of attributes; ends where they are cut short.
pub(super) fn parse(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(half(bytes, 0)?);
        let kind = half(bytes, 2)? & abi::KIND_MASK;
        let value = bytes.get(abi::ATTR_HEADER_BYTES..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of this kind.
pub(super) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    parse(bytes).find(|&(k, _)| k == kind).map(|(_, v)| v)
}

/// A number of 32 bits at the start.
pub(super) fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// One message of a datagram.
struct Message<'a> {
    kind: u16,
    seq: u32,
    payload: &'a [u8],
}

fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = word(bytes)? as usize;
        let (kind, seq) = (half(bytes, 4)?, word(bytes.get(8..)?)?);
        let payload = bytes.get(abi::HEADER_BYTES..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, seq, payload })
    })
}

/// The command and the attributes of a family's message.
fn body(payload: &[u8]) -> Option<(u8, &[u8])> {
    Some((*payload.first()?, payload.get(abi::GENL_HEADER_BYTES..)?))
}

/// What a family told.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Commands and attributes.
    pub(super) came: Vec<(u8, Vec<u8>)>,
    /// There were more than the socket had room for.
    pub(super) lost: bool,
}

/// A socket that speaks to one family.
#[derive(Debug)]
pub(super) struct Genl {
    fd: OwnedFd,
    family: u16,
    seq: u32,
    groups: Vec<(String, u32)>,
}

impl Genl {
    /// # Errors
    /// `NotFound` where the kernel has no such family, which for a driver means: it is not loaded.
    pub(super) fn open(name: &str) -> io::Result<Genl> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkGeneric)?;
        setsockopt(&fd, ReceiveTimeout, &TimeVal::seconds(PATIENCE.as_secs() as i64))?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        let mut genl = Genl { fd, family: abi::CONTROL, seq: 0, groups: Vec::new() };
        let answers = genl.call(abi::GET_FAMILY, &Attrs::default().string(abi::FAMILY_NAME, name))?;
        let attrs = answers.first().map(Vec::as_slice).unwrap_or_default();
        let id = find(attrs, abi::FAMILY_ID).and_then(|v| half(v, 0));
        genl.family = id.ok_or_else(|| cut(&format!("the family {name}")))?;
        let groups = find(attrs, abi::MCAST_GROUPS).unwrap_or_default();
        genl.groups = parse(groups)
            .filter_map(|(_, group)| {
                let name = find(group, abi::GROUP_NAME)?;
                let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
                Some((name, word(find(group, abi::GROUP_ID)?)?))
            })
            .collect();
        Ok(genl)
    }

    /// Sends a command and waits for its end; the attributes of its answers.
    ///
    /// # Errors
    /// What the kernel says of the command; `TimedOut` where it says nothing.
    pub(super) fn call(&mut self, command: u8, attrs: &Attrs) -> io::Result<Vec<Vec<u8>>> {
        self.send(command, attrs)?;
        let mut answers = Vec::new();
        loop {
            let datagram = self.receive(MsgFlags::empty())?;
            for message in messages(&datagram).filter(|m| m.seq == self.seq) {
                if message.kind != abi::ERROR {
                    answers.extend(body(message.payload).map(|(_, attrs)| attrs.to_vec()));
                    continue;
                }
                return match word(message.payload).map(|e| e as i32) {
                    Some(0) => Ok(answers),
                    Some(e) => Err(io::Error::from_raw_os_error(e.saturating_neg())),
                    None => Err(cut("an acknowledgement")),
                };
            }
        }
    }

    fn send(&mut self, command: u8, attrs: &Attrs) -> io::Result<()> {
        self.seq += 1;
        let len = abi::HEADER_BYTES + abi::GENL_HEADER_BYTES + attrs.0.len();
        let mut bytes = Vec::with_capacity(len);
        bytes.extend((len as u32).to_ne_bytes());
        bytes.extend(self.family.to_ne_bytes());
        bytes.extend((abi::REQUEST | abi::ACK).to_ne_bytes());
        bytes.extend(self.seq.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        // The version of the family; none asks for another than 1.
        bytes.extend([command, 1, 0, 0]);
        bytes.extend(&attrs.0);
        sendto(self.fd.as_raw_fd(), &bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        Ok(())
    }

    /// From now on the group's events arrive; this socket makes no more calls.
    ///
    /// # Errors
    /// `NotFound` where the family has no such group.
    pub(super) fn join(&mut self, group: &str) -> io::Result<()> {
        let id = self.groups.iter().find(|(name, _)| name == group).map(|&(_, id)| id);
        let id =
            id.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no netlink group {group}")))?;
        // SAFETY: the option's value is four bytes that outlive the call.
        let r = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_NETLINK,
                libc::NETLINK_ADD_MEMBERSHIP,
                (&raw const id).cast(),
                size_of_val(&id) as libc::socklen_t,
            )
        };
        Errno::result(r).map(drop).map_err(io::Error::from)
    }

    /// The events that have arrived. Does not wait.
    ///
    /// # Errors
    /// What the socket says; that some were lost (`ENOBUFS`) is not among it.
    pub(super) fn events(&self) -> io::Result<Events> {
        let mut events = Events::default();
        loop {
            match self.receive(MsgFlags::MSG_DONTWAIT) {
                Ok(datagram) => {
                    let ours = messages(&datagram).filter(|m| m.kind == self.family);
                    let bodies = ours.filter_map(|m| body(m.payload));
                    events.came.extend(bodies.map(|(command, attrs)| (command, attrs.to_vec())));
                }
                Err(e) if e.kind() == io::ErrorKind::TimedOut => return Ok(events),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => events.lost = true,
                Err(e) => return Err(e),
            }
        }
    }

    fn receive(&self, flags: MsgFlags) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            match recv(self.fd.as_raw_fd(), &mut buffer, flags) {
                Ok(n) => {
                    buffer.truncate(n);
                    return Ok(buffer);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the kernel does not answer over netlink",
                    ));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for Genl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn cut(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("netlink: {what} came cut short"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were() {
        let inner = Attrs::default().u32(1, 7).string(2, "abc");
        let all = Attrs::default().u64(3, 1 << 40).nest(7, &inner).bytes(9, &[1, 2, 3]);
        let back: Vec<(u16, Vec<u8>)> = parse(&all.0).map(|(k, v)| (k, v.to_vec())).collect();
        assert_eq!(back.iter().map(|(k, _)| *k).collect::<Vec<_>>(), [3, 7, 9]);
        assert_eq!(back[2].1, [1, 2, 3]);
        assert_eq!(find(&back[1].1, 1).and_then(word), Some(7));
        assert_eq!(find(&back[1].1, 2), Some(b"abc\0".as_slice()));
    }

    #[test]
    fn whatever_arrives_is_read_within_its_lengths() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for round in 0..20_000 {
            // Lengths that are near the truth reach deepest.
            let mut bytes: Vec<u8> = (0..round % 67).map(|_| random() & 0x1f).collect();
            if bytes.len() > 20 && round % 3 == 0 {
                bytes[..4].copy_from_slice(&(random() as u32 & 63).to_ne_bytes());
            }
            let total: usize =
                messages(&bytes).map(|m| body(m.payload).map_or(0, |(_, a)| parse(a).count())).sum();
            assert!(total <= bytes.len() / 4, "{bytes:?}");
            assert!(parse(&bytes).map(|(_, v)| v.len()).sum::<usize>() <= bytes.len());
        }
    }

    /// The kernel's word that a connection had died was lost unnoticed.
    #[test]
    fn events_that_were_lost_are_known_to_be() {
        let mut genl = Genl::open("nlctrl").expect("every kernel with generic netlink has it");
        let none = genl.events().unwrap();
        assert!(none.came.is_empty() && !none.lost);
        // The least there is; the kernel answers within the call, and does not wait for who does not read.
        let least = 1_usize;
        nix::sys::socket::setsockopt(&genl.fd, nix::sys::socket::sockopt::RcvBuf, &least).unwrap();
        for _ in 0..100 {
            let ask = Attrs::default().string(abi::FAMILY_NAME, "nlctrl");
            let sent = genl.send(abi::GET_FAMILY, &ask);
            // What was lost is told to whoever uses the socket next, once.
            if sent.is_err_and(|e| e.raw_os_error() != Some(libc::ENOBUFS)) {
                panic!("the kernel takes no more");
            }
        }
        let events = genl.events().unwrap();
        assert!(events.lost && events.came.len() < 100, "{events:?}");
        assert!(!genl.events().unwrap().lost, "said once");
    }

    #[test]
    fn the_kernel_knows_its_own_control_family_and_none_of_ours() {
        let genl = Genl::open("nlctrl").expect("every kernel with generic netlink has it");
        assert_eq!(genl.family, abi::CONTROL);
        assert!(genl.groups.iter().any(|(name, id)| name == "notify" && *id > 0), "{:?}", genl.groups);
        assert_eq!(Genl::open("fs2-has-none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
