//! The counterexamples to earlier wordings of the rules, and to weak readings of them: each interleaving
//! step by step, as far as the engine lets it come.

use fs2_sim::model::world::{Action, From, O, R, U, X};

use crate::play::{BG, Play, READ, READ_COPY, READ_X};

/// Power keeps the table's page and loses the replica. With the mark standing the replica would be read.
#[test]
fn ce1_mark_outlives_copies_power() {
    let mut p = Play::at("detach");
    // A session's first copy: the mark goes, flushed, before the copy is made.
    p.act(&[READ])
        .rest()
        .act(&[BG])
        .flies("the daemon's write of header slot 0")
        .waits("the daemon's write of R");
    p.lands("the daemon's write of header slot 0").waits("the daemon's write of R");
    p.lands("the client's flush");
    p.act(&[BG]).rest().act(&[BG]).rest().mapped(R, true);
    // Look at the superblock, then the page.
    p.act(&[BG]).rest().act(&[BG]).rest();
    // Of all that is in the cache only the last, the page, survives.
    let cached = p.0.devices()[0].cached();
    p.act(&[Action::PowerLoss(1 << (cached - 1)), Action::Attach]);
    assert!(!p.reads_o(), "no mark, no trust");
}

/// Killed alone: a trusted replica was evicted and another block copied there.
#[test]
fn ce1_mark_outlives_copies_kill() {
    let mut p = Play::at("mark-copy");
    p.mapped(R, true).act(&[Action::Evict(R), READ_X]).rest();
    p.act(&[BG]).waits("the daemon's write of R").rest().act(&[BG]).rest();
    p.act(&[BG]).rest().mapped(R, true);
    p.act(&[Action::Kill, Action::Attach]);
    assert!(!p.reads_o());
}

/// The page survives, the replica does not; the original verifies the entry.
#[test]
fn ce2_verification_looks_at_the_original_only() {
    let mut p = Play::at("replica-lost");
    let cached = p.0.devices()[0].cached();
    p.act(&[Action::PowerLoss(1 << (cached - 1)), Action::Check, Action::Attach]);
    p.act(&[READ]).rest().act(&[READ_COPY]).flies("the client's read of R").rest();
    let v = p.0.volume().unwrap();
    assert_eq!((v.stats().verified, v.stats().hash_mismatches), (1, 1), "R8 hashed it");
    p.mapped(R, false);
}

/// Mounted elsewhere, R taken and written; O is as it was, so the entry verifies.
#[test]
fn ce2_replica_taken_elsewhere() {
    let mut p = Play::at("elsewhere");
    p.act(&[Action::Kill, Action::ElsewhereWrites(R), Action::Check, Action::Attach]);
    p.act(&[READ]).rest().act(&[READ_COPY]).flies("the client's read of R").rest();
    p.mapped(R, false).act(&[Action::Read(R, From::Original)]).rest();
}

/// A verified page, O written, killed, checked: the page must not be verified any more.
#[test]
fn ce3_checker_does_not_launder() {
    let mut p = Play::at("chkfs2-quick");
    p.mapped(R, true).act(&[Action::Write(O)]).rest();
    p.act(&[Action::Kill, Action::Check, Action::Attach]).mapped(R, true);
    assert!(!p.reads_o());
    p.mapped(R, false);
}

/// A discard stays unread in a dead connection's socket; the client sends it again, uses the block, and then
/// the daemon reads the old one.
#[test]
fn ce4_late_discard_of_a_dead_connection() {
    let mut p = Play::at("connections");
    p.act(&[Action::SendDiscard(R), Action::Reconnect]).rest();
    p.act(&[Action::Alloc(R), Action::Write(R)]).rest();
    let old = (0..10).find(|c| p.0.is_enabled(Action::Receive(*c))).expect("it is in a socket");
    p.act(&[Action::Receive(old)]).rest().no_copy_to_r();
}

/// A copy is there, its block is discarded and that passed down.
#[test]
fn ce5_passed_discard_drops_the_mapping() {
    let mut p = Play::at("discard-pass");
    p.act(&[Action::Discard(R)]).flies("a discard of R").mapped(R, false);
    p.act(&[READ_COPY]).waits("the client's read of R").rest();
}

/// The discard has arrived and is in flight: no copy is made into its block before it has ended.
#[test]
fn ce5_no_copy_into_a_discard_in_flight() {
    let mut p = Play::at("discard-pass");
    p.act(&[READ]).rest().act(&[Action::Discard(R), BG]);
    p.waits("the daemon's write of R").lands("a discard of R").act(&[BG]).rest();
    assert!(p.0.is_enabled(READ_COPY));
    p.act(&[READ_COPY]).rest();
}

/// A punch of an evicted replica is in flight when the file system takes the block.
#[test]
fn ce6_punch_holds_the_block() {
    let mut p = Play::at("punch");
    p.act(&[Action::Evict(R), BG]).flies("a discard of R");
    p.act(&[Action::Alloc(R), Action::Write(R)]).waits("the client's write of R").unanswered(1);
    p.lands("a discard of R").lands("the client's write of R").unanswered(0);
    p.act(&[Action::Read(R, From::Original)]).rest();
}

/// A write to a block that holds a replica drops it; that is no reason to punch.
#[test]
fn ce6_write_of_the_replica_is_not_punched() {
    let mut p = Play::at("punch");
    p.act(&[Action::Alloc(R), Action::Write(R)]).rest().act(&[BG, BG]);
    p.waits("a discard of R").rest().act(&[Action::Read(R, From::Original)]).rest();
}

