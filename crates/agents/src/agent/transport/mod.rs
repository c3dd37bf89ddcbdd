//! Transports: the channel between the gateway and one agent.
//!
//! A transport delivers the bytes of the agent's lines, sends lines, and reports its end. The connection does not
//! know whether a child process or a network is behind it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::failure::AgentExit;
use base::types::QueuedLine;
use wire::fleet::ChannelId;
use wire::jsonrpc::PendingTables;

pub(super) mod http;
#[cfg(test)]
pub(crate) mod memory;
mod link;
pub(super) mod member;
pub(super) mod stdio;
pub(super) mod websocket;

/// A boxed future, for the methods of trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The transport is closed, or the agent reads too slowly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent accepts no more messages")]
pub struct Closed;

/// The outgoing half of a transport. Never waits.
pub(super) trait LineWriter: fmt::Debug + Send + Sync {
    /// Queues a line, which includes its newline.
    fn send(&self, line: QueuedLine, queueing: Queueing) -> Result<(), Closed>;
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queueing {
    Ordinary,
    /// The line may use the places of the queue for cancels and answers.
    Reserved,
    /// The call with this number. As `Reserved`; an agent that outlives the gateway receives it only once, also from a
    /// gateway that was killed and started again.
    Call(u64),
    /// The same for the answer to the request with this number.
    Answer(u64),
}

/// The owner of a transport. Dropping it closes the transport in the background.
pub(super) trait Transport: fmt::Debug + Send + Sync {
    /// Begins to close the transport gracefully. The messages of the agent are still read.
    fn begin_close(&self);

    /// Completes when the transport is closed, and the agent's process has ended if the transport started it.
    fn closed(&self) -> BoxFuture<'_, ()>;

    fn is_closed(&self) -> bool;

    /// How the agent ended. Waits a fraction of a second for details. Secrets are not masked.
    fn exit(&self) -> BoxFuture<'_, AgentExit>;

    /// The last diagnostic output of the agent. Secrets are not masked.
    fn diagnostics(&self) -> String;

    /// The channel of the agent, if its process outlives the gateway.
    fn channel(&self) -> Option<ChannelId> {
        None
    }

    /// Acknowledges the output before `offset`: its events are durable.
    fn acknowledge(&self, _offset: u64) {}
}

pub(super) struct Channel<R> {
    /// The bytes of the agent's lines. The end of the file is the end of the connection.
    pub(super) incoming: R,
    pub(super) outgoing: Arc<dyn LineWriter>,
    pub(super) transport: Box<dyn Transport>,
    /// The offset of the first byte in the output of the process. `None`: the transport does not number the output.
    pub(super) offset: Option<u64>,
    /// The open requests of an earlier gateway process. `None`: the process is new.
    pub(super) pending: Option<PendingTables>,
}
