//! Writing and deleting files. A file is written beside its place and then takes it, so that nobody ever reads a half.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{AtFlags, fstat, statat};
use rustix::io::Errno;

use super::error::FileError;
use super::roots::{ResolvedPath, Workspace};
use super::stat::{Precondition, EntryKind, FileStat};
use crate::shutdown::lock_or_abort;

/// Files that change at the same time, by a part of their name's hash.
const NAME_LOCK_COUNT: usize = 32;
static NAME_LOCKS: [Mutex<()>; NAME_LOCK_COUNT] = [const { Mutex::new(()) }; NAME_LOCK_COUNT];

/// A file on its way. Dropped before [`Upload::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct Upload {
    target: ParentAndName,
    /// The name that it has until it is whole.
    temp_name: OsString,
    file: File,
    precondition: Precondition,
    /// Bytes that may still come.
    remaining_bytes: u64,
    max: u64,
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOutcome {
    /// There was no such file before.
    pub created: bool,
    pub etag: String,
}

/// A name in a folder that is open: nothing is resolved any more.
#[derive(Debug)]
struct ParentAndName {
    parent: Dir,
    name: OsString,
}

impl Workspace {
    /// Begins to write a file of no more than `max` bytes; folders that are missing above it are made.
    pub fn begin(&self, path: &str, expected: Precondition, max: u64) -> Result<Upload, FileError> {
        Upload::begin(ParentAndName::resolve(&self.resolve(path)?, &expected)?, expected, max)
    }

    /// Writes a text file; the path is absolute, as ACP's are.
    pub fn write_text(&self, path: &str, text: &str, max: u64) -> Result<WriteOutcome, FileError> {
        let place = self.resolve_absolute(path)?;
        if text.len() as u64 > max {
            return Err(FileError::TooLarge(max));
        }
        let expected = Precondition::default();
        let mut upload = Upload::begin(ParentAndName::resolve(&place, &expected)?, expected, max)?;
        upload.write(text.as_bytes())?;
        upload.finish()
    }

    /// Deletes a file, an empty folder, or a link and not what it leads to.
    pub fn delete(&self, path: &str, expected: &Precondition) -> Result<(), FileError> {
        let place = self.resolve(path)?;
        let ParentAndName { parent: folder, name } = ParentAndName::split(&place)?;
        let _alone = lock_name(&folder, &name)?;
        let found = FileStat::from(statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?);
        let known = if found.kind == EntryKind::Link { place.target_etag() } else { Some(found.etag) };
        expected.check(known.as_deref())?;
        match found.kind {
            EntryKind::Directory => folder.remove_dir(&name)?,
            EntryKind::File | EntryKind::Link | EntryKind::Other => folder.remove_file(&name)?,
        }
        Ok(())
    }
}

impl ResolvedPath<'_> {
    /// The tag of what a link leads to, if it leads to a file.
    fn target_etag(&self) -> Option<String> {
        let real = ResolvedPath { root: self.root, path: self.real().ok()? };
        Some(ParentAndName::split(&real).ok()?.stat().ok()??.etag)
    }
}

impl ParentAndName {
    /// The file itself, behind the links that lead to it. One that is not there yet gets its folders.
    fn resolve(place: &ResolvedPath<'_>, expected: &Precondition) -> Result<Self, FileError> {
        match place.real() {
            Ok(real) => Self::split(&ResolvedPath { root: place.root, path: real }),
            Err(FileError::Missing) => {
                expected.check(None)?;
                place.root.create_directories(place.path.parent().unwrap_or(Path::new("")))?;
                Self::split(place)
            }
            Err(error) => Err(error),
        }
    }

    fn split(place: &ResolvedPath<'_>) -> Result<Self, FileError> {
        let name = place.path.file_name().ok_or(FileError::NotAFile)?.to_owned();
        let parent = place.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = place.root.dir.open_dir(parent.unwrap_or(Path::new(".")))?;
        Ok(Self { parent: folder, name })
    }

    /// What has the name now.
    fn stat(&self) -> Result<Option<FileStat>, FileError> {
        match statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            // A link here leads nowhere, or was put here since: it is not written through.
            Ok(stat) => FileStat::from(stat).require_regular().map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl super::roots::Root {
    fn create_directories(&self, path: &Path) -> Result<(), FileError> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        self.dir.create_dir_all(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::EXIST | Errno::NOTDIR) => FileError::NotADirectory,
            _ => error.into(),
        })
    }
}

impl Upload {
    fn begin(place: ParentAndName, expected: Precondition, max: u64) -> Result<Self, FileError> {
        let seen = place.stat()?;
        expected.check(seen.as_ref().map(|seen| &*seen.etag))?;
        let mode = seen.map_or(0o666, |seen| seen.mode & 0o777);
        if mode & 0o222 == 0 {
            return Err(FileError::PermissionDenied);
        }
        let (draft, file) = create_temp_file(&place.parent, mode)?;
        Ok(Self { target: place, temp_name: draft, file, precondition: expected, remaining_bytes: max, max })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.remaining_bytes = self.remaining_bytes.checked_sub(bytes.len() as u64).ok_or(FileError::TooLarge(self.max))?;
        Ok(self.file.write_all(bytes)?)
    }

    /// The file takes its place, if what is there is still what was expected.
    pub fn finish(self) -> Result<WriteOutcome, FileError> {
        let ParentAndName { parent: folder, name } = &self.target;
        let _alone = lock_name(folder, name)?;
        let seen = self.target.stat()?;
        self.precondition.check(seen.as_ref().map(|seen| &*seen.etag))?;
        if let Some(seen) = &seen {
            self.file.set_permissions(Permissions::from_mode(seen.mode & 0o777))?;
        }
        if self.precondition.requires_absence() {
            // Unlike a rename it fails when somebody else was quicker.
            folder.hard_link(&self.temp_name, folder, name).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => FileError::Changed,
                _ => error.into(),
            })?;
            folder.remove_file(&self.temp_name)?;
        } else {
            folder.rename(&self.temp_name, folder, name)?;
        }
        let etag = FileStat::from(fstat(&self.file)?).etag;
        Ok(WriteOutcome { created: seen.is_none(), etag })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // After `finish` there is none of that name.
        drop(self.target.parent.remove_file(&self.temp_name));
    }
}

/// A new file beside the others.
fn create_temp_file(folder: &Dir, mode: u32) -> Result<(OsString, File), FileError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".acp-gateway-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        match folder.open_with(&name, &options) {
            Ok(file) => return Ok((name, file.into_std())),
            // What a gateway of the same number left when it was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// One at a time for a name in a folder, between the look at a file and its change.
fn lock_name(folder: &Dir, name: &OsStr) -> Result<MutexGuard<'static, ()>, FileError> {
    let stat = fstat(folder)?;
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, name).hash(&mut hasher);
    let turn = usize::try_from(hasher.finish() % NAME_LOCK_COUNT as u64).unwrap_or_default();
    Ok(lock_or_abort(NAME_LOCKS[turn].lock()))
}
