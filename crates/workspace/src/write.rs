//! Writes and deletes files. A write goes to a temporary file that then replaces the target, so a reader
//! never sees a partial file.
//!
//! - A lock on the name orders two clients with the same `If-Match`. An agent that writes the file does not use this
//!   lock.
//! - With `If-None-Match: *` the temporary file is linked and not renamed. A rename could replace a file that the agent
//!   created after the check.
//! - After a kill during a write, a file `.acp-gateway-*` remains in the folder.
//! - A write to a file with several hard links separates this name from the others.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use rustix::fs::fstat;
use rustix::io::Errno;

use super::error::FileError;
use super::roots::{ResolvedPath, Workspace, open_child};
use super::stat::{EntityTags, EntryKind, FileStat, Owner, Precondition};
use base::shutdown::lock_or_abort;

/// Locks for concurrent changes, selected by a hash of the name.
const NAME_LOCK_COUNT: usize = 32;
static NAME_LOCKS: [Mutex<()>; NAME_LOCK_COUNT] = [const { Mutex::new(()) }; NAME_LOCK_COUNT];

/// A file that is being written. If it is dropped before [`Upload::finish`], nothing remains.
#[derive(Debug)]
pub struct Upload {
    target: ParentAndName,
    temp_name: OsString,
    file: File,
    precondition: Precondition,
    /// The number of bytes that may still be written.
    remaining_bytes: u64,
    max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOutcome {
    /// The file did not exist before.
    pub created: bool,
    pub etag: String,
}

/// A name in an open directory. It needs no further resolution.
#[derive(Debug)]
struct ParentAndName {
    parent: Dir,
    name: OsString,
}

impl Workspace {
    /// Begins to write a file of at most `max` bytes. Creates missing parent directories.
    pub fn begin(&self, path: &str, expected: Precondition, max: u64) -> Result<Upload, FileError> {
        let target = ParentAndName::resolve(&self.resolve(path)?, &expected)?;
        let seen = target.stat()?;
        expected.check(seen.as_ref().map(|seen| &*seen.etag))?;
        let mode = seen.as_ref().map_or(0o666, |seen| seen.mode & 0o777);
        if mode & 0o222 == 0 {
            return Err(FileError::PermissionDenied);
        }
        let owner = seen.map_or_else(|| Owner::of(&target.parent), |seen| Ok(seen.owner))?;
        let (temp_name, file) = create_temp_file(&target.parent, mode)?;
        owner.give(&file)?;
        Ok(Upload {
            target,
            temp_name,
            file,
            precondition: expected,
            remaining_bytes: max,
            max,
        })
    }

    /// Writes a text file. The path must be absolute, as in ACP.
    pub fn write_text(&self, path: &str, text: &str, max: u64) -> Result<WriteOutcome, FileError> {
        self.resolve_absolute(path)?;
        if text.len() as u64 > max {
            return Err(FileError::TooLarge(max));
        }
        let mut upload = self.begin(path, Precondition::default(), max)?;
        upload.write(text.as_bytes())?;
        upload.finish()
    }

    /// Deletes a file, an empty directory, or a link (not its target).
    pub fn delete(&self, path: &str, expected: &Precondition) -> Result<(), FileError> {
        let resolved = self.resolve(path)?;
        let target = ParentAndName::split(&resolved)?;
        let folder = &target.parent;
        let name = &target.name;
        let _alone = lock_name(folder, name)?;
        let found = FileStat::of_entry(folder, &**name)?.ok_or(FileError::Missing)?;
        let known = match found.kind {
            EntryKind::Link => resolved.target_etag(),
            _ => Some(found.etag),
        };
        expected.check(known.as_deref())?;
        match found.kind {
            EntryKind::Directory => folder.remove_dir(name)?,
            EntryKind::File | EntryKind::Link | EntryKind::Other => folder.remove_file(name)?,
        }
        Ok(())
    }
}

impl ResolvedPath<'_> {
    /// The entity tag of the target of a link, if it is a file.
    fn target_etag(&self) -> Option<String> {
        let real = ResolvedPath {
            root: self.root,
            path: self.real().ok()?,
        };
        Some(ParentAndName::split(&real).ok()?.stat().ok()??.etag)
    }
}

