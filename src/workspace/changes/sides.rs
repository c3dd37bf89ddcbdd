//! The two sides of a change: the content at the start, and the current content.

use std::path::Path;

use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use super::baseline::{Baseline, StoredFile};
use super::place::{open_entry, parent_of};
use crate::workspace::error::FileError;
use crate::workspace::owner::Owner;
use crate::workspace::roots::Workspace;
use crate::workspace::stat::FileStat;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// The contents of a changed file, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Sides {
    pub(super) old: Option<Vec<u8>>,
    pub(super) new: Option<Vec<u8>>,
    /// Whether a content is missing that the file has or had.
    pub(super) too_large: bool,
}

/// Reads both contents of a changed file.
pub(super) fn read_sides(
    workspace: &Workspace,
    (baseline, folder): (&Baseline, &Path),
    (path, kind): (&str, ChangeKind),
    max_bytes: u64,
) -> Sides {
    let mut sides = Sides::default();
    if kind != ChangeKind::Added {
        sides.old = read_old(baseline, folder, baseline.files.get(path)).ok();
        sides.too_large |= sides.old.is_none();
    }
    if kind != ChangeKind::Deleted {
        sides.new = read_current(workspace, path, max_bytes)
            .ok()
            .map(|(bytes, _)| bytes);
        sides.too_large |= sides.new.is_none();
    }
    sides
}

pub(super) fn read_old(
    baseline: &Baseline,
    folder: &Path,
    stored: Option<&StoredFile>,
) -> Result<Vec<u8>, FileError> {
    let content = stored
        .and_then(|stored| stored.content)
        .ok_or(FileError::NotStored)?;
    baseline.read(folder, &content)
}

pub(super) fn read_current(
    workspace: &Workspace,
    path: &str,
    max_bytes: u64,
) -> Result<(Vec<u8>, String), FileError> {
    let owner = Owner::of(&workspace.working_directory()?)?;
    let (directory, name) = parent_of(workspace, path)?.ok_or(FileError::Missing)?;
    let (file, _) = open_entry(&directory, name, owner)?;
    Ok((file.read(max_bytes)?, file.stat.etag))
}

/// The current entry with a path, without links. `None` if there is none.
pub(super) fn stat_current(
    workspace: &Workspace,
    path: &str,
) -> Result<Option<FileStat>, FileError> {
    let Some((directory, name)) = parent_of(workspace, path)? else {
        return Ok(None);
    };
    match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