/// Two direct writes of one block in flight: no payload comes from a write, and reads wait for both.
#[test]
fn ce7_two_writes_in_flight() {
    let mut p = Play::at("direct");
    p.act(&[Action::WriteToo(O), Action::WriteToo(O)]);
    p.act(&[READ]).waits("the client's read of O").rest();
    p.act(&[BG]).rest();
    p.reads_o();
}

/// A read between two writes: it brings the first one's data while the second waits.
#[test]
fn ce7_read_between_two_writes() {
    let mut p = Play::at("direct");
    p.act(&[Action::WriteToo(O), READ, Action::WriteToo(O)]);
    p.lands("the client's write of O").lands("the client's read of O").act(&[BG]);
    p.waits("the daemon's write of R").rest().mapped(R, false);
    assert!(!p.reads_o());
}

/// A foreign writer is noticed: no entry may be read any more.
#[test]
fn ce8_foreign_writer_drops_the_replicas() {
    let mut p = Play::at("foreign");
    p.mapped(R, true).act(&[Action::ForeignWrites(O), Action::ForeignNoticed]).mapped(R, false);
    assert!(!p.reads_o());
    p.rest();
}

/// And the mark is erased, so that the next session does not trust them either.
#[test]
fn ce8_foreign_writer_erases_the_mark() {
    let mut p = Play::at("foreign");
    p.act(&[Action::ForeignWrites(O), Action::ForeignNoticed]);
    p.flies("the daemon's write of header slot 1").rest();
    p.act(&[Action::Detach]).rest().act(&[Action::Attach]).mapped(R, false);
    assert!(!p.reads_o());
}

/// A discard is held back by the mark's erasure; the client gives up, and uses the block.
#[test]
fn ce9_held_discard_frees_nothing() {
    let mut p = Play::at("held-discard");
    p.act(&[Action::Discard(R)]).unanswered(1).act(&[Action::GiveUp(R), Action::Alloc(R), Action::Write(R)]);
    p.unanswered(2).rest().unanswered(0).no_copy_to_r();
}

/// A tool marks a block used while a copy is on its way there.
#[test]
fn ce10_claim_waits_for_the_copy() {
    let mut p = Play::at("claim");
    p.act(&[Action::Evict(R), READ_X]).rest().act(&[BG]).flies("the daemon's write of R");
    p.act(&[Action::Claim(R)]).lands("the client's write of the bitmap").unanswered(1);
    p.lands("the daemon's write of R").unanswered(0).mapped(R, false);
}

/// F was valid at the attach; then a second mount froze it. No mark at the end.
#[test]
fn weak_no_mark_after_a_freeze() {
    let mut p = Play::at("second-mount");
    p.act(&[Action::Alloc(R), Action::WriteRefs]).rest().act(&[Action::KernelDies, Action::Mount]).rest();
    p.act(&[Action::Unmount, Action::Detach]).rest().act(&[Action::Attach]);
    assert!(matches!(p.0.volume().unwrap().standing(), fs2_engine::Standing::Inactive(_)));
}

/// A client took a block of the table: its pages may not be written, and so no mark either.
#[test]
fn weak_no_mark_after_the_table_was_lost() {
    let mut p = Play::at("table-lost");
    p.act(&[Action::Write(U)]).rest().act(&[Action::Write(O)]).rest();
    p.act(&[Action::Detach]).waits("the daemon's write of header slot 1").rest().act(&[Action::Attach]);
    assert!(!p.reads_o());
}

/// The first write of a session takes a block of the table: the mark goes first all the same.
#[test]
fn weak_the_mark_goes_before_the_write_that_takes_the_table() {
    let mut p = Play::at("mark");
    p.act(&[Action::Write(U)]).waits("the client's write of U");
    p.lands("the daemon's write of header slot 1").waits("the client's write of U");
    p.lands("the client's flush").lands("the client's write of U");
    p.act(&[Action::Write(O)]).rest().act(&[Action::Kill, Action::Attach]);
    assert!(!p.reads_o());
}

/// A client writes a bitmap that is not loaded: it waits for that one read, or the group would be lost.
#[test]
fn weak_a_bitmap_is_read_before_it_is_written() {
    let mut p = Play::at("unloaded");
    p.act(&[Action::SendBitmap, Action::BitmapArrives]).waits("the client's write of the bitmap");
    p.rest().unanswered(0);
    let v = p.0.volume().unwrap();
    assert!(v.liveness().unwrap().is_loaded(0) && *v.standing() == fs2_engine::Standing::Active);
    p.act(&[Action::Detach]).rest().act(&[Action::Attach]);
    assert_eq!(*p.0.volume().unwrap().standing(), fs2_engine::Standing::Active);
}

/// Choice, pin and dispatch of a read from a replica are one step: a write of the replica comes before, and
/// the read goes to the original, or after, and waits.
#[test]
fn weak_choice_pin_and_dispatch_are_one_step() {
    let mut p = Play::at("pins");
    p.act(&[READ_COPY]).flies("the client's read of R");
    p.act(&[Action::Alloc(R), Action::Write(R)]).waits("the client's write of R");
    p.lands("the client's read of R").lands("the client's write of R");
    p.act(&[READ_COPY]).flies("the client's read of O").rest();
    p.act(&[READ_X]).rest();
    assert!(p.0.kernel.is_live(X));
}