impl ParentAndName {
    /// The file after the resolution of all links. Creates the parent directories of a new file.
    fn resolve(resolved: &ResolvedPath<'_>, expected: &Precondition) -> Result<Self, FileError> {
        match resolved.real() {
            Ok(path) => Self::split(&ResolvedPath {
                root: resolved.root,
                path,
            }),
            Err(FileError::Missing) => {
                expected.check(None)?;
                let parent = resolved.path.parent();
                if let Some(parent) = parent.filter(|parent| !parent.as_os_str().is_empty()) {
                    let created = create_folders(&resolved.root.dir, parent);
                    created.map_err(|error| match Errno::from_io_error(&error) {
                        Some(Errno::EXIST | Errno::NOTDIR) => FileError::NotADirectory,
                        _ => error.into(),
                    })?;
                }
                Self::split(resolved)
            }
            Err(error) => Err(error),
        }
    }
    fn split(resolved: &ResolvedPath<'_>) -> Result<Self, FileError> {
        let name = resolved.path.file_name().ok_or(FileError::NotAFile)?;
        let parent = resolved.path.parent();
        let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        Ok(Self {
            parent: resolved.root.dir.open_dir(parent)?,
            name: name.to_owned(),
        })
    }

    /// The metadata of the current file with this name.
    fn stat(&self) -> Result<Option<FileStat>, FileError> {
        // A link is dangling, or was inserted later. The write must not follow it.
        let stat = FileStat::of_entry(&self.parent, &*self.name)?;
        stat.map(FileStat::require_regular).transpose()
    }
}

impl Upload {
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let left = self.remaining_bytes.checked_sub(bytes.len() as u64);
        self.remaining_bytes = left.ok_or(FileError::TooLarge(self.max))?;
        Ok(self.file.write_all(bytes)?)
    }

    /// Lets the owner execute a new file.
    pub fn set_executable(&self) -> Result<(), FileError> {
        let mode = fstat(&self.file)?.st_mode & 0o777;
        Ok(self
            .file
            .set_permissions(Permissions::from_mode(mode | 0o100))?)
    }

    /// Replaces the target, if it still matches the precondition.
    pub fn finish(self) -> Result<WriteOutcome, FileError> {
        let ParentAndName { parent, name } = &self.target;
        let _alone = lock_name(parent, name)?;
        let seen = self.target.stat()?;
        let etag = seen.as_ref().map(|seen| &*seen.etag);
        self.precondition.check(etag)?;
        if let Some(seen) = &seen {
            let permissions = Permissions::from_mode(seen.mode & 0o777);
            self.file.set_permissions(permissions)?;
        }
        if self.precondition.if_none_match == Some(EntityTags::Any) {
            // Unlike a rename, this fails if another process has created the file since the check.
            let linked = parent.hard_link(&self.temp_name, parent, name);
            linked.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => FileError::Exists,
                _ => error.into(),
            })?;
            parent.remove_file(&self.temp_name)?;
        } else {
            parent.rename(&self.temp_name, parent, name)?;
        }
        Ok(WriteOutcome {
            created: seen.is_none(),
            etag: FileStat::from(fstat(&self.file)?).etag,
        })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // After `finish` the temporary file does not exist.
        let _ = self.target.parent.remove_file(&self.temp_name);
    }
}

/// Creates a directory and its missing parents. Each gets the owner of the directory that contains it.
fn create_folders(root: &Dir, path: &Path) -> io::Result<()> {
    let mut parent = PathBuf::from(".");
    for part in path.components() {
        create_folder(&root.open_dir(&parent)?, part.as_os_str())?;
        parent.push(part);
    }
    if root.metadata(path).is_ok_and(|found| found.is_dir()) {
        Ok(())
    } else {
        Err(Errno::NOTDIR.into())
    }
}

/// Creates a folder with the owner of its parent, unless something has this name.
pub(super) fn create_folder(parent: &Dir, name: &OsStr) -> io::Result<()> {
    match parent.create_dir(name) {
        Ok(()) => {
            let created = open_child(parent, name).map_err(io::Error::other)?;
            Owner::of(parent)?.give(&created)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn create_temp_file(folder: &Dir, mode: u32) -> Result<(OsString, File), FileError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".acp-gateway-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        match folder.open_with(&name, &options) {
            Ok(file) => return Ok((name, file.into_std())),
            // Left by a killed gateway process with the same pid.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Serializes the check and the change of a name in a directory.
pub(super) fn lock_name(folder: &Dir, name: &OsStr) -> Result<MutexGuard<'static, ()>, FileError> {
    let stat = fstat(folder)?;
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, name).hash(&mut hasher);
    let turn = usize::try_from(hasher.finish() % NAME_LOCK_COUNT as u64).unwrap_or_default();
    Ok(lock_or_abort(NAME_LOCKS[turn].lock()))
}
