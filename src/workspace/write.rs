//! Writes and deletes files. A write goes to a temporary file that then replaces the target, so a reader
//! never sees a partial file.

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
use super::roots::{Place, Workspace};
use super::seen::{Expected, Kind, Seen};
use crate::shutdown::sound;

/// Locks for concurrent changes, selected by a hash of the name.
const TURNS: usize = 32;
static TURN: [Mutex<()>; TURNS] = [const { Mutex::new(()) }; TURNS];

/// A file that is being written. If it is dropped before [`Upload::finish`], nothing remains.
#[derive(Debug)]
pub struct Upload {
    place: Named,
    /// The temporary name.
    draft: OsString,
    file: File,
    expected: Expected,
    /// The number of bytes that may still be written.
    room: u64,
    max: u64,
}

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The file did not exist before.
    pub created: bool,
    pub etag: String,
}

/// A name in an open directory. It needs no further resolution.
#[derive(Debug)]
struct Named {
    folder: Dir,
    name: OsString,
}

impl Workspace {
    /// Begins to write a file of at most `max` bytes. Creates missing parent directories.
    pub fn begin(&self, path: &str, expected: Expected, max: u64) -> Result<Upload, FileError> {
        Upload::begin(Named::behind(&self.place(path)?, &expected)?, expected, max)
    }

    /// Writes a text file. The path must be absolute, as in ACP.
    pub fn write_text(&self, path: &str, text: &str, max: u64) -> Result<Saved, FileError> {
        let place = self.absolute(path)?;
        if text.len() as u64 > max {
            return Err(FileError::TooLarge(max));
        }
        let expected = Expected::default();
        let mut upload = Upload::begin(Named::behind(&place, &expected)?, expected, max)?;
        upload.write(text.as_bytes())?;
        upload.finish()
    }

    /// Deletes a file, an empty directory, or a link (not its target).
    pub fn delete(&self, path: &str, expected: &Expected) -> Result<(), FileError> {
        let place = self.place(path)?;
        let Named { folder, name } = Named::split(&place)?;
        let _alone = turn(&folder, &name)?;
        let found = Seen::from(statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?);
        let known = if found.kind == Kind::Link { place.followed() } else { Some(found.etag) };
        expected.check(known.as_deref())?;
        match found.kind {
            Kind::Folder => folder.remove_dir(&name)?,
            Kind::File | Kind::Link | Kind::Other => folder.remove_file(&name)?,
        }
        Ok(())
    }
}

impl Place<'_> {
    /// The entity tag of the target of a link, if it is a file.
    fn followed(&self) -> Option<String> {
        let real = Place { root: self.root, path: self.real().ok()? };
        Some(Named::split(&real).ok()?.seen().ok()??.etag)
    }
}

impl Named {
    /// The file after the resolution of all links. Creates the parent directories of a new file.
    fn behind(place: &Place<'_>, expected: &Expected) -> Result<Self, FileError> {
        match place.real() {
            Ok(real) => Self::split(&Place { root: place.root, path: real }),
            Err(FileError::Missing) => {
                expected.check(None)?;
                place.root.make_folders(place.path.parent().unwrap_or(Path::new("")))?;
                Self::split(place)
            }
            Err(error) => Err(error),
        }
    }

    fn split(place: &Place<'_>) -> Result<Self, FileError> {
        let name = place.path.file_name().ok_or(FileError::NotAFile)?.to_owned();
        let parent = place.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = place.root.dir.open_dir(parent.unwrap_or(Path::new(".")))?;
        Ok(Self { folder, name })
    }

    /// The metadata of the current file with this name.
    fn seen(&self) -> Result<Option<Seen>, FileError> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            // The link is dangling, or was inserted later. The write must not follow it.
            Ok(stat) => Seen::from(stat).regular().map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl super::roots::Root {
    fn make_folders(&self, path: &Path) -> Result<(), FileError> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        self.dir.create_dir_all(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::EXIST | Errno::NOTDIR) => FileError::NotAFolder,
            _ => error.into(),
        })
    }
}

impl Upload {
    fn begin(place: Named, expected: Expected, max: u64) -> Result<Self, FileError> {
        let seen = place.seen()?;
        expected.check(seen.as_ref().map(|seen| &*seen.etag))?;
        let mode = seen.map_or(0o666, |seen| seen.mode & 0o777);
        if mode & 0o222 == 0 {
            return Err(FileError::Denied);
        }
        let (draft, file) = draft(&place.folder, mode)?;
        Ok(Self { place, draft, file, expected, room: max, max })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.room = self.room.checked_sub(bytes.len() as u64).ok_or(FileError::TooLarge(self.max))?;
        Ok(self.file.write_all(bytes)?)
    }

    /// Replaces the target, if it still matches the precondition.
    pub fn finish(self) -> Result<Saved, FileError> {
        let Named { folder, name } = &self.place;
        let _alone = turn(folder, name)?;
        let seen = self.place.seen()?;
        self.expected.check(seen.as_ref().map(|seen| &*seen.etag))?;
        if let Some(seen) = &seen {
            self.file.set_permissions(Permissions::from_mode(seen.mode & 0o777))?;
        }
        if self.expected.is_new() {
            // Unlike a rename, this fails if the file was created meanwhile.
            folder.hard_link(&self.draft, folder, name).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => FileError::Changed,
                _ => error.into(),
            })?;
            folder.remove_file(&self.draft)?;
        } else {
            folder.rename(&self.draft, folder, name)?;
        }
        let etag = Seen::from(fstat(&self.file)?).etag;
        Ok(Saved { created: seen.is_none(), etag })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // After `finish` the temporary file does not exist.
        drop(self.place.folder.remove_file(&self.draft));
    }
}

/// Creates a temporary file in the directory.
fn draft(folder: &Dir, mode: u32) -> Result<(OsString, File), FileError> {
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
fn turn(folder: &Dir, name: &OsStr) -> Result<MutexGuard<'static, ()>, FileError> {
    let stat = fstat(folder)?;
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, name).hash(&mut hasher);
    let turn = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or_default();
    Ok(sound(TURN[turn].lock()))
}
