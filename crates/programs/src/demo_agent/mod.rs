//! `acp-gateway demo-agent`: an ACP agent on stdio that needs no model and no network.
//!
//! It is the first agent that a new user meets, and it says that it is a demo. It uses the version of ACP that
//! its client requests. The demo agent does not know the gateway: it is an independent program in the same
//! binary, and it also works with an editor.
//!
//! Updates and requests are JSON values in the form of v1. [`client`] converts updates with [`v2`] for a client
//! of v2. Commands are scripts in `scenes.json`, which [`player`] plays. A command that needs decisions is a
//! function in [`scenes`].
//!
//! Reading order: this file (lines in and out), [`client`], [`agent`], [`sessions`], [`turn`], [`player`], [`scenes`].

mod agent;
mod client;
mod history;
mod player;
mod scenes;
mod sessions;
mod sign_in;
mod text;
mod turn;
mod v2;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::agent::Agent;
use self::client::Client;
use self::sessions::Store;
use self::sign_in::{SignIn, WORD};
use crate::stdio::{self, Lines, parse, pipes};
use base::shutdown::Shutdown;
use wire::jsonrpc::{self, Message};

/// The maximum number of lines that wait for stdout. After that, turns block.
const OUTPUT_QUEUE_LINES: usize = 64;
/// The time for running turns and unwritten lines after the end of stdin.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// A longer line is discarded and answered with an error.
const LINE_MAX: usize = 32 << 20;

/// Serves ACP on stdin and stdout until stdin ends.
pub fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let served = runtime.and_then(|runtime| {
        let served = runtime.block_on(serve());
        // The shutdown does not wait for blocked stdio, because a client may have stopped reading.
        runtime.shutdown_background();
        served
    });
    exit_code(served.map(|()| true))
}

/// Runs the sign-in in this process's terminal, for clients that start the agent for this.
pub fn sign_in() -> ExitCode {
    let word = variable(WORD).and_then(|word| word.into_string().ok());
    exit_code(sign_in::at_terminal(
        state_folder(),
        word.as_deref().unwrap_or("acp"),
    ))
}

async fn serve() -> io::Result<()> {
    let folder = state_folder();
    let is_required = variable("ACP_DEMO_SIGN_IN").is_some_and(|value| value == "required");
    let sign_in = SignIn::new(is_required, folder.clone());
    let (stdin, stdout) = pipes()?;
    let (lines, queue) = mpsc::channel(OUTPUT_QUEUE_LINES);
    let shutdown = Shutdown::new();
    let agent = Agent::new(
        Client::new(lines),
        Store::new(folder),
        sign_in,
        shutdown.clone(),
    );
    let reading = receive(Lines::read(&shutdown, stdin, LINE_MAX), agent, shutdown);
    let writing = stdio::write(stdout, queue);
    tokio::pin!(reading, writing);
    tokio::select! {
        written = &mut writing => return written,
        ended = &mut reading => ended?,
    }
    timeout(SHUTDOWN_GRACE, writing).await.unwrap_or(Ok(()))
}

/// Handles the messages of the client in order. The end of stdin ends the connection.
async fn receive(mut lines: Lines, mut agent: Agent, shutdown: Shutdown) -> io::Result<()> {
    while let Some(line) = lines.next().await {
        let line = line?.or_else(|too_long| too_long.as_answer());
        match line.and_then(|line| parse(&line)) {
            Ok(Message::Request { id, method, params }) => {
                agent.request(&id, &method, &params).await;
            }
            Ok(Message::Notification { method, params }) => agent.notification(&method, &params),
            Ok(Message::Response { id, outcome }) => agent.client.resolve(&id, outcome),
            Err(error) => {
                let line = jsonrpc::error(RawValue::NULL, &error);
                agent.client.send(line).await;
            }
        }
    }
    agent.end();
    shutdown.wait_for_tasks(SHUTDOWN_GRACE).await;
    Ok(())
}

fn exit_code(done: io::Result<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // There is no other channel for the error if stderr is closed.
            let _ = writeln!(io::stderr(), "demo agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The directory in which sessions are stored. Without a HOME they exist only in memory.
fn state_folder() -> Option<PathBuf> {
    let folder = |name: &str| {
        let path = variable(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = folder("XDG_STATE_HOME").map(|state| state.join("acp-gateway-demo"));
    state.or_else(|| folder("HOME").map(|home| home.join(".acp-gateway-demo")))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the demo agent is a program of its own and has no other configuration"
)]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
