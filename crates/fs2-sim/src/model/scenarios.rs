//! Small worlds, each with an alphabet of actions and how often each may be done.

use fs2_engine::{DiscardMode, Plant};

use super::image::Shape;
use super::world::{Action, From, O, R, S, T, U, World, X};
use crate::glue::{Checker, Setup};

/// A small world.
#[derive(Clone)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    setup: Setup,
    before: &'static [&'static [Action]],
    menu: &'static [(Action, u8)],
}

impl Scenario {
    /// Where it begins, with these rules broken. What comes before breaks none.
    pub fn start(&self, plants: &[Plant]) -> World {
        let before: Vec<Action> = self.before.concat();
        let world = World::new(self.setup.clone()).prepared(&before);
        world.with_plants(plants).with_menu(self.menu)
    }

    /// The same where the device may still have I/O of a dead daemon when the next attaches.
    pub fn without_lock_wait(mut self) -> Scenario {
        self.setup.no_lock_wait = true;
        self
    }
}

const READ: Action = Action::Read(O, From::Original);
const READ_X: Action = Action::Read(X, From::Original);
const READ_TWO: Action = Action::ReadTwo(O, From::Original);
const READ_TWO_COPIES: Action = Action::ReadTwo(O, From::Replica);
const READ_COPY: Action = Action::Read(O, From::Replica);
const BG: Action = Action::Background;

/// Attached; the mark stands, the group's bitmap is not loaded.
const FRESH: &[Action] = &[Action::Attach, Action::Target(R)];
/// The bitmap is loaded.
const LOAD: &[Action] = &[BG];
/// Mounted, the mark erased in both slots.
const MOUNT: &[Action] = &[Action::Mount, BG];
/// O is copied to R.
const COPY: &[Action] = &[READ, BG, Action::Expect(R)];
/// The same as the first change of the session: the mark is erased before, in both slots after.
const FIRST_COPY: &[Action] = &[READ, BG, BG, BG, Action::Expect(R)];
/// O and X are copied to R and S.
const COPY_TWO: &[Action] = &[READ_TWO, BG, Action::Expect(R), Action::Expect(S)];
/// The table is on disk (the superblock is looked at first).
const TABLE: &[Action] = &[BG, BG];
/// In order to the end, and attached again: the table is trusted, the mark stands.
const AGAIN: &[Action] = &[Action::Detach, Action::Attach, Action::Target(R), Action::Expect(R)];
/// The sample of the originals was looked at.
const SAMPLED: &[Action] = &[BG];
/// Killed and checked: all pages are unverified, the mark stands.
const CHECKED: &[Action] =
    &[Action::Kill, Action::Check, Action::Attach, Action::Target(R), Action::Expect(R)];

/// Killed, checked, attached, ended in order.
const CHECK_MENU: &[(Action, u8)] = &[
    (Action::Write(O), 1),
    (Action::Write(X), 1),
    (Action::Kill, 1),
    (Action::Check, 1),
    (Action::Attach, 2),
    (READ, 1),
    (READ_COPY, 1),
    (BG, 1),
    (Action::Detach, 1),
];

