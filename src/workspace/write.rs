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
use super::roots::{Place, Workspace};
use super::seen::{Expected, Kind, Seen};
use crate::shutdown::sound;

/// Files that change at the same time, by a part of their name's hash.
const TURNS: usize = 32;
static TURN: [Mutex<()>; TURNS] = [const { Mutex::new(()) }; TURNS];

/// A file on its way. Dropped before [`Upload::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct Upload {
    place: Named,
    /// The name that it has until it is whole.
    draft: OsString,
    file: File,
    expected: Expected,
    /// Bytes that may still come.
    room: u64,
    max: u64,
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// There was no such file before.
    pub created: bool,
    pub etag: String,
}

/// A name in a folder that is open: nothing is resolved any more.
#[derive(Debug)]
struct Named {
    folder: Dir,
    name: OsString,
}

impl Workspace {
    /// Begins to write a file of no more than `max` bytes; folders that are missing above it are made.
    pub fn begin(&self, path: &str, expected: Expected, max: u64) -> Result<Upload, FileError> {
        Upload::begin(Named::behind(&self.place(path)?, &expected)?, expected, max)
    }

    /// Writes a text file; the path is absolute, as ACP's are.
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

    /// Deletes a file, an empty folder, or a link and not what it leads to.
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
    /// The tag of what a link leads to, if it leads to a file.
    fn followed(&self) -> Option<String> {
        let real = Place { root: self.root, path: self.real().ok()? };
        Some(Named::split(&real).ok()?.seen().ok()??.etag)
    }
}

impl Named {
    /// The file itself, behind the links that lead to it. One that is not there yet gets its folders.
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

    /// What has the name now.
    fn seen(&self) -> Result<Option<Seen>, FileError> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            // A link here leads nowhere, or was put here since: it is not written through.
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

    /// The file takes its place, if what is there is still what was expected.
    pub fn finish(self) -> Result<Saved, FileError> {
        let Named { folder, name } = &self.place;
        let _alone = turn(folder, name)?;
        let seen = self.place.seen()?;
        self.expected.check(seen.as_ref().map(|seen| &*seen.etag))?;
        if let Some(seen) = &seen {
            self.file.set_permissions(Permissions::from_mode(seen.mode & 0o777))?;
        }
        if self.expected.is_new() {
            // Unlike a rename it fails when somebody else was quicker.
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
        // After `finish` there is none of that name.
        drop(self.place.folder.remove_file(&self.draft));
    }
}

/// A new file beside the others.
fn draft(folder: &Dir, mode: u32) -> Result<(OsString, File), FileError> {
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
fn turn(folder: &Dir, name: &OsStr) -> Result<MutexGuard<'static, ()>, FileError> {
    let stat = fstat(folder)?;
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, name).hash(&mut hasher);
    let turn = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or_default();
    Ok(sound(TURN[turn].lock()))
}
