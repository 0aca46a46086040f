//! What a mark is worth, and its erasure before something else is let at the volume.

use std::fmt;

use fs2_block::ReadAt;
use fs2_ext2::Layout;
use fs2_table::{BitmapChecksums, Header, MarkRefused, Recovered, Token, TokenDiffers};

use super::place::{Place, Stands};
use super::undo::refuse_other_volume;
use super::{Devices, OfflineError};
use crate::backups;
use crate::volume::NO_MARK;

/// What the mark that was found is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkFound {
    /// There is none: the last session did not end cleanly, or trusted no replica itself.
    None,
    /// It says what is so.
    Valid,
    /// It stands where nobody may believe it.
    Refused(MarkRefused),
    /// It is for another state of the volume, or was written without a look at all of it.
    Token(TokenDiffers),
    /// It is for another state of the volume's bitmaps. What differs.
    Differs(String),
    /// It cannot be compared. What cannot be read.
    Unread(String),
    /// The caller knows that the volume was written since.
    WrittenSince,
}

impl fmt::Display for MarkFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MarkFound::None => f.write_str(NO_MARK),
            MarkFound::Valid => f.write_str("the last session ended cleanly"),
            MarkFound::Refused(why) => write!(f, "its mark counts for nothing: {why}"),
            MarkFound::Token(what) => what.fmt(f),
            MarkFound::Unread(what) => f.write_str(what),
            MarkFound::Differs(what) => write!(f, "the volume was changed outside FS2; what differs: {what}"),
            MarkFound::WrittenSince => f.write_str(
                "the volume was written (or renamed, linked, or its mode or times changed), or taken away and brought back, since FS2 last \
                 served it",
            ),
        }
    }
}

/// What a first look at a volume says, before anything is run on it.
#[derive(Clone, Debug)]
pub struct Look {
    /// The layout, where it could be read.
    pub layout: Layout,
    /// What the table's mark is worth; bitmaps are not compared. Why there is none to speak of.
    pub mark: Result<MarkFound, String>,
}

/// Looks at the superblock and its copies, descriptors and the table's header. Writes nothing.
///
/// # Errors
/// Where the volume's layout or a device cannot be read.
pub fn look(devices: &mut Devices<'_>) -> Result<Look, OfflineError> {
    let layout = Layout::read(&mut *devices.volume)?;
    let found = || -> Result<MarkFound, OfflineError> {
        let place = Place::find(devices, &layout)?;
        let found = place.slots(devices.home())?;
        let stands = Stands::of(&found, &place)?;
        Ok(mark_found(&found, &stands, &layout, &mut *devices.volume))
    }();
    let mark = match found {
        Ok(mark) => Ok(mark),
        Err(e @ OfflineError::Io { .. }) => return Err(e),
        Err(e) => Err(e.to_string()),
    };
    Ok(Look { layout, mark })
}

pub(super) fn mark_found(
    found: &Recovered,
    stands: &Stands,
    layout: &Layout,
    dev: &mut dyn ReadAt,
) -> MarkFound {
    if let Some(why) = found.report.mark_refused {
        return MarkFound::Refused(why);
    }
    match stands.header.mark.as_deref() {
        Some(mark) => worth_of(&mark.token, layout, dev),
        None => MarkFound::None,
    }
}

fn worth_of(token: &Token, layout: &Layout, dev: &mut dyn ReadAt) -> MarkFound {
    let superblock = layout.superblock().raw();
    if token.superblock != *superblock {
        return MarkFound::Token(TokenDiffers::Superblock);
    }
    match backups::hashes(layout, dev) {
        Ok(copies) => token
            .differs(superblock, layout.descriptors_bytes(), &copies)
            .map_or(MarkFound::Valid, MarkFound::Token),
        Err(p) => MarkFound::Unread(backups::unread(&p)),
    }
}

/// A mark that was erased before something else was let at the volume. It counts again where nothing has changed.
#[derive(Clone, Debug)]
pub struct Unmarked {
    token: Token,
    pub(super) pages_end: Option<u32>,
    /// Of the block bitmaps, or why there are none.
    pub(super) sums: Result<BitmapChecksums, String>,
}

impl Unmarked {
    pub(super) fn found(&self, layout: &Layout, dev: &mut dyn ReadAt) -> MarkFound {
        match &self.sums {
            Ok(_) => worth_of(&self.token, layout, dev),
            Err(what) => MarkFound::Differs(what.clone()),
        }
    }
}

/// Erases the mark, durably, whatever it is worth; `None` where none stands.
///
/// # Errors
/// [`OfflineError::OtherVolume`], before anything is written; where there is no table, or devices fail.
pub fn unmark(devices: &mut Devices<'_>) -> Result<Option<Unmarked>, OfflineError> {
    let layout = Layout::read(&mut *devices.volume)?;
    let place = Place::find(devices, &layout)?;
    let found = place.slots(devices.home())?;
    // Also one that does not fit its place: a session would look at the mark all the same.
    let Some(header) = found.header.clone() else { return Ok(None) };
    refuse_other_volume(devices, &found, &layout)?;
    let mut stands = Stands { header, slot: found.slot, unread: found.unread_slot() };
    let Some(mark) = stands.header.mark.clone() else {
        if stands.unread.is_some() {
            // What is refused for a slot that cannot be read may be believed once it can be.
            stands.erase_mark(&place, devices)?;
        }
        return Ok(None);
    };
    let sums = match Stands::of(&found, &place) {
        Ok(stands) => marked_sums(devices, &place, &stands, &layout),
        Err(e) => Err(e.to_string()),
    };
    stands.erase_mark(&place, devices)?;
    Ok(Some(Unmarked { token: mark.token, pages_end: mark.pages_end, sums }))
}

/// Writes a mark again that [`unmark`] erased, where it counts and nobody wrote the volume since, as the caller knows. Whether it stands.
///
/// # Errors
/// Where there is no table, or devices fail.
pub fn mark_again(devices: &mut Devices<'_>, unmarked: &Unmarked) -> Result<bool, OfflineError> {
    let layout = Layout::read(&mut *devices.volume)?;
    layout.check_usable()?;
    let place = Place::find(devices, &layout)?;
    let found = place.slots(devices.home())?;
    let mut stands = Stands::of(&found, &place)?;
    match (&unmarked.sums, unmarked.found(&layout, &mut *devices.volume)) {
        (Ok(sums), MarkFound::Valid) if stands.header.mark.is_none() => {
            stands.write_mark(&place, devices, &layout, sums, unmarked.pages_end)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// The checksums that the mark was written with.
pub(super) fn marked_sums(
    devices: &mut Devices<'_>,
    place: &Place,
    stands: &Stands,
    layout: &Layout,
) -> Result<BitmapChecksums, String> {
    let Header { mark: Some(mark), volume_id, .. } = &stands.header else { return Err("nothing".into()) };
    let (at, len) = (place.geometry.checksums_offset(stands.slot), place.geometry.checksums_bytes());
    let bytes = place.read(devices.home(), at, len as usize).map_err(|e| e.to_string())?;
    BitmapChecksums::decode(&bytes, layout.group_count(), *volume_id, mark.bitmap_checksums_hash)
        .map_err(|_| "the checksums of the block bitmaps".to_string())
}
