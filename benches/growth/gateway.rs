//! The gateway with a large log: started on a free port, queried over loopback, stopped by its pid.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::Outcome;
use super::client::{self, Events};

/// A key for this run only. It is used only on loopback.
const KEY: &str = "growth-generator-key-0123456789abcdef0123456789abcdef";
const STOP: Duration = Duration::from_secs(20);

/// The programs, and the location of their data.
pub(crate) struct Installation {
    pub(crate) program: PathBuf,
    pub(crate) folder: PathBuf,
}

pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The time from the start of the process to its first answer.
    pub(crate) ready: Duration,
}

impl Gateway {
    #[expect(
        clippy::disallowed_methods,
        reason = "it starts the gateway, as an operator would"
    )]
    pub(crate) fn start(installation: &Installation, limits: &str) -> Outcome<Self> {
        let path = |name: &str| installation.folder.join(name);
        fs::write(path("key"), KEY)?;
        let agent = json!(env!("CARGO_BIN_EXE_fake-agent"));
        let many = "limits.per_key.max_requests_per_minute = 1000000\nlimits.per_key.max_prompts_per_minute = 1000000\nretention.max_total_bytes = \"1TiB\"\n\
            retention.min_free_disk_percent = 0\nlimits.per_session.max_events_per_hour = 1000000000\nlimits.per_session.max_bytes_per_hour = \"1TiB\"\n";
        let config = format!("{many}{limits}\n[agents.fake]\ncommand = {agent}\n");
        fs::write(path("gateway.toml"), config)?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let began = Instant::now();
        let child = Command::new(&installation.program)
            .args([
                "serve",
                "--listen",
                &format!("127.0.0.1:{port}"),
                "--config",
            ])
            .arg(path("gateway.toml"))
            .arg("--data")
            .arg(path("data"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &installation.folder)
            .env("ACP_GATEWAY_ADMIN_KEY_FILE", path("key"))
            .env("RUST_LOG", "error")
            // The measurement may run as root.
            .env("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let mut gateway = Self {
            child,
            address: ([127, 0, 0, 1], port).into(),
            ready: Duration::ZERO,
        };
        loop {
            if client::send(gateway.address, KEY, "GET", "/readyz", "")
                .is_ok_and(|(status, _)| status == 200)
            {
                gateway.ready = began.elapsed();
                return Ok(gateway);
            }
            if let Some(status) = gateway.child.try_wait()? {
                return Err(format!("the gateway did not start: {status}").into());
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    pub(crate) fn get(&self, path: &str) -> Outcome<Value> {
        let (status, answer) = client::send(self.address, KEY, "GET", path, "")?;
        if status != 200 {
            return Err(format!("GET {path}: {status} {answer}").into());
        }
        Ok(serde_json::from_str(&answer)?)
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> Outcome<Value> {
        let (status, answer) = client::send(self.address, KEY, method, path, &body.to_string())?;
        if !(200..300).contains(&status) {
            return Err(format!("{method} {path}: {status} {answer}").into());
        }
        Ok(serde_json::from_str(&answer)?)
    }

    pub(crate) fn events(&self, path: &str) -> Outcome<Events> {
        Events::open(self.address, KEY, path)
    }

    /// The value in KiB of a line of its `status`, such as `VmRSS`.
    pub(crate) fn memory(&self, line: &str) -> Outcome<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let found = status
            .lines()
            .find_map(|at| at.strip_prefix(line)?.strip_prefix(':'));
        Ok(found
            .and_then(|rest| rest.split_whitespace().next())
            .ok_or("no such line")?
            .parse()?)
    }

    /// The processor time of all its threads.
    pub(crate) fn cpu(&self) -> Outcome<Duration> {
        let mut nanos = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let schedstat = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            nanos += schedstat
                .split(' ')
                .next()
                .and_then(|nanos| nanos.parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Sends TERM and waits for the end.
    pub(crate) fn stop(mut self) -> Outcome {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or("it has no pid")?;
        kill_process(pid, Signal::TERM)?;
        let end = Instant::now() + STOP;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return if status.success() {
                    Ok(())
                } else {
                    Err(format!("the gateway: {status}").into())
                };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the gateway was still there {STOP:?} after TERM").into())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, which is correct.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
