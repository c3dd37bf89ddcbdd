//! The gateway under load: started on a free port with a folder of its own, stopped by its pid.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::Outcome;
use super::client::{self, Events};

/// A key for this run only; nothing outside loopback ever sees it.
const KEY: &str = "load-generator-key-0123456789abcdef0123456789abcdef";
const STOP: Duration = Duration::from_secs(20);

pub(crate) struct Gateway {
    child: Child,
    address: SocketAddr,
    /// Removed when this goes.
    _folder: tempfile::TempDir,
}

impl Gateway {
    #[expect(
        clippy::disallowed_methods,
        reason = "the load generator starts the gateway, as an operator would"
    )]
    pub(crate) fn start() -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        fs::write(path("key"), KEY)?;
        fs::write(path("gateway.toml"), format!("[agents.fake]\ncommand = {}\n", json!(agent())))?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_acp-gateway"))
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(path("gateway.toml"))
            .arg("--data")
            .arg(path("data"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", folder.path())
            .env("ACP_GATEWAY_ADMIN_KEY_FILE", path("key"))
            .env("RUST_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut link = String::new();
        let stdout = child.stdout.take().ok_or("the gateway has no stdout")?;
        BufReader::new(stdout).read_line(&mut link)?;
        let address = link.trim().strip_prefix("http://").and_then(|rest| rest.split('/').next());
        let address = address.and_then(|address| address.parse().ok());
        let gateway = Self { child, address: address.unwrap_or(([127, 0, 0, 1], 0).into()), _folder: folder };
        // The child is in the value above already, so that it ends whatever is wrong.
        if address.is_none() {
            return Err(format!("the gateway printed no link but {link:?}").into());
        }
        Ok(gateway)
    }

    /// A new session with the synthetic agent: its id, and the id of its last event.
    pub(crate) fn session(&self) -> Outcome<(String, String)> {
        let session = self.post("/v1/sessions", &json!({ "agent": "fake" }), 201)?;
        Ok((text(&session, "sessionId")?, text(&session, "lastEventId")?))
    }

    pub(crate) fn prompt(&self, session: &str, prompt: &str) -> Outcome<String> {
        let answer =
            self.post(&format!("/v1/sessions/{session}/prompts"), &json!({ "prompt": prompt }), 202)?;
        text(&answer, "promptId")
    }

    /// The session's events after an id, or all of them.
    pub(crate) fn events(&self, session: &str, after: Option<&str>) -> Outcome<Events> {
        let query = after.map_or(String::new(), |after| format!("?after={after}"));
        Events::open(self.address, KEY, &format!("/v1/sessions/{session}/events{query}"))
    }

    fn post(&self, path: &str, body: &Value, expected: u16) -> Outcome<Value> {
        let (status, answer) = client::post(self.address, KEY, path, &body.to_string())?;
        if status != expected {
            return Err(format!("POST {path}: {status} {answer}").into());
        }
        Ok(serde_json::from_str(&answer)?)
    }

    /// Asks it to end, and waits until it did.
    pub(crate) fn stop(mut self) -> Outcome {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("the gateway has no pid")?;
        kill_process(pid, Signal::TERM)?;
        let end = Instant::now() + STOP;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return if status.success() { Ok(()) } else { Err(format!("the gateway: {status}").into()) };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the gateway was still there {STOP:?} after TERM").into())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Both fail when it has ended, and that is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The synthetic agent.
pub(crate) const fn agent() -> &'static str {
    env!("CARGO_BIN_EXE_fake-agent")
}

fn text(object: &Value, member: &str) -> Outcome<String> {
    Ok(object[member].as_str().ok_or_else(|| format!("no {member} in {object}"))?.to_owned())
}
