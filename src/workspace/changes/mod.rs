//! The changes of a folder since the start of a session.
//!
//! A baseline records the metadata of all files of the folder at the start, and the contents of small files. A comparison
//! walks through the folder again. The agent controls the folder, so its files are read only through handles, links are
//! never followed, and no other program runs. The reasons are in `docs/adr/0048-changes-of-a-session.md`.
//!
//! Reading order: [`bounds`], [`rules`], [`walk`], [`baseline`], [`pack`], [`place`], [`capture`], [`sides`],
//! [`compare`] with [`lines`], [`change`], [`restore`].

mod baseline;
mod bounds;
mod capture;
mod change;
mod compare;
mod lines;
mod pack;
mod place;
mod restore;
mod rules;
mod sides;
mod walk;

#[cfg(test)]
mod tests;

pub use baseline::{has_baseline, own_bytes};
pub use bounds::ChangeBounds;
pub use capture::{Capture, take_baseline};
pub use change::{ChangedText, revert, text_of};
pub use compare::{ChangedFile, FolderChanges, compare};
pub use sides::ChangeKind;
