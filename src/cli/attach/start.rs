//! Starts a gateway for editors: in a session of its own, without a terminal, and with an end when nobody uses it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cli::lock::{self, DataDirError};
use crate::config::{CLIENT_KEY_VARIABLE, DataDir, Flags};
use crate::control::ClientError;
use crate::process;
use crate::types::text::strip_controls;

/// A gateway that no editor, browser or turn uses ends after this time.
const IDLE_TIME: &str = "10m";
/// The time in which a gateway must accept connections. A start after an unclean shutdown checks the log first.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// The interval between two attempts to connect.
const INTERVAL: Duration = Duration::from_millis(25);
/// The part of the log that an error shows.
const SHOWN_LINES: usize = 8;
const SHOWN_BYTES: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Data(#[from] DataDirError),
    #[error("could not start the gateway {}", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    #[error("could not open the log {}", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("the gateway could not start ({status}); the end of its log {}:\n{tail}", log.display())]
    Ended {
        status: ExitStatus,
        log: PathBuf,
        tail: String,
    },
    #[error(
        "the gateway that uses the data folder does not accept connections of editors; the end of the log {}:\n{tail}",
        log.display()
    )]
    Timeout {
        log: PathBuf,
        tail: String,
        source: ClientError,
    },
}

/// Starts gateways with the flags of this process.
#[derive(Debug)]
pub(super) struct Starter {
    flags: Vec<OsString>,
    /// The gateway that this process has started last.
    child: Option<Child>,
}

impl Starter {
    pub(super) fn new(flags: &Flags) -> Self {
        Self {
            flags: flags.to_args(),
            child: None,
        }
    }

    /// Connects to the gateway of the data folder. Starts one if none holds the lock. If another process starts one at the
    /// same time, the lock decides between both, and this connects to the one that has the lock. Blocks.
    pub(super) fn connect_or_start<T>(
        &mut self,
        data: &DataDir,
        connect: impl Fn() -> Result<T, ClientError>,
    ) -> Result<T, StartError> {
        let deadline = Instant::now() + START_TIMEOUT;
        let (log, mut started) = (data.gateway_log(), false);
        let mut log_start = 0;
        loop {
            let error = match connect() {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            };
            let ended = self.ended();
            let is_starting = self.child.is_some() || lock::is_held(data)?;
            if !is_starting {
                if let Some(status) = ended.filter(|_| started) {
                    let tail = tail(&log, log_start);
                    return Err(StartError::Ended { status, log, tail });
                }
                log_start = fs::metadata(&log).map_or(0, |found| found.len());
                self.child = Some(self.spawn(data, &log)?);
                started = true;
            }
            if Instant::now() >= deadline {
                let tail = tail(&log, log_start);
                return Err(StartError::Timeout {
                    log,
                    tail,
                    source: error,
                });
            }
            sleep(INTERVAL);
        }
    }

    /// The exit status of the gateway that this process has started, if it has ended since the last call.
    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        Some(status)
    }

    fn spawn(&self, data: &DataDir, log: &Path) -> Result<Child, StartError> {
        lock::create_layout(data)?;
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(log);
        let opened = opened.map_err(|source| StartError::Log {
            path: log.to_owned(),
            source,
        })?;
        // After an update of the program, this is the new one.
        let program = std::env::current_exe().unwrap_or_else(|_| "acp-gateway".into());
        let serve = ["serve", "--detached", "--exit-when-idle", IDLE_TIME].map(OsString::from);
        let args: Vec<OsString> = serve
            .into_iter()
            .chain(self.flags.iter().cloned())
            .collect();
        let spawned = process::spawn_detached(&program, &args, CLIENT_KEY_VARIABLE, opened);
        spawned.map_err(|source| StartError::Spawn { program, source })
    }
}

/// The last lines of the log after `start`.
fn tail(log: &Path, start: u64) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let size = file.metadata()?.len();
        let start = if start > size { 0 } else { start };
        file.seek(SeekFrom::Start(start.max(size.saturating_sub(SHOWN_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(SHOWN_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_else(|error| format!("could not read the log: {error}"));
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    shown
        .iter()
        .map(|line| strip_controls(line))
        .collect::<Vec<_>>()
        .join("\n")
}
