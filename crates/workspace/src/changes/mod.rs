//! The changes of a folder since the start of a session.
//!
//! A baseline records the metadata of all files of the folder at the start, and the contents of small files. A comparison
//! walks through the folder again. The agent controls the folder, so its files are read only through handles, links are
//! never followed, and no other program runs.
//!
//! Reading order: [`rules`], [`walk`], [`baseline`], [`place`], [`capture`], [`change`], [`compare`].
//!
//! Rules of the design:
//!
//! - No git runs here. Git executes hooks, filters and `core.fsmonitor` of the folder, so programs of the agent would
//!   run outside of its isolation. The crate `ignore` provides only its matcher: the matcher receives text and opens
//!   no file.
//! - A revert deletes an added file. A file therefore counts as added only if the baseline proves its absence at the
//!   start. The baseline records each path that the walk did not visit.
//! - Current `.gitignore` patterns hide only new files. Otherwise an agent could hide the change of an existing file.
//! - The kernel updates ctime at an interval. If a file changed shortly before its baseline, the comparison reads its
//!   content despite equal metadata. On a file system whose clock is more than two seconds late, a write of the same
//!   size can be missed.
//! - Checksums replace fsync. A damaged record counts as absent, and the session gets a new baseline.
//!
//! Rejected storage:
//!
//! - Contents under their SHA-256, shared by all sessions: each new session would read and hash all files. The
//!   deletion of a content would need a reference count, which a crash can damage. The file system counts hard links
//!   itself.
//! - Contents in SQLite: a baseline would delay the commits of all sessions.

mod baseline;
mod capture;
mod change;
mod compare;
mod place;
mod rules;
mod walk;

#[cfg(test)]
mod tests;

pub use baseline::{has_baseline, own_bytes};
pub use capture::{Capture, take_baseline};
pub use change::{ChangeKind, ChangedText, revert, text_of};
pub use compare::{ChangedFile, FolderChanges, compare};
pub use walk::ChangeBounds;
