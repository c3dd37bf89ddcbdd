//! The editor: its lines on stdin and stdout, and its protocol in front of the bridge.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::translate::{ClientProtocol, MAX_LINE_BYTES, Served, next_line, parse};
use wire::jsonrpc::{Message, RpcError};

pub(super) type Input = Result<Message, RpcError>;

/// A line of the editor, the error of a line above the limit, or the failure of stdin.
pub(super) type Lines = io::Result<Result<Vec<u8>, RpcError>>;

pub(super) async fn read(
    mut input: impl tokio::io::AsyncBufRead + Unpin,
    lines: mpsc::Sender<Lines>,
) {
    while let Some(line) = next_line(&mut input, MAX_LINE_BYTES).await.transpose() {
        let is_last = line.is_err();
        if lines.send(line).await.is_err() || is_last {
            return;
        }
    }
}

pub(super) async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        output.write_all(&line).await?;
        output.flush().await?;
    }
    Ok(())
}

/// The protocol of the editor, and the lines that the writer of stdout has not accepted yet.
#[derive(Debug)]
pub(super) struct Editor {
    /// `None`: ACP, whose messages pass unchanged.
    protocol: Option<Box<dyn ClientProtocol>>,
    lines: VecDeque<Bytes>,
    bytes: usize,
}

impl Editor {
    pub(super) fn new(protocol: Option<Box<dyn ClientProtocol>>) -> Self {
        Self {
            protocol,
            lines: VecDeque::new(),
            bytes: 0,
        }
    }

    /// The messages for the bridge that follow from a line of the editor.
    pub(super) fn received(&mut self, line: Result<Vec<u8>, RpcError>) -> Vec<Input> {
        let Some(protocol) = &mut self.protocol else {
            return vec![line.and_then(|line| parse(&line))];
        };
        let served = match line {
            Ok(line) => protocol.client_line(&line),
            Err(error) => Served::invalid_line(&error),
        };
        self.serve(served)
    }

    /// Queues a line of the bridge for the editor. Returns the messages for the bridge that follow from it.
    pub(super) fn write(&mut self, line: Bytes) -> Vec<Input> {
        let Some(protocol) = &mut self.protocol else {
            self.push(line);
            return Vec::new();
        };
        // The bridge writes only messages.
        let Ok(message) = parse(&line) else {
            return Vec::new();
        };
        let served = protocol.agent_message(message);
        self.serve(served)
    }

    fn serve(&mut self, served: Served) -> Vec<Input> {
        for line in served.to_client {
            self.push(line);
        }
        served.to_agent.into_iter().map(Ok).collect()
    }

    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    pub(super) fn next_line(&mut self) -> Option<Bytes> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.len();
        Some(line)
    }

    pub(super) fn is_written(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn unwritten_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_ending(&self) -> bool {
        let protocol = self.protocol.as_ref();
        protocol.is_some_and(|protocol| protocol.has_ended())
    }
}
