//! The data folder: its layout, and the lock that allows only one gateway to use it.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::config::DataDir;

const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub(super) enum DataDirError {
    #[error(
        "another gateway uses the data folder {}: stop it first, or set another folder with --data DIR",
        .0.display()
    )]
    Locked(PathBuf),
    #[error(
        "there is no log in {}: start the gateway first, or name its data folder with --data DIR",
        .0.display()
    )]
    NoLog(PathBuf),
    #[error("the gateway on {} is starting: retry in a moment", .0.display())]
    Starting(PathBuf),
    #[error("could not create the folder {} (--data DIR sets another data folder)", .0.display())]
    CreateDir(PathBuf, #[source] io::Error),
    #[error("could not remove the access of other users to {} (--data DIR sets another data folder)", .0.display())]
    Protect(PathBuf, #[source] io::Error),
    #[error("could not lock {} (--data DIR sets another data folder)", .0.display())]
    Lock(PathBuf, #[source] io::Error),
    #[error("could not read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("the data folder {} belongs to the user with the id {}: run this command as that user", .0.display(), .1)]
    OtherOwner(PathBuf, u32),
}

/// The lock on the data folder. The kernel releases it when the process ends, even after a crash.
pub(super) type DataLock = File;

/// Creates the missing folders. Always removes the access of other users to `private`.
pub(super) fn create_layout(data: &DataDir) -> Result<(), DataDirError> {
    for folder in [
        data.path().to_owned(),
        data.private(),
        data.run(),
        data.workspaces(),
        data.homes(),
    ] {
        let mut builder = DirBuilder::new();
        let created = builder.recursive(true).mode(0o700).create(&folder);
        created.map_err(|error| DataDirError::CreateDir(folder, error))?;
    }
    let path = data.private();
    fs::set_permissions(&path, Permissions::from_mode(0o700))
        .map_err(|error| DataDirError::Protect(path, error))
}

/// Fails unless a gateway has used the data folder. Commands that only read create no folder, because the path may be a
/// typing error.
pub(super) fn check_log(data: &DataDir) -> Result<(), DataDirError> {
    if data.log().exists() {
        Ok(())
    } else {
        Err(DataDirError::NoLog(data.path().to_owned()))
    }
}

/// Fails if the gateway's part of the data folder belongs to another user. This includes root, whose files the
/// gateway could not open.
pub(super) fn check_owner(data: &DataDir) -> Result<(), DataDirError> {
    let path = data.private();
    match fs::metadata(&path) {
        Ok(found) if found.uid() == rustix::process::geteuid().as_raw() => Ok(()),
        Ok(found) => Err(DataDirError::OtherOwner(
            data.path().to_owned(),
            found.uid(),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(DataDirError::Read(path, error)),
    }
}

pub(super) fn publish_url(lock: &DataLock, url: &str) -> io::Result<()> {
    lock.set_len(0)?;
    lock.write_all_at(url.as_bytes(), 0)
}

/// The URL of the gateway that holds the lock. Fails if the gateway is still starting.
pub(super) fn published_url(data: &DataDir) -> Result<String, DataDirError> {
    let path = data.lock();
    let url = fs::read_to_string(&path).map_err(|error| DataDirError::Read(path, error))?;
    if url.is_empty() {
        Err(DataDirError::Starting(data.path().to_owned()))
    } else {
        Ok(url)
    }
}

/// Locks the data folder; fails if another gateway holds the lock. Removes the URL of an earlier gateway.
///
/// Waits up to [`LOCK_TIMEOUT`], because a `key` command may hold the lock for a moment.
pub(super) fn acquire(data: &DataDir) -> Result<DataLock, DataDirError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match try_acquire(data)? {
            Some(lock) => {
                let path = data.lock();
                lock.set_len(0)
                    .map_err(|error| DataDirError::Lock(path, error))?;
                return Ok(lock);
            }
            None if Instant::now() < until => std::thread::sleep(LOCK_TIMEOUT / 20),
            None => return Err(DataDirError::Locked(data.path().to_owned())),
        }
    }
}

/// Locks the data folder for work on the store that can run concurrently with a gateway.
///
/// Returns the lock if no gateway runs, so that none starts while the store is created. Returns `None` if a
/// gateway runs, which has already created the store.
pub(super) fn acquire_unless_running(data: &DataDir) -> Result<Option<DataLock>, DataDirError> {
    match try_acquire(data)? {
        None if !data.log().exists() => Err(DataDirError::Starting(data.path().to_owned())),
        lock => Ok(lock),
    }
}

pub(super) fn is_held(data: &DataDir) -> Result<bool, DataDirError> {
    Ok(data.lock().exists() && try_acquire(data)?.is_none())
}

fn try_acquire(data: &DataDir) -> Result<Option<DataLock>, DataDirError> {
    let path = data.lock();
    let mut options = fs::OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let file = file.map_err(|error| DataDirError::Lock(path.clone(), error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(DataDirError::Lock(path, error)),
    }
}
