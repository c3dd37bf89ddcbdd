//! The measured programs: started in their own process group, stopped by pid, and always cleaned up.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Outcome, http};

/// The timeout from the start of a server to its first answer.
const START: Duration = Duration::from_secs(20);
/// The timeout from TERM to the end.
const STOP: Duration = Duration::from_secs(10);

/// A directory on the disk of the checkout, removed on drop.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(below: &Path, name: &str) -> Outcome<Self> {
        let path = below.join(format!("{name}-{}", std::process::id()));
        // Left by an earlier process with the same pid.
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts the program with only the given environment. stderr goes to a file.
    pub(crate) fn start<S: AsRef<OsStr>>(
        command: &[S],
        environment: &[(&str, &OsStr)],
        log: PathBuf,
    ) -> Outcome<Self> {
        let (program, args) = command.split_first().ok_or("a command without a program")?;
        let child = Command::new(program)
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(environment.iter().copied())
            // Some servers end with their stdin.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .map_err(|error| format!("{}: {error}", program.as_ref().to_string_lossy()))?;
        Ok(Self { child, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it accepts connections.
    pub(crate) fn listens(&mut self, address: SocketAddr) -> Outcome {
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            self.still_starts(begun)?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits until it answers a request with 200.
    pub(crate) fn answers(&mut self, address: SocketAddr, path: &str) -> Outcome {
        let begun = Instant::now();
        let request = http::request(
            "GET",
            address,
            path,
            &["Connection: close".to_owned()],
            None,
        );
        let asked = || -> Outcome<u16> {
            let mut stream = http::connect(address)?;
            stream.write_all(&request)?;
            Ok(http::answer(&mut stream)?.0.status)
        };
        while !asked().is_ok_and(|status| status == 200) {
            self.still_starts(begun)?;
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn still_starts(&mut self, begun: Instant) -> Outcome {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("it ended with {status}: {}", self.last_words()).into());
        }
        if begun.elapsed() > START {
            return Err(format!("it did not answer in {START:?}: {}", self.last_words()).into());
        }
        Ok(())
    }

    /// The end of its stderr.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let from = text.char_indices().rev().nth(500).map_or(0, |(at, _)| at);
        text[from..].trim().to_owned()
    }

    /// Sends TERM and waits for the end.
    pub(crate) fn stop(mut self) -> Outcome {
        self.end()
    }

    fn end(&mut self) -> Outcome {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or("a server without a pid")?;
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        drop(self.child.stdin.take());
        kill_process(pid, Signal::TERM)?;
        let begun = Instant::now();
        while begun.elapsed() < STOP {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()?;
        Err(format!("it was still there {STOP:?} after TERM").into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{}: {error}", self.log.display());
        }
    }
}

/// A loopback port that is free now.
pub(crate) fn free_port() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
