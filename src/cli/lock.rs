//! The data folder: its layout, and the lock that allows only one gateway to use it.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
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
    #[error("could not create the folder {}", path.display())]
    CreateDir { path: PathBuf, source: io::Error },
    #[error("could not lock {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("could not read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the data folder {} belongs to the user with the id {owner}: run this command as that user", path.display())]
    OtherOwner { path: PathBuf, owner: u32 },
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
        create_private_dir(&folder).map_err(|source| DataDirError::CreateDir {
            path: folder,
            source,
        })?;
    }
    let private = data.private();
    fs::set_permissions(&private, Permissions::from_mode(0o700)).map_err(|source| {
        DataDirError::CreateDir {
            path: private,
            source,
        }
    })
}

fn create_private_dir(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
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
        Ok(found) => Err(DataDirError::OtherOwner {
            path: data.path().to_owned(),
            owner: found.uid(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(DataDirError::Read { path, source }),
    }
}

pub(super) fn publish_url(lock: &DataLock, url: &str) -> io::Result<()> {
    lock.set_len(0)?;
    lock.write_all_at(url.as_bytes(), 0)
}

/// The URL of the gateway that holds the lock. Fails if the gateway is still starting.
pub(super) fn published_url(data: &DataDir) -> Result<String, DataDirError> {
    let path = data.lock();
    let url = fs::read_to_string(&path).map_err(|source| DataDirError::Read { path, source })?;
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
                let cleared = lock.set_len(0);
                return match cleared {
                    Ok(()) => Ok(lock),
                    Err(source) => Err(DataDirError::Lock {
                        path: data.lock(),
                        source,
                    }),
                };
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
    let file = file.map_err(|source| DataDirError::Lock {
        path: path.clone(),
        source,
    })?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(DataDirError::Lock { path, source }),
    }
}
