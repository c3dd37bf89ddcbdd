//! Opens folders at their stored paths, without following symbolic links.
//!
//! The path of a session's folder contained no link when it was stored. An agent that can write to a parent can replace
//! the folder with a link to a folder that the next process must not access.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

use base::types::FolderError;

/// The error of a folder that could not be opened.
pub(super) fn folder_error(folder: &Path, error: Errno) -> FolderError {
    let folder = folder.to_owned();
    match error {
        Errno::LOOP => FolderError::Replaced { folder },
        Errno::NOENT | Errno::NOTDIR => FolderError::Missing { folder },
        error => FolderError::Unusable {
            folder,
            cause: error.to_string(),
        },
    }
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a folder whose absolute path contains no symbolic link. The descriptor permits no reads and writes.
pub(super) fn open_real_folder(path: &Path) -> Result<OwnedFd, FolderError> {
    walk(path, |parent, name| open_child(parent, name, FOLDER))
        .map_err(|error| folder_error(path, error))
}

/// Checks that a folder exists at its path, which contains no symbolic link. Blocks.
pub fn check_real_folder(path: &Path) -> Result<(), FolderError> {
    open_real_folder(path).map(drop)
}

/// As [`open_real_folder`]. Creates missing folders.
pub(super) fn open_or_create(path: &Path) -> Result<OwnedFd, FolderError> {
    let opened = walk(path, |parent, name| {
        match open_child(parent, name, FOLDER) {
            Err(Errno::NOENT) => {
                mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
                open_child(parent, name, FOLDER)
            }
            opened => opened,
        }
    });
    opened.map_err(|error| folder_error(path, error))
}

/// Opens a file or a folder whose absolute path contains no symbolic link.
pub(super) fn open_real_file(path: &Path) -> rustix::io::Result<OwnedFd> {
    walk(path, |parent, name| {
        open_child(parent, name, OFlags::PATH | OFlags::CLOEXEC)
    })
}

/// Opens the root and then each name of a path in its parent. This works on kernels without `openat2`.
fn walk(
    path: &Path,
    mut open: impl FnMut(&OwnedFd, &Path) -> rustix::io::Result<OwnedFd>,
) -> rustix::io::Result<OwnedFd> {
    let mut components = path.components();
    if !path.is_absolute() || components.any(|component| component == Component::ParentDir) {
        return Err(Errno::INVAL);
    }
    let mut opened = openat(CWD, "/", FOLDER, Mode::empty())?;
    for name in path.components().skip(1) {
        opened = open(&opened, name.as_ref())?;
    }
    Ok(opened)
}

/// Opens a child of a folder. A link is `ELOOP`.
fn open_child(parent: impl AsFd, name: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let is_link = |stat: rustix::io::Result<Stat>| {
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    };
    match openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOTDIR) if is_link(statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)) => {
            Err(Errno::LOOP)
        }
        // Without `DIRECTORY`, the link itself is open.
        Ok(opened) if is_link(fstat(&opened)) => Err(Errno::LOOP),
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folder_behind_a_link_is_not_opened() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let path = |name: &str| root.join(name);
        std::fs::create_dir_all(path("real/folder")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        symlink(path("real"), path("parent")).unwrap();
        symlink(path("real/folder"), path("link")).unwrap();
        assert!(open_real_folder(&path("real/folder")).is_ok());
        for name in ["parent/folder", "link"] {
            let folder = path(name);
            assert_eq!(
                open_real_folder(&folder).unwrap_err(),
                FolderError::Replaced {
                    folder: folder.clone()
                }
            );
            assert_eq!(
                open_or_create(&folder).unwrap_err(),
                FolderError::Replaced {
                    folder: folder.clone()
                }
            );
            assert_eq!(open_real_file(&folder).unwrap_err(), Errno::LOOP);
        }
        for name in ["file", "nowhere", "nowhere/below"] {
            let folder = path(name);
            assert_eq!(
                open_real_folder(&folder).unwrap_err(),
                FolderError::Missing {
                    folder: folder.clone()
                }
            );
        }
        assert!(open_real_file(&path("file")).is_ok());
        for wrong in ["relative", "/a/../b"] {
            assert!(
                matches!(
                    open_real_folder(Path::new(wrong)),
                    Err(FolderError::Unusable { .. })
                ),
                "{wrong}"
            );
        }
        open_or_create(&path("new/below")).unwrap();
        assert!(path("new/below").is_dir());
    }
}
