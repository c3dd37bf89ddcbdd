//! The data folder: its layout, and the lock that lets one gateway use it.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::config::DataDir;

/// Longer than a `key` command takes.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub(super) enum DataDirError {
    #[error(
        "another gateway uses the data folder {}: stop it first, or give this one a folder of its own with --data DIR",
        .0.display()
    )]
    Locked(PathBuf),
    #[error("the gateway on {} is just starting; try again in a moment", .0.display())]
    Starting(PathBuf),
    #[error("the gateway on {} is of an earlier version than this program: restart it first", .0.display())]
    OlderGateway(PathBuf),
    #[error("the folder {} cannot be made", path.display())]
    CreateDir { path: PathBuf, source: io::Error },
    #[error("the lock {} cannot be taken", path.display())]
    Lock { path: PathBuf, source: io::Error },
}

/// Held while this gateway uses the folder. The kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct DataLock {
    _file: File,
}

/// Makes the folders that are missing. `private` is closed to others even when it was not.
pub(super) fn create_layout(data: &DataDir) -> Result<(), DataDirError> {
    for folder in [data.path().to_owned(), data.private(), data.run(), data.workspaces(), data.homes()] {
        create_private_dir(&folder).map_err(|source| DataDirError::CreateDir { path: folder, source })?;
    }
    let private = data.private();
    fs::set_permissions(&private, Permissions::from_mode(0o700))
        .map_err(|source| DataDirError::CreateDir { path: private, source })
}

fn create_private_dir(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Takes the folder for this process, or says that another gateway has it.
///
/// It waits a little, because a `key` command may hold the lock for a moment.
pub(super) fn acquire(data: &DataDir) -> Result<DataLock, DataDirError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match try_acquire(data)? {
            Some(lock) => return Ok(lock),
            None if Instant::now() < until => std::thread::sleep(LOCK_TIMEOUT / 20),
            None => return Err(DataDirError::Locked(data.path().to_owned())),
        }
    }
}

/// For work on the store that may go on beside a gateway: the lock if no gateway has it, so that none starts
/// while the file is made; nothing if one runs, which has made the file.
pub(super) fn acquire_unless_running(data: &DataDir) -> Result<Option<DataLock>, DataDirError> {
    match try_acquire(data)? {
        None if !data.log().exists() => Err(DataDirError::Starting(data.path().to_owned())),
        lock => Ok(lock),
    }
}

fn try_acquire(data: &DataDir) -> Result<Option<DataLock>, DataDirError> {
    let path = data.lock();
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|source| DataDirError::Lock { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(Some(DataLock { _file: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(DataDirError::Lock { path, source }),
    }
}
