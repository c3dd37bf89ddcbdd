//! Changes the owner of folders that agents can change at the same time. It follows no link in them.

use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chownat, fchown, fstat, openat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

/// An agent could nest folders until the recursion exhausts the stack or the file descriptors.
const MAX_DEPTH: usize = 128;

/// The permission to enter a folder, for everybody. It does not include the permission to list it.
const SEARCH: u32 = 0o011;

/// The owner and the group of everything that belongs to a user of `isolation.run_as`.
pub(super) fn ids(user: u32) -> (Uid, Gid) {
    (Uid::from_raw(user), Gid::from_raw(user))
}

/// Makes the user the owner of a folder and of its content. The folder itself is last, so its owner shows that
/// the change is complete.
///
/// Files on other file systems, devices, and files of other users with several names keep their owner: they can be the
/// files of somebody else.
pub(super) fn give_tree(folder: &Path, user: u32) -> io::Result<()> {
    let opened = openat(
        CWD,
        folder,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let device = fstat(&opened)?.st_dev;
    let mut transfer = Transfer {
        user,
        device,
        kept: 0,
    };
    transfer.folder(&opened, 0)?;
    if transfer.kept > 0 {
        let (folder, files) = (folder.display(), transfer.kept);
        tracing::warn!(%folder, files, "files with several names keep their owner");
    }
    Ok(())
}

/// Makes the user the owner of an empty folder, which only this user can enter.
pub(super) fn give_new_folder(folder: &Path, user: u32) -> io::Result<()> {
    let (owner, group) = ids(user);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, folder, flags, Mode::empty())?;
    rustix::fs::fchmod(&opened, Mode::RWXU)?;
    Ok(fchown(&opened, Some(owner), Some(group))?)
}

/// Permits users to reach the folders below a folder of the gateway.
pub(super) fn make_searchable(folder: &Path) -> io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode();
    if mode & SEARCH == SEARCH {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode((mode & 0o7777) | SEARCH))
}

struct Transfer {
    user: u32,
    device: u64,
    /// The number of files with several names.
    kept: usize,
}

impl Transfer {
    fn folder(&mut self, folder: &OwnedFd, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other(format!(
                "its folders are nested more than {MAX_DEPTH} times"
            )));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(folder, ".", flags, Mode::empty())?;
        for entry in Dir::read_from(&listed)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                self.entry(folder, entry.file_name(), depth)?;
            }
        }
        self.give(folder)
    }

    fn entry(&mut self, folder: &OwnedFd, name: &CStr, depth: usize) -> io::Result<()> {
        // The descriptor stays the same file when a process replaces the name.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match openat(folder, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let stat = fstat(&opened)?;
        if stat.st_dev != self.device {
            return Ok(());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.folder(&opened, depth + 1),
            FileType::RegularFile if stat.st_nlink > 1 && stat.st_uid != self.user => {
                self.kept += 1;
                Ok(())
            }
            FileType::RegularFile | FileType::Symlink | FileType::Fifo | FileType::Socket => {
                self.give(&opened)
            }
            _ => Ok(()),
        }
    }

    fn give(&self, opened: &OwnedFd) -> io::Result<()> {
        let (owner, group) = ids(self.user);
        Ok(chownat(
            opened,
            "",
            Some(owner),
            Some(group),
            AtFlags::EMPTY_PATH,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn owner_changes_below_a_folder_and_behind_no_link() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("this test needs root");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("home/a/b")).unwrap();
        for name in ["outside", "linked", "home/a/b/file"] {
            fs::write(path(name), "x").unwrap();
        }
        symlink(path("outside"), path("home/link")).unwrap();
        fs::hard_link(path("linked"), path("home/hard")).unwrap();
        give_tree(&path("home"), 100_007).unwrap();
        let owner = |name: &str| {
            let meta = fs::symlink_metadata(path(name)).unwrap();
            (meta.uid(), meta.gid())
        };
        for name in ["home", "home/a", "home/a/b", "home/a/b/file", "home/link"] {
            assert_eq!(owner(name), (100_007, 100_007), "{name}");
        }
        assert_eq!(owner("outside"), (0, 0), "behind a link");
        assert_eq!(owner("linked"), (0, 0), "a file with another name");
    }

    #[test]
    fn deeply_nested_folders_are_an_error() {
        let root = tempfile::tempdir().unwrap();
        let nested = (0..=MAX_DEPTH + 1).fold(root.path().to_owned(), |path, _| path.join("d"));
        fs::create_dir_all(nested).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let error = give_tree(root.path(), own).unwrap_err().to_string();
        assert!(error.contains("nested"), "{error}");
    }

    #[test]
    fn searchable_folder_is_not_listable() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o700)).unwrap();
        make_searchable(root.path()).unwrap();
        assert_eq!(
            fs::metadata(root.path()).unwrap().permissions().mode() & 0o777,
            0o711
        );
    }
}
