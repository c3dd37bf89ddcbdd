//! The synthetic agent as it is: its numbers and markers, and what a bare pipe to it costs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use memchr::memmem;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::{Outcome, gateway};

/// The clock that the agent's markers are taken from.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or_default()
}

/// The eight digits with which an update's text begins.
pub(crate) fn text_number(line: &[u8]) -> Option<u32> {
    const TEXT: &[u8] = br#""type":"text","text":""#;
    let digits = memmem::find(line, TEXT).and_then(|at| line.get(at + TEXT.len()..at + TEXT.len() + 8))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// When the agent wrote a line.
pub(crate) fn marker(line: &[u8]) -> Option<u64> {
    const MARKER: &[u8] = b"bench@";
    let hex =
        memmem::find(line, MARKER).and_then(|at| line.get(at + MARKER.len()..at + MARKER.len() + 16))?;
    u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// The latencies of a turn without a gateway in between.
#[expect(clippy::disallowed_methods, reason = "the agent alone is what the gateway is compared with")]
pub(crate) fn latencies(prompt: &str) -> Outcome<Vec<u64>> {
    let mut agent = Command::new(gateway::agent()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = agent.stdin.take().ok_or("the agent has no stdin")?;
    let mut stdout = BufReader::new(agent.stdout.take().ok_or("the agent has no stdout")?);
    let mut line = String::new();
    let new = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": "/", "mcpServers": [] } });
    writeln!(stdin, "{new}")?;
    stdout.read_line(&mut line)?;
    let made: Value = serde_json::from_str(&line)?;
    let params =
        json!({ "sessionId": made["result"]["sessionId"], "prompt": [{ "type": "text", "text": prompt }] });
    writeln!(
        stdin,
        "{}",
        json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": params })
    )?;
    let mut latencies = Vec::new();
    loop {
        line.clear();
        if stdout.read_line(&mut line)? == 0 || line.contains("stopReason") {
            break;
        }
        latencies.extend(marker(line.as_bytes()).map(|sent| now().saturating_sub(sent)));
    }
    drop(stdin);
    agent.wait()?;
    Ok(latencies)
}