/// All of them.
pub fn all() -> Vec<Scenario> {
    let memory = Setup::default;
    let pass = || Setup { discard: DiscardMode::Pass, ..Setup::default() };
    let punch = || Setup { punch: true, ..Setup::default() };
    let fragmented = || Setup { shape: Shape::Fragmented, ..Setup::default() };
    let apart = || Setup { apart: true, ..Setup::default() };
    let one_slot = |s: Setup| Setup { slots: 1, ..s };
    vec![
        Scenario {
            name: "copy",
            about: "a copy races with writes of its original and of its target",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (READ, 1),
                (READ_COPY, 1),
                (Action::Write(O), 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::Read(R, From::Original), 1),
                (BG, 2),
            ],
        },
        Scenario {
            name: "mapped",
            about: "a copy is there; original and replica are written, whole, in part and with zeroes",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT, COPY],
            menu: &[
                (READ_COPY, 2),
                (Action::Write(O), 1),
                (Action::WritePart(O, 1), 1),
                (Action::Zero(O), 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::WritePart(R, 0), 1),
            ],
        },
        Scenario {
            name: "two",
            about: "two blocks are copied in one write while each of the four is written",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (READ_TWO, 1),
                (BG, 1),
                (Action::Write(O), 1),
                (Action::Write(X), 1),
                (Action::Alloc(S), 1),
                (Action::Write(S), 1),
                (READ_TWO_COPIES, 1),
                (Action::Read(X, From::Replica), 1),
            ],
        },
        Scenario {
            name: "two-mapped",
            about: "requests of two blocks and of one overlap, on originals and on replicas",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT, COPY_TWO],
            menu: &[
                (READ_TWO_COPIES, 1),
                (Action::Read(X, From::Replica), 1),
                (Action::WriteTwo(O), 1),
                (Action::WritePart(X, 0), 1),
                (Action::Alloc(S), 1),
                (Action::Write(S), 1),
                (Action::Evict(R), 1),
            ],
        },
        Scenario {
            name: "two-discards",
            about: "discards of a block and a half, passed down",
            setup: pass(),
            before: &[FRESH, LOAD, MOUNT, COPY_TWO],
            menu: &[
                (Action::DiscardOdd(R), 1),
                (Action::Discard(S), 1),
                (READ_TWO_COPIES, 1),
                (READ_TWO, 1),
                (BG, 1),
                (Action::Alloc(S), 1),
                (Action::Write(S), 1),
            ],
        },
        Scenario {
            name: "degree",
            about: "a block has two replicas",
            setup: Setup { degree: 2, ..Setup::default() },
            before: &[FRESH, LOAD, MOUNT, COPY],
            menu: &[
                (READ, 1),
                (Action::Target(S), 1),
                (BG, 1),
                (READ_COPY, 2),
                (Action::Write(O), 1),
                (Action::Alloc(S), 1),
                (Action::Write(S), 1),
                (Action::Evict(R), 1),
            ],
        },
        Scenario {
            name: "direct",
            about: "two writes of one block are in flight at once",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (Action::WriteToo(O), 2),
                (Action::WritePart(O, 0), 1),
                (READ, 1),
                (BG, 1),
                (READ_COPY, 2),
            ],
        },
        Scenario {
            name: "one-slot",
            about: "the device takes one I/O at a time: requests wait inside the engine",
            setup: one_slot(memory()),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (READ, 1),
                (READ_COPY, 1),
                (Action::WriteToo(O), 2),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::Free(R), 1),
                (Action::Discard(R), 1),
                (BG, 2),
            ],
        },
        Scenario {
            name: "discard",
            about: "a block is discarded and used again; bitmaps say what they like",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (Action::Alloc(R), 2),
                (Action::Write(R), 2),
                (Action::Free(R), 1),
                (Action::Discard(R), 2),
                (READ, 1),
                (READ_COPY, 1),
                (BG, 1),
            ],
        },
        Scenario {
            name: "discard-original",
            about: "an original is freed, discarded and used again while it is copied",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (READ, 2),
                (BG, 1),
                (Action::Free(O), 1),
                (Action::Discard(O), 1),
                (Action::Alloc(O), 1),
                (Action::Write(O), 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "held-discard",
            about: "a discard waits for the mark's erasure while its block is used again",
            setup: memory(),
            before: &[FRESH, LOAD],
            menu: &[
                (Action::Discard(R), 1),
                (Action::GiveUp(R), 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (READ, 1),
                (BG, 1),
            ],
        },
        Scenario {
            name: "connections",
            about: "a discard stays unread in a dead connection's socket while the client goes on",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (Action::SendDiscard(R), 1),
                (Action::Reconnect, 1),
                (Action::Receive(1), 2),
                (Action::Receive(2), 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (READ, 1),
                (BG, 1),
            ],
        },
        Scenario {
            name: "discard-pass",
            about: "discards are passed down",
            setup: pass(),
            before: &[FRESH, LOAD, MOUNT, COPY],
            menu: &[
                (Action::Discard(R), 1),
                (Action::Evict(R), 1),
                (READ_COPY, 2),
                (READ, 1),
                (BG, 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
            ],
        },
        Scenario {
            name: "discard-pass-trusted",
            about: "the first change of a session is a discard that is passed down",
            setup: pass(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN, SAMPLED],
            menu: &[
                (Action::Discard(R), 1),
                (Action::GiveUp(R), 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (READ_COPY, 1),
                (READ_X, 1),
                (BG, 2),
                (Action::Kill, 1),
                (Action::Attach, 1),
            ],
        },
        Scenario {
            name: "discard-pass-original",
            about: "originals are discarded, and that is passed down",
            setup: pass(),
            before: &[FRESH, LOAD, MOUNT, COPY],
            menu: &[
                (Action::Free(O), 1),
                (Action::Discard(O), 1),
                (Action::Alloc(O), 1),
                (Action::Write(O), 1),
                (READ, 1),
                (BG, 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "punch",
            about: "evicted replicas are punched while their blocks are taken",
            setup: punch(),
            before: &[FRESH, LOAD, MOUNT, COPY],
            menu: &[
                (Action::Evict(R), 1),
                (Action::Write(O), 1),
                (BG, 2),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::Free(R), 1),
                (Action::Discard(R), 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "punch-trusted",
            about: "a trusted replica is evicted and punched while the mark stands",
            setup: punch(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN, SAMPLED, LOAD],
            menu: &[
                (Action::Evict(R), 1),
                (Action::Write(O), 1),
                (BG, 2),
                (Action::Kill, 1),
                (Action::Attach, 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "punch-window",
            about: "a frontend knows punched holes only: discards while mounted, zeroes otherwise",
            setup: memory(),
            before: &[FRESH, LOAD],
            menu: &[
                (Action::PunchZeroes(O), 1),
                (READ, 1),
                (Action::Mount, 1),
                (Action::Punch(R), 1),
                (Action::Unmount, 1),
                (Action::PunchZeroes(X), 1),
                (READ_X, 1),
                (BG, 1),
            ],
        },
        Scenario {
            name: "pins",
            about: "a replica is read while its block is taken, evicted, copied into",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT, COPY],
            menu: &[
                (READ_COPY, 2),
                (READ_X, 1),
                (Action::Evict(R), 1),
                (BG, 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
            ],
        },
        Scenario {
            name: "bitmap",
            about: "a bitmap in flight is older than the blocks' use",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (Action::SendBitmap, 2),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::Free(R), 1),
                (Action::Discard(R), 1),
                (READ, 1),
                (BG, 1),
            ],
        },
        Scenario {
            name: "unloaded",
            about: "the group's bitmap is read while its blocks are written, discarded and marked",
            setup: memory(),
            before: &[FRESH],
            menu: &[
                (READ, 1),
                (BG, 3),
                (Action::SendBitmap, 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::Discard(R), 1),
            ],
        },
        Scenario {
            name: "claim",
            about: "a tool marks a block used and does not write it",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY],
            menu: &[
                (Action::Evict(R), 1),
                (READ_X, 1),
                (BG, 1),
                (Action::Claim(R), 1),
                (READ_COPY, 1),
                (Action::Read(R, From::Original), 1),
            ],
        },
        Scenario {
            name: "raw-reads",
            about: "a client reads free blocks and marks them used: dd, or an image being made",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY],
            menu: &[
                (Action::ReadFree(S, From::Original), 1),
                (Action::ReadFree(S, From::Replica), 1),
                (Action::Target(S), 1),
                (Action::Target(R), 1),
                (Action::Evict(R), 1),
                (READ_X, 1),
                (BG, 2),
                (Action::Claim(S), 1),
                (Action::Read(S, From::Original), 1),
            ],
        },
        Scenario {
            name: "table",
            about: "a client takes a block of the table",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT, COPY],
            menu: &[
                (Action::Write(T), 1),
                (Action::Read(T, From::Original), 1),
                (BG, 4),
                (Action::Write(O), 1),
                (Action::Write(X), 1),
            ],
        },
        Scenario {
            name: "table-in-pieces",
            about: "the table's pages are in pieces, and the device takes one I/O at a time",
            setup: one_slot(fragmented()),
            before: &[FRESH, LOAD, FIRST_COPY],
            menu: &[
                (Action::Write(T), 1),
                (Action::Write(U), 1),
                (Action::Read(T, From::Original), 1),
                (BG, 4),
            ],
        },
        Scenario {
            name: "superblock",
            about: "the superblock is written while the engine looks at it",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY],
            menu: &[(Action::Mount, 1), (BG, 3), (Action::Unmount, 1), (Action::Detach, 1)],
        },
        Scenario {
            name: "mark",
            about: "the first change of a session, and what a kill or a loss of power leaves of it",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN],
            menu: &[
                (Action::Write(O), 1),
                (Action::Write(U), 1),
                (READ_COPY, 1),
                (Action::PowerLoss(0), 1),
                (Action::Kill, 1),
                (Action::Attach, 1),
                (Action::Detach, 1),
            ],
        },
        Scenario {
            name: "mark-copy",
            about: "the first copy of a session takes a trusted replica's place",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN, SAMPLED, LOAD],
            menu: &[
                (Action::Evict(R), 1),
                (READ_X, 1),
                (BG, 2),
                (Action::Kill, 1),
                (Action::Attach, 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "mark-apart",
            about: "the same with the table on a device of its own",
            setup: apart(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN],
            menu: &[
                (Action::Write(O), 1),
                (READ_COPY, 1),
                (Action::PowerLoss(0), 1),
                (Action::Kill, 1),
                (Action::Attach, 1),
                (Action::Detach, 1),
            ],
        },
        Scenario {
            name: "mark-in-pieces",
            about: "the header is in pieces, and a piece of its erasure fails",
            setup: fragmented(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN],
            menu: &[
                (Action::Write(O), 1),
                (Action::Fail(0), 2),
                (Action::Kill, 1),
                (Action::Attach, 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "detach",
            about: "the end of a session, and what a loss of power in it leaves",
            setup: memory(),
            before: &[FRESH, LOAD],
            menu: &[
                (Action::Write(O), 1),
                (READ, 1),
                (BG, 1),
                (Action::Detach, 1),
                (Action::PowerLoss(0), 1),
                (Action::Attach, 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "detach-apart",
            about: "the same with the table on a device of its own",
            setup: apart(),
            before: &[FRESH, LOAD],
            menu: &[
                (Action::Write(O), 1),
                (READ, 1),
                (BG, 1),
                (Action::Detach, 1),
                (Action::PowerLoss(0), 1),
                (Action::Attach, 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "detach-in-pieces",
            about: "the same with pages and headers in pieces, each kept or lost for itself",
            setup: fragmented(),
            before: &[FRESH, LOAD, &[Action::Write(O), READ, BG, BG, Action::Expect(R)]],
            menu: &[
                (Action::Write(O), 1),
                (Action::Detach, 1),
                (Action::PowerLoss(0), 1),
                (Action::Attach, 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "detach-errors",
            about: "reads, writes and flushes of the detach fail",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY],
            menu: &[
                (Action::Write(O), 1),
                (Action::Detach, 1),
                (Action::Fail(0), 2),
                (Action::Attach, 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "detach-busy",
            about: "a session is asked to end while requests wait",
            setup: memory(),
            before: &[FRESH],
            menu: &[
                (Action::SendBitmap, 1),
                (Action::Write(O), 1),
                (READ, 1),
                (Action::Flush, 1),
                (BG, 1),
                (Action::DetachBusy, 1),
                (Action::Attach, 1),
            ],
        },
        Scenario {
            name: "table-lost",
            about: "a client took a block of the table; then the session ends",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN],
            menu: &[
                (Action::Write(U), 1),
                (Action::Write(O), 1),
                (BG, 2),
                (Action::Detach, 1),
                (Action::Attach, 1),
                (READ_COPY, 1),
            ],
        },
        Scenario {
            name: "checked",
            about: "killed, checked, attached: no page is verified",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN],
            menu: CHECK_MENU,
        },
        Scenario {
            name: "chkfs2-quick",
            about: "the same through chkfs2, which hashes nothing",
            setup: Setup { checker: Checker::Quick, ..Setup::default() },
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN],
            menu: CHECK_MENU,
        },
        Scenario {
            name: "chkfs2-full",
            about: "the same through chkfs2, which hashes both blocks of each entry",
            setup: Setup { checker: Checker::Full, ..Setup::default() },
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN],
            menu: CHECK_MENU,
        },
        Scenario {
            name: "replica-lost",
            about: "power keeps the table's page and loses the replica",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY, TABLE],
            menu: &[
                (Action::PowerLoss(0), 1),
                (Action::Check, 1),
                (Action::Attach, 2),
                (READ, 1),
                (READ_COPY, 2),
                (BG, 2),
                (Action::Detach, 1),
            ],
        },
        Scenario {
            name: "elsewhere",
            about: "between two sessions the volume is mounted elsewhere",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY, TABLE],
            menu: &[
                (Action::Detach, 1),
                (Action::Kill, 1),
                (Action::ElsewhereWrites(O), 1),
                (Action::ElsewhereWrites(R), 1),
                (Action::Check, 1),
                (Action::Attach, 1),
                (READ, 1),
                (READ_COPY, 1),
                (Action::Read(R, From::Original), 1),
                (BG, 2),
            ],
        },
        Scenario {
            name: "unverified",
            about: "originals are written while entries are being verified",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY, TABLE, CHECKED],
            menu: &[
                (READ, 1),
                (BG, 2),
                (Action::Write(O), 1),
                (Action::WritePart(O, 0), 1),
                (READ_COPY, 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
            ],
        },
        Scenario {
            name: "second-mount",
            about: "the kernel dies, the daemon lives; mounted again without a check",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::WriteRefs, 1),
                (Action::KernelDies, 1),
                (Action::Mount, 1),
                (READ, 1),
                (BG, 1),
                (Action::Unmount, 1),
                (Action::Detach, 1),
                (Action::Attach, 1),
            ],
        },
        Scenario {
            name: "dirty",
            about: "killed under a mount: served inactive, mounted without a check",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::WriteRefs, 1),
                (Action::Kill, 1),
                (Action::Attach, 2),
                (Action::Mount, 1),
                (Action::Unmount, 1),
                (Action::Detach, 1),
            ],
        },
        Scenario {
            name: "still-mounted",
            about: "the daemon ends, or is killed alone, under a kernel that waits for the next",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (Action::Detach, 1),
                (Action::KillAlone, 1),
                (Action::Attach, 1),
                (READ, 1),
                (BG, 4),
                (Action::Target(R), 1),
            ],
        },
        Scenario {
            name: "pending",
            about: "a daemon is killed with I/O in the device, and the next one comes",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN, SAMPLED, LOAD],
            menu: &[
                (Action::Write(O), 1),
                (READ_X, 1),
                (Action::Evict(R), 1),
                (BG, 1),
                (Action::Kill, 1),
                (Action::Check, 1),
                (Action::Attach, 1),
                (Action::Alloc(R), 1),
                (Action::Write(R), 1),
                (READ, 1),
            ],
        },
        Scenario {
            name: "foreign",
            about: "something else writes to the backing, and the daemon is told",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY, AGAIN],
            menu: &[
                (Action::ForeignWrites(O), 1),
                (Action::ForeignNoticed, 1),
                (READ_COPY, 1),
                (READ, 1),
                (BG, 3),
                (Action::Write(X), 1),
                (Action::Detach, 1),
                (Action::Attach, 1),
            ],
        },
        Scenario {
            name: "foreign-table",
            about: "something else mounts the volume and takes the table's blocks",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT, COPY],
            menu: &[
                (Action::ForeignTakes(T), 1),
                (Action::ForeignNoticed, 1),
                (READ_COPY, 1),
                (BG, 3),
                (Action::Write(X), 1),
                (Action::Detach, 1),
            ],
        },
        Scenario {
            name: "flush",
            about: "flushes overlap and fail",
            setup: memory(),
            before: &[FRESH, LOAD, MOUNT],
            menu: &[
                (Action::Write(O), 1),
                (Action::FlushToo, 2),
                (Action::Write(X), 1),
                (Action::Fail(0), 1),
                (Action::PowerLoss(0), 1),
                (Action::Attach, 1),
            ],
        },
        Scenario {
            name: "errors",
            about: "reads, writes, copies and table writes fail",
            setup: memory(),
            before: &[FRESH, LOAD, FIRST_COPY],
            menu: &[
                (READ_COPY, 1),
                (Action::Write(O), 1),
                (READ_X, 1),
                (BG, 3),
                (Action::Fail(0), 2),
                (Action::Evict(R), 1),
            ],
        },
    ]
}

/// The one of this name.
pub fn by_name(name: &str) -> Option<Scenario> {
    all().into_iter().find(|s| s.name == name)
}
