//! The transport to a child process: lines on its stdin and stdout.

use std::sync::Arc;
use std::time::Duration;

use tokio::process::ChildStdout;

use super::{BoxFuture, Channel, Closed, LineWriter, Queueing, Transport};
use crate::agent::failure::AgentExit;
use base::types::QueuedLine;
use children::{Child, Exit, StdinWriter, StopReason};

/// The time that a process may use to end after it closed its stdout. After that, the report has no exit code.
const EXIT_GRACE: Duration = Duration::from_millis(400);

#[derive(Debug)]
struct Stdio(Child);

pub(in crate::agent) fn open(mut child: Child) -> Channel<ChildStdout> {
    let incoming = child.take_stdout().expect("a new child has its stdout");
    let outgoing = Arc::new(child.stdin.clone());
    Channel {
        incoming,
        outgoing,
        transport: Box::new(Stdio(child)),
        offset: None,
        pending: None,
    }
}

impl Stdio {
    /// The limit for which the kernel killed the process. Other processes of the agent may exceed it too.
    fn exceeded_limit(&self, exit: Option<&Exit>) -> Option<String> {
        if exit?.signal.as_deref() != Some("SIGKILL") || self.0.stop_reason().is_some() {
            return None;
        }
        let bytes = self.0.exceeded_memory()?;
        Some(format!("max_memory_bytes ({bytes} bytes)"))
    }
}

impl LineWriter for StdinWriter {
    fn send(&self, line: QueuedLine, queueing: Queueing) -> Result<(), Closed> {
        let sent = match queueing {
            Queueing::Ordinary => Self::send(self, line),
            Queueing::Reserved | Queueing::Call(_) | Queueing::Answer(_) => {
                Self::send_reserved(self, line)
            }
        };
        sent.map_err(|_| Closed)
    }
}

impl Transport for Stdio {
    fn begin_close(&self) {
        self.0.begin_stop();
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { drop(self.0.exited().await) })
    }

    fn is_closed(&self) -> bool {
        self.0.exit().is_some()
    }

    fn exit(&self) -> BoxFuture<'_, AgentExit> {
        Box::pin(async {
            let exit = tokio::time::timeout(EXIT_GRACE, self.0.exited()).await.ok();
            let exceeded_limit = self.exceeded_limit(exit.as_ref());
            let reason = self.0.stop_reason();
            let stalled = reason.filter(|reason| *reason == StopReason::StdinStalled);
            let exit = exit.unwrap_or_default();
            AgentExit {
                exit_code: exit.code,
                signal: exit.signal,
                stderr_tail: self.diagnostics(),
                reason: stalled.map(|reason| reason.to_string()),
                exceeded_limit: exceeded_limit.map(String::into_boxed_str),
                ..AgentExit::default()
            }
        })
    }

    fn diagnostics(&self) -> String {
        self.0.stderr.tail()
    }
}
