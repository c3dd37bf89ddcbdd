//! A transport in memory, for tests.

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, watch};

use super::{BoxFuture, Channel, Closed, LineWriter, Queueing, Transport};
use crate::agent::failure::AgentExit;
use crate::agent::handshake::Handshake;
use crate::agent::process::Process;
use crate::agent::process::ProcessKey;
use crate::agent::spec::AgentSpec;
use crate::limits::Limits;
use base::shutdown::Shutdown;
use base::types::QueuedLine;
use wire::acp::AcpVersion;

/// The number of lines that the writer queues.
const QUEUED_LINES: usize = 8;

/// The agent's end of the transport. Dropping it ends the agent.
pub(crate) struct MemoryAgent {
    received: mpsc::Receiver<Bytes>,
    output: Option<DuplexStream>,
    closing: watch::Receiver<bool>,
    _ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct MemoryWriter(mpsc::Sender<Bytes>);

#[derive(Debug)]
struct MemoryTransport {
    closing: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
}

/// Opens a transport. A full queue of lines is closed.
pub(in crate::agent) fn open() -> (Channel<DuplexStream>, MemoryAgent) {
    let (lines, received) = mpsc::channel(QUEUED_LINES);
    let (incoming, output) = tokio::io::duplex(1 << 20);
    let (closing, is_closing) = watch::channel(false);
    let (end, ended) = watch::channel(false);
    let transport = Box::new(MemoryTransport { closing, ended });
    let channel = Channel {
        incoming,
        outgoing: Arc::new(MemoryWriter(lines)),
        transport,
        offset: None,
        pending: None,
    };
    (
        channel,
        MemoryAgent {
            received,
            output: Some(output),
            closing: is_closing,
            _ended: end,
        },
    )
}

/// Connects to an initialized agent that speaks ACP v1.
pub(crate) async fn connect(spec: &Arc<AgentSpec>, key: &ProcessKey) -> (Process, MemoryAgent) {
    let (channel, mut agent) = open();
    let handshake = Handshake {
        spec,
        key,
        version: AcpVersion::V1,
        gateway_version: "test",
        telemetry_token: None,
    };
    let limits = Arc::new(Limits::default());
    let shutdown = Shutdown::new();
    let (started, ()) = tokio::join!(
        handshake.run(channel, &limits, &shutdown),
        agent.initialize()
    );
    (started.expect("the agent is initialized"), agent)
}

impl MemoryAgent {
    /// The next line of the gateway, without its end.
    pub(crate) async fn next_line(&mut self) -> String {
        let line = self
            .received
            .recv()
            .await
            .expect("the gateway sends a line");
        String::from_utf8(line.to_vec())
            .expect("a line is text")
            .trim_end()
            .to_owned()
    }

    pub(crate) async fn send(&mut self, bytes: &str) {
        let output = self
            .output
            .as_mut()
            .expect("the agent has not ended its output");
        output
            .write_all(bytes.as_bytes())
            .await
            .expect("the gateway reads");
    }

    /// Ends the output of the agent.
    pub(crate) fn end(&mut self) {
        self.output = None;
    }

    /// Whether the gateway has begun to close the transport.
    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Answers `initialize`, which is the first line.
    pub(crate) async fn initialize(&mut self) {
        assert!(
            self.next_line()
                .await
                .contains(r#""id":1,"method":"initialize""#)
        );
        self.send("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":1}}\n")
            .await;
    }
}

impl LineWriter for MemoryWriter {
    fn send(&self, line: QueuedLine, _queueing: Queueing) -> Result<(), Closed> {
        let sent = self.0.try_send(line.bytes().clone());
        sent.map_err(|_| Closed)?;
        line.delivered();
        Ok(())
    }
}

impl Transport for MemoryTransport {
    fn begin_close(&self) {
        self.closing.send_replace(true);
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        let mut ended = self.ended.clone();
        Box::pin(async move { drop(ended.wait_for(|ended| *ended).await) })
    }

    fn is_closed(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    fn exit(&self) -> BoxFuture<'_, AgentExit> {
        let exit = AgentExit {
            stderr_tail: self.diagnostics(),
            ..AgentExit::default()
        };
        Box::pin(std::future::ready(exit))
    }

    fn diagnostics(&self) -> String {
        "the key is hunter2-key".to_owned()
    }
}
