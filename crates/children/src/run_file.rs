//! Small files that name the supervisors of this gateway process, so that the next one can stop leftover supervisors.
//!
//! A supervisor ends with its gateway. Therefore the sweep finds only supervisors that were suspended or hang.

use std::fs::{self, DirBuilder, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::procfs;

/// A process, distinguished from every other one that had or will have its pid.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    pid: i32,
    start: u64,
    boot_id: String,
    pid_namespace: String,
}

impl Identity {
    fn of(pid: Pid) -> io::Result<Self> {
        Ok(Self {
            pid: pid.as_raw_pid(),
            start: procfs::stat(pid)?.start,
            boot_id: procfs::boot_id()?,
            pid_namespace: procfs::pid_namespace()?,
        })
    }
}

#[derive(Debug)]
pub(super) struct RunFile(PathBuf);

impl RunFile {
    pub(super) fn write(run_dir: &Path, pid: Pid) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(run_dir)?;
        let path = run_dir.join(pid.as_raw_pid().to_string());
        let text = serde_json::to_vec(&Identity::of(pid)?)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&path)?.write_all(&text)?;
        Ok(Self(path))
    }

    pub(super) async fn remove(self) {
        if let Err(error) = tokio::fs::remove_file(&self.0).await {
            tracing::warn!(file = %self.0.display(), %error, "could not remove a run file");
        }
    }
}

/// Stops the supervisors of an earlier gateway process and removes their run files. Returns their number.
///
/// Call it once, before any spawn and with the lock of the data directory held. It blocks for `limit` at
/// most. A supervisor that does not end in time is killed.
pub fn sweep(run_dir: &Path, limit: Duration) -> io::Result<usize> {
    let entries = match fs::read_dir(run_dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut supervisors = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // A file without a valid identity was truncated, so there is no process to end.
        if let Ok(text) = fs::read(&path)
            && let Ok(identity) = serde_json::from_slice::<Identity>(&text)
        {
            supervisors.extend(open_pidfd(&identity));
        }
        fs::remove_file(&path)?;
    }
    for supervisor in &supervisors {
        send(supervisor, Signal::QUIT);
        // A leftover supervisor is probably suspended, so it must continue to handle the signal.
        send(supervisor, Signal::CONT);
    }
    let deadline = Instant::now() + limit;
    for supervisor in &supervisors {
        if !wait_for_exit(supervisor, deadline) {
            send(supervisor, Signal::KILL);
        }
    }
    Ok(supervisors.len())
}

/// A pidfd of the process that `identity` names. It is opened before the comparison, so the compared process
/// is the one that receives the signals.
fn open_pidfd(identity: &Identity) -> Option<OwnedFd> {
    let pid = (identity.pid > 1)
        .then(|| Pid::from_raw(identity.pid))
        .flatten()?;
    let hold = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    (Identity::of(pid).ok()? == *identity).then_some(hold)
}

fn send(supervisor: &OwnedFd, signal: Signal) {
    if let Err(error) = pidfd_send_signal(supervisor, signal) {
        tracing::warn!(?signal, %error, "could not signal a leftover supervisor");
    }
}

fn wait_for_exit(supervisor: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a configured limit fits into a timespec");
        match poll(&mut [PollFd::new(supervisor, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

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
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
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

    pub fn copy(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

#[cfg(test)]
mod supervisor_lock_tests {
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
