//! Opens files of the folder by name, without links anywhere in the path.

use std::ffi::OsStr;
use std::fs::File;

use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags, Stat, fstat, openat};

use crate::error::FileError;
use crate::read::OpenFile;
use crate::roots::{Workspace, normalize, open_child};
use crate::stat::{FileStat, Owner};

/// Opens a regular file of a directory that is not a link. `owner` is the owner of the folder.
pub(super) fn open_entry(
    directory: &Dir,
    name: &str,
    owner: Owner,
) -> Result<(OpenFile, Stat), FileError> {
    // A FIFO without a writer must not block, and a terminal must not become the controlling terminal.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    let stat = fstat(&file)?;
    let seen = FileStat::from(stat).require_regular()?;
    if !owner.permits(&stat) {
        return Err(FileError::PermissionDenied);
    }
    Ok((OpenFile::new(file, seen), stat))
}

/// A relative path of the folder, in the form of the baseline. `.git` is not part of a comparison.
pub(super) fn relative_path(path: &str) -> Result<String, FileError> {
    let path = normalize(path)?;
    let text = path.to_str().ok_or(FileError::Missing)?;
    let outside = text.is_empty() || path.is_absolute();
    if outside || text.split('/').any(|name| name == ".git") {
        return Err(FileError::Missing);
    }
    Ok(text.to_owned())
}

/// The directory that contains a path, and the name in it. `None` if the directory does not exist, or if a link is part
/// of its path.
pub(super) fn parent_of<'a>(
    workspace: &Workspace,
    path: &'a str,
) -> Result<Option<(Dir, &'a str)>, FileError> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut directory = workspace.working_directory()?;
    for part in above.split('/').filter(|part| !part.is_empty()) {
        directory = match open_child(&directory, OsStr::new(part)) {
            Ok(child) => child,
            Err(FileError::Missing) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some((directory, name)))
}
