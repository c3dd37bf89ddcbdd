//! One changed file: its texts, and its revert.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cap_std::fs::Dir;
use rustix::fs::fstat;

use super::baseline::{Baseline, StoredFile};
use super::place::{open_entry, parent_of, relative_path};
use super::walk::ChangeBounds;
use crate::error::FileError;
use crate::roots::{Workspace, open_child};
use crate::stat::{EntryKind, FileStat, Owner, Precondition};
use crate::text::text;
use crate::write::{create_folder, create_temp_file, lock_name};

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
    let baseline = Baseline::load(folder).ok_or(FileError::NotStored)?;
    let path = relative_path(path)?;
    let kind = kind_of(&baseline, &path, stat_current(workspace, &path)?.as_ref())?;
    let mut old = None;
    let mut new = None;
    let mut etag = None;
    if kind != ChangeKind::Deleted {
        let (bytes, tag) = read_current(workspace, &path, bounds.max_file_bytes)?;
        new = Some(bytes);
        etag = Some(tag);
    }
    if kind != ChangeKind::Added {
        old = Some(read_old(&baseline, folder, baseline.files.get(&path))?);
    }
    if old == new {
        return Err(FileError::Unchanged);
    }
    let to_text = |bytes: Option<Vec<u8>>| {
        let text = bytes.map(|bytes| text(&bytes).map(str::to_owned).ok_or(FileError::NotText));
        text.transpose()
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
    let baseline = Baseline::load(folder).ok_or(FileError::NotStored)?;
    let path = relative_path(path)?;
    let current = stat_current(workspace, &path)?;
    let kind = kind_of(&baseline, &path, current.as_ref())?;
    if kind == ChangeKind::Added {
        remove(workspace, &path, expected)?;
        return Ok(None);
    }
    let stored = baseline.files.get(&path);
    let old = read_old(&baseline, folder, stored)?;
    let mode = stored.map_or(0o666, |stored| stored.mode);
    restore(workspace, &path, expected, &old, mode).map(Some)
}

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
    read_old: impl FnOnce() -> Result<Vec<u8>, FileError>,
    path: &str,
    kind: ChangeKind,
    max_bytes: u64,
) -> Sides {
    let mut sides = Sides::default();
    if kind != ChangeKind::Added {
        sides.old = read_old().ok();
        sides.too_large |= sides.old.is_none();
    }
    if kind != ChangeKind::Deleted {
        let current = read_current(workspace, path, max_bytes);
        sides.new = current.ok().map(|(bytes, _)| bytes);
        sides.too_large |= sides.new.is_none();
    }
    sides
}
pub(super) fn read_old(
    baseline: &Baseline,
    folder: &Path,
    stored: Option<&StoredFile>,
) -> Result<Vec<u8>, FileError> {
    let content = stored.and_then(|stored| stored.content);
    baseline.read(folder, &content.ok_or(FileError::NotStored)?)
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
    match parent_of(workspace, path)? {
        Some((directory, name)) => FileStat::of_entry(&directory, name),
        None => Ok(None),
    }
}

/// A temporary file that is removed when it is dropped.
struct TemporaryName<'a> {
    directory: &'a Dir,
    name: OsString,
}

impl Drop for TemporaryName<'_> {
    fn drop(&mut self) {
        // After a rename the temporary file does not exist.
        let _ = self.directory.remove_file(&self.name);
    }
}

/// Writes a file with these bytes and permission bits, and creates the missing directories above it. Returns its entity
/// tag.
pub(super) fn restore(
    workspace: &Workspace,
    path: &str,
    expected: &Precondition,
    bytes: &[u8],
    mode: u32,
) -> Result<String, FileError> {
    let (directory, name) = if let Some(place) = parent_of(workspace, path)? {
        place
    } else {
        expected.check(None)?;
        create_parent(workspace, path)?
    };
    let seen = Seen::of(&directory, name)?;
    expected.check(seen.etag())?;
    let owner = match &seen {
        Seen::File(file) if file.mode & 0o222 == 0 => return Err(FileError::PermissionDenied),
        Seen::File(file) => file.owner,
        Seen::Nothing | Seen::Link => Owner::of(&directory)?,
    };
    let (temporary, mut file) = create_temp_file(&directory, mode)?;
    let temporary = TemporaryName {
        directory: &directory,
        name: temporary,
    };
    owner.give(&file)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    let _alone = lock_name(&directory, OsStr::new(name))?;
    let seen = Seen::of(&directory, name)?;
    expected.check(seen.etag())?;
    if matches!(seen, Seen::Nothing) {
        // Unlike a rename, this fails if another process has created the file since the check.
        let linked = directory.hard_link(&temporary.name, &directory, name);
        linked.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FileError::Changed,
            _ => error.into(),
        })?;
        directory.remove_file(&temporary.name)?;
    } else {
        directory.rename(&temporary.name, &directory, name)?;
    }
    Ok(FileStat::from(fstat(&file)?).etag)
}

/// Removes a regular file.
pub(super) fn remove(
    workspace: &Workspace,
    path: &str,
    expected: &Precondition,
) -> Result<(), FileError> {
    let (directory, name) = parent_of(workspace, path)?.ok_or(FileError::Missing)?;
    let _alone = lock_name(&directory, OsStr::new(name))?;
    match Seen::of(&directory, name)? {
        Seen::File(file) => {
            expected.check(Some(&file.etag))?;
            Ok(directory.remove_file(name)?)
        }
        Seen::Nothing | Seen::Link => Err(FileError::Missing),
    }
}

/// The entry with a name.
enum Seen {
    Nothing,
    File(FileStat),
    Link,
}

impl Seen {
    fn of(directory: &Dir, name: &str) -> Result<Self, FileError> {
        match FileStat::of_entry(directory, name)? {
            None => Ok(Self::Nothing),
            Some(stat) if stat.kind == EntryKind::Link => Ok(Self::Link),
            Some(stat) => stat.require_regular().map(Self::File),
        }
    }

    /// The entity tag of the file. A link has none: its target is another file.
    fn etag(&self) -> Option<&str> {
        match self {
            Self::File(file) => Some(&file.etag),
            Self::Nothing | Self::Link => None,
        }
    }
}

/// Creates the missing directories above a path. Each gets the owner of the directory that contains it.
fn create_parent<'a>(workspace: &Workspace, path: &'a str) -> Result<(Dir, &'a str), FileError> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut directory = workspace.working_directory()?;
    for part in above.split('/').filter(|part| !part.is_empty()) {
        create_folder(&directory, part.as_ref())?;
        // A link or a file with this name is an error.
        directory = open_child(&directory, part.as_ref()).map_err(|error| match error {
            FileError::Missing => FileError::NotADirectory,
            error => error,
        })?;
    }
    Ok((directory, name))
}
