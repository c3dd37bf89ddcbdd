//! One changed file: its texts, and its revert.

use std::path::Path;

use super::baseline::Baseline;
use super::bounds::ChangeBounds;
use super::place::relative_path;
use super::restore::{remove, restore};
use super::sides::{ChangeKind, read_current, read_old, stat_current};
use crate::workspace::error::FileError;
use crate::workspace::media::text;
use crate::workspace::roots::Workspace;
use crate::workspace::stat::{EntryKind, FileStat, Precondition};

/// The texts of a changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedText {
    pub kind: ChangeKind,
    /// `None` for an added file.
    pub old: Option<String>,
    /// `None` for a deleted file.
    pub new: Option<String>,
    /// The entity tag of the current file.
    pub etag: Option<String>,
}

/// The kind of the change of a file that differs from the start, or may differ.
fn kind_of(
    baseline: &Baseline,
    path: &str,
    current: Option<&FileStat>,
) -> Result<ChangeKind, FileError> {
    let known = baseline.files.contains_key(path);
    let is_file = current.is_some_and(|current| current.kind == EntryKind::File);
    match (known, is_file) {
        (true, true) => Ok(ChangeKind::Modified),
        (true, false) => Ok(ChangeKind::Deleted),
        (false, true) if baseline.others.contains(path) => Ok(ChangeKind::Modified),
        (false, true) if baseline.lacks(path) => Ok(ChangeKind::Added),
        (false, true) => Err(FileError::Unchanged),
        (false, false) => Err(FileError::Missing),
    }
}

/// Reads the texts of a changed file.
pub fn text_of(
    workspace: &Workspace,
    folder: &Path,
    path: &str,
    bounds: &ChangeBounds,
) -> Result<ChangedText, FileError> {
    let (baseline, path) = (
        Baseline::load(folder).ok_or(FileError::NotStored)?,
        relative_path(path)?,
    );
    let kind = kind_of(&baseline, &path, stat_current(workspace, &path)?.as_ref())?;
    let (mut old, mut new, mut etag) = (None, None, None);
    if kind != ChangeKind::Deleted {
        let (bytes, tag) = read_current(workspace, &path, bounds.max_file_bytes)?;
        (new, etag) = (Some(bytes), Some(tag));
    }
    if kind != ChangeKind::Added {
        old = Some(read_old(&baseline, folder, baseline.files.get(&path))?);
    }
    if old == new {
        return Err(FileError::Unchanged);
    }
    let to_text = |bytes: Option<Vec<u8>>| {
        bytes
            .map(|bytes| text(&bytes).map(str::to_owned).ok_or(FileError::NotText))
            .transpose()
    };
    Ok(ChangedText {
        kind,
        old: to_text(old)?,
        new: to_text(new)?,
        etag,
    })
}

/// Returns a file to its state at the start, if it matches the precondition. Removes an added file. Returns the entity tag
/// of the file, if it exists afterwards.
pub fn revert(
    workspace: &Workspace,
    folder: &Path,
    path: &str,
    expected: &Precondition,
) -> Result<Option<String>, FileError> {
    let (baseline, path) = (
        Baseline::load(folder).ok_or(FileError::NotStored)?,
        relative_path(path)?,
    );
    let current = stat_current(workspace, &path)?;
    let kind = kind_of(&baseline, &path, current.as_ref())?;
    if kind == ChangeKind::Added {
        remove(workspace, &path, expected)?;
        return Ok(None);
    }
    let stored = baseline.files.get(&path);
    let old = read_old(&baseline, folder, stored)?;
    let mode = stored.map_or(0o666, |stored| stored.mode);
    restore(workspace, &path, expected, (&old, mode)).map(Some)
}
