//! The transport to a child process: lines on its stdin and stdout.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::process::ChildStdout;

use super::{BoxFuture, Channel, Closed, LineWriter, Transport};
use crate::agent::failure::AgentExit;
use crate::process::{Child, StdinWriter, StopReason};

/// The time that a process may use to end after it closed its stdout. After that, the report has no exit code.
const EXIT_GRACE: Duration = Duration::from_millis(400);

#[derive(Debug)]
struct Stdio(Child);

/// Opens the transport to a new child.
pub(in crate::agent) fn open(mut child: Child) -> Channel<ChildStdout> {
    let incoming = child.take_stdout().expect("a new child has its stdout");
    let outgoing = Arc::new(child.stdin());
    Channel { incoming, outgoing, transport: Box::new(Stdio(child)) }
}

impl LineWriter for StdinWriter {
    fn send(&self, line: Bytes) -> Result<(), Closed> {
        Self::send(self, line).map_err(|_| Closed)
    }

    fn send_reserved(&self, line: Bytes) -> Result<(), Closed> {
        Self::send_reserved(self, line).map_err(|_| Closed)
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
            let stalled = self.0.stop_reason().filter(|reason| *reason == StopReason::StdinStalled);
            let (exit_code, signal) = exit.map_or((None, None), |exit| (exit.code, exit.signal));
            let (stderr_tail, reason) = (self.diagnostics(), stalled.map(|reason| reason.to_string()));
            AgentExit { exit_code, signal, stderr_tail, reason }
        })
    }

    fn diagnostics(&self) -> String {
        self.0.stderr().tail()
    }
}
