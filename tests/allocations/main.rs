//! Allocations on the hot path for each event, from the agent's pipe to the reader's socket.
//!
//! The program is both the gateway with a counting allocator and the test that starts it: once for a short
//! turn and once for a long turn. The difference is the cost of the additional events. One allocation for
//! each event shows as 1.

#![expect(clippy::print_stdout, reason = "the test prints its result")]

use std::alloc::System;
use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use memchr::memmem;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A key for this run. It is used only on the loopback interface.
const KEY: &str = "allocation-test-key-0123456789abcdef0123456789abcdef";
const DEADLINE: Duration = Duration::from_mins(1);

const SHORT: u32 = 5_000;
const LONG: u32 = 65_000;

/// The maximum allocations for one event. A read of the pipe returns some two hundred events, and a commit
/// contains several reads.
const MOST_ALLOCATIONS: f64 = 0.25;
/// The maximum allocated bytes for a byte of an event. An event is read once and framed once. The rest is
/// unused capacity, on slow machines with small reads.
const MOST_BYTES: f64 = 4.0;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The allocations of a gateway from start to exit.
#[derive(Debug)]
struct Counts {
    allocations: f64,
    bytes: f64,
    /// The bytes of the events that a reader received.
    read: f64,
}

fn main() -> ExitCode {
    let command = std::env::args_os().nth(1).unwrap_or_default();
    if command == "supervisor" {
        return acp_gateway::cli::main();
    }
    if command == "serve" {
        let code = acp_gateway::cli::main();
        let stats = ALLOCATOR.stats();
        let counted = [
            stats.allocations + stats.reallocations,
            stats.bytes_allocated,
        ]
        .map(|n| n.to_string());
        // `--data` is the last argument. If the file cannot be written, the test fails.
        let folder = std::env::args_os().last().unwrap_or_default();
        return if fs::write(Path::new(&folder).join("counts"), counted.join(" ")).is_ok() {
            code
        } else {
            ExitCode::FAILURE
        };
    }
    match check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("allocations: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Outcome<()> {
    let short = life(SHORT)?;
    let long = life(LONG)?;
    let events = f64::from(LONG - SHORT);
    let allocations = (long.allocations - short.allocations) / events;
    let bytes = (long.bytes - short.bytes) / (long.read - short.read);
    println!(
        "{allocations:.3} allocations for an event, {bytes:.2} bytes allocated for a byte of it"
    );
    if allocations > MOST_ALLOCATIONS || bytes > MOST_BYTES {
        return Err(format!(
            "more than {MOST_ALLOCATIONS} allocations or {MOST_BYTES} bytes: {short:?}, {long:?}"
        )
        .into());
    }
    Ok(())
}

/// Runs a gateway for one turn of `events` events.
fn life(events: u32) -> Outcome<Counts> {
    let folder = tempfile::tempdir()?;
    let (mut child, address) = start(folder.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let read =
        runtime.block_on(async { tokio::time::timeout(DEADLINE, turn(&address, events)).await });
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or("the gateway process has no pid")?;
    kill_process(pid, Signal::TERM)?;
    let end = Instant::now() + DEADLINE;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Err("the gateway did not exit".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let read = read??;
    let counts = fs::read_to_string(folder.path().join("counts"))?;
    let (allocations, bytes) = counts
        .split_once(' ')
        .ok_or("the gateway did not write two counts")?;
    Ok(Counts {
        allocations: allocations.parse()?,
        bytes: bytes.parse()?,
        read,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test starts the gateway like an operator"
)]
fn start(folder: &Path) -> Outcome<(Child, String)> {
    fs::write(folder.join("key"), KEY)?;
    let agent = env!("CARGO_BIN_EXE_fake-agent");
    fs::write(
        folder.join("gateway.toml"),
        format!("[agents.fake]\ncommand = {}\n", json!(agent)),
    )?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["serve", "--listen", "127.0.0.1:0", "--config"])
        .arg(folder.join("gateway.toml"))
        .arg("--data")
        .arg(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder)
        .env("ACP_GATEWAY_ADMIN_KEY_FILE", folder.join("key"))
        .env("RUST_LOG", "error")
        // The measurement may run as root.
        .env("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "true")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut link = String::new();
    BufReader::new(child.stdout.take().ok_or("the gateway has no stdout")?).read_line(&mut link)?;
    let address = link
        .trim()
        .strip_prefix("http://")
        .and_then(|rest| rest.split('/').next())
        .map(str::to_owned);
    let Some(address) = address else {
        child.kill()?;
        child.wait()?;
        return Err(format!("the gateway printed no link but {link:?}").into());
    };
    Ok((child, address))
}

/// Reads a turn from its first to its last event. Returns the bytes of its updates.
async fn turn(address: &str, events: u32) -> Outcome<f64> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let post = async |path: String, body: Value| -> Outcome<Value> {
        let request = client
            .post(format!("http://{address}{path}"))
            .bearer_auth(KEY)
            .json(&body);
        Ok(request.send().await?.error_for_status()?.json().await?)
    };
    let session = post("/v1/sessions".to_owned(), json!({ "agent": "fake" })).await?;
    let session = session["sessionId"]
        .as_str()
        .ok_or("the session has no id")?
        .to_owned();
    let stream = client.get(format!(
        "http://{address}/v1/sessions/{session}/events?after=tail"
    ));
    let mut stream = stream
        .bearer_auth(KEY)
        .header("accept", "text/event-stream")
        .send()
        .await?
        .error_for_status()?
        .bytes_stream();
    let prompt = format!("flood n={events} size=64");
    post(
        format!("/v1/sessions/{session}/prompts"),
        json!({ "prompt": prompt }),
    )
    .await?;
    let mut text = Vec::new();
    let end = b"\nevent: prompt.completed\n";
    while memmem::find(&text[text.len().saturating_sub(4096)..], end).is_none() {
        text.extend_from_slice(&stream.next().await.ok_or("the stream ended")??);
    }
    let updates = memmem::find_iter(&text, b"\nevent: session.update\n").count();
    if updates != usize::try_from(events)? {
        return Err(format!("received {updates} of {events} updates").into());
    }
    Ok(f64::from(u32::try_from(text.len())?))
}
