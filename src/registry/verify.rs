//! The first start of an agent: it must answer `initialize`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::time::timeout;

use children::{ChildSpec, SpawnError, Spawner};
use wire::acp::{
    AcpVersion, ClientCapabilities, InitializeError, InitializeResult, initialize, method,
};
use wire::jsonrpc;

/// The time from the start to the answer.
const TIMEOUT: Duration = Duration::from_mins(1);
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("could not start the agent")]
    Spawn(#[from] SpawnError),
    #[error("the agent did not answer `initialize` within {} seconds{}", TIMEOUT.as_secs(), with_stderr(.stderr))]
    Timeout { stderr: String },
    #[error("the agent ended before it answered `initialize`{}", with_stderr(.stderr))]
    Ended { stderr: String },
    #[error("the agent answered `initialize` with an error: {0}")]
    Rpc(String),
    #[error(transparent)]
    Initialize(#[from] InitializeError),
}

fn with_stderr(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!("; the end of its stderr:\n{text}"),
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The name and the version of the agent, as it reports them.
    pub agent: Option<String>,
    /// The names of its sign-in methods.
    pub sign_in: Vec<String>,
}

/// Starts a program, sends `initialize`, and stops it.
pub async fn verify(spawner: &Spawner, spec: ChildSpec) -> Result<Answer, VerifyError> {
    let mut child = spawner.spawn(spec).await?;
    let version = env!("CARGO_PKG_VERSION");
    let params = initialize(AcpVersion::V1, version, ClientCapabilities::default());
    let line = jsonrpc::request(0, method::INITIALIZE, &params);
    let stdout = child.take_stdout().expect("a new child has its stdout");
    // An agent that has ended does not read, and its stdout ends.
    if child.stdin.send(line).is_err() {
        tracing::debug!("the agent does not read");
    }
    let output = BufReader::new(stdout.take(MAX_OUTPUT_BYTES));
    let answered = timeout(TIMEOUT, answer(output)).await;
    child.stop().await;
    let stderr = child.stderr.tail();
    let line = match answered {
        Err(_) => return Err(VerifyError::Timeout { stderr }),
        Ok(None) => return Err(VerifyError::Ended { stderr }),
        Ok(Some(line)) => line,
    };
    if let Some(error) = line.error {
        return Err(VerifyError::Rpc(error.get().to_owned()));
    }
    let result = line.result.unwrap_or_default();
    let result = InitializeResult::parse(&result, AcpVersion::V1)?;
    let info = result.agent_info;
    let info = info.and_then(|info| serde_json::from_str::<Info>(info.get()).ok());
    let agent = info.map(|info| format!("{} {}", info.title.unwrap_or(info.name), info.version));
    let methods = result.auth_methods;
    let methods = methods.and_then(|raw| serde_json::from_str::<Vec<Method>>(raw.get()).ok());
    let methods = methods.unwrap_or_default().into_iter();
    Ok(Answer {
        agent: agent.map(|agent| agent.trim().to_owned()),
        sign_in: methods.map(|method| method.name).collect(),
    })
}

/// The response to the request. Other lines are skipped.
async fn answer(mut lines: impl tokio::io::AsyncBufRead + Unpin) -> Option<Line> {
    let mut text = String::new();
    while let Ok(1..) = lines.read_line(&mut text).await {
        if let Ok(line) = serde_json::from_str::<Line>(&text)
            && line.id == Some(0)
        {
            return Some(line);
        }
        text.clear();
    }
    None
}

#[derive(Debug, Deserialize)]
struct Line {
    id: Option<i64>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Info {
    name: String,
    title: Option<String>,
    #[serde(default)]
    version: String,
}

#[derive(Debug, Deserialize)]
struct Method {
    name: String,
}
