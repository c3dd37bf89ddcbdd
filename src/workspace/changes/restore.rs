//! Writes a file as it was at the start, and removes an added file. No link is followed. A link that has replaced the file
//! is replaced itself.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, fstat, statat};
use rustix::io::Errno;

use super::place::parent_of;
use crate::workspace::error::FileError;
use crate::workspace::owner::Owner;
use crate::workspace::roots::{Workspace, open_child};
use crate::workspace::stat::{EntryKind, FileStat, Precondition};
use crate::workspace::write::{create_temp_file, lock_name};

/// A temporary file that is removed when it is dropped.
struct TemporaryName<'a> {
    directory: &'a Dir,
    name: OsString,
}

impl Drop for TemporaryName<'_> {
    fn drop(&mut self) {
        // After a rename the temporary file does not exist.
        drop(self.directory.remove_file(&self.name));
    }
}

/// Writes a file with these bytes and permission bits, and creates the missing directories above it. Returns its entity
/// tag.
pub(super) fn restore(
    workspace: &Workspace,
    path: &str,
    expected: &Precondition,
    (bytes, mode): (&[u8], u32),
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
        // Unlike a rename, this fails if the file was created meanwhile.
        directory
            .hard_link(&temporary.name, &directory, name)
            .map_err(|error| match error.kind() {
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
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileStat::from(stat),
            Err(Errno::NOENT) => return Ok(Self::Nothing),
            Err(error) => return Err(error.into()),
        };
        if stat.kind == EntryKind::Link {
            Ok(Self::Link)
        } else {
            stat.require_regular().map(Self::File)
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
        let created = match directory.create_dir(part) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error.into()),
        };
        // A link or a file with this name is an error.
        let child = open_child(&directory, OsStr::new(part)).map_err(|error| match error {
            FileError::Missing => FileError::NotADirectory,
            error => error,
        })?;
        if created {
            Owner::of(&directory)?.give(&child)?;
        }
        directory = child;
    }
    Ok((directory, name))
}
