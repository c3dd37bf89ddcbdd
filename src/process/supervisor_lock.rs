//! A lock of all supervisors of one gateway process.
//!
//! A gateway that is killed while it starts a supervisor leaves one without a run file, which [`sweep`](super::sweep)
//! cannot find. It ends by itself, and holds the port of the gateway until then.

use std::fs::{OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The time between two attempts to lock.
const INTERVAL: Duration = Duration::from_millis(2);

/// Locked until the gateway process and the last supervisor with a copy of it have ended.
#[derive(Debug)]
pub struct SupervisorLock(OwnedFd);

impl SupervisorLock {
    /// Waits for the end of all supervisors of an earlier gateway process. Returns `None` if one still exists after
    /// `limit`. Blocks.
    pub fn acquire(path: &Path, limit: Duration) -> io::Result<Option<Self>> {
        let deadline = Instant::now() + limit;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self(file.into()))),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    thread::sleep(INTERVAL);
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// A copy, which keeps the lock.
    pub fn copy(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_keeps_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("supervisors");
        let lock = SupervisorLock::acquire(&path, Duration::ZERO)
            .unwrap()
            .unwrap();
        let copy = lock.copy().unwrap();
        drop(lock);
        assert!(
            SupervisorLock::acquire(&path, INTERVAL * 2)
                .unwrap()
                .is_none()
        );
        drop(copy);
        assert!(
            SupervisorLock::acquire(&path, Duration::ZERO)
                .unwrap()
                .is_some()
        );
    }
}
