//! The transport to a process of a member of the fleet. The process outlives cuts of the network and the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{BoxFuture, Channel, Closed, LineWriter, Queueing, Transport};
use crate::agent::failure::AgentExit;
use base::types::QueuedLine;
use wire::fleet::{self, ChannelEnd, ChannelId, ChannelOutput};
use wire::jsonrpc::PendingTables;

/// The time for a graceful stop by the member. Then the gateway forgets the channel, which kills the process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct MemberTransport {
    channel: Arc<fleet::Channel>,
    closing: AtomicBool,
}

#[derive(Debug)]
struct MemberWriter(Arc<fleet::Channel>);

/// Opens the transport of a channel whose output begins at `offset`.
pub(in crate::agent) fn open(
    channel: fleet::Channel,
    incoming: ChannelOutput,
    offset: u64,
    pending: Option<PendingTables>,
) -> Channel<ChannelOutput> {
    let channel = Arc::new(channel);
    let outgoing = Arc::new(MemberWriter(Arc::clone(&channel)));
    let transport = Box::new(MemberTransport {
        channel,
        closing: AtomicBool::new(false),
    });
    Channel {
        incoming,
        outgoing,
        transport,
        offset: Some(offset),
        pending,
    }
}

impl LineWriter for MemberWriter {
    fn send(&self, line: QueuedLine, queueing: Queueing) -> Result<(), Closed> {
        let key = match queueing {
            Queueing::Ordinary | Queueing::Reserved => None,
            Queueing::Call(number) => Some(format!("call/{number}")),
            Queueing::Answer(number) => Some(format!("answer/{number}")),
        };
        self.0.send_line(key, line).then_some(()).ok_or(Closed)
    }
}

impl Transport for MemberTransport {
    fn begin_close(&self) {
        if !self.closing.swap(true, Ordering::Relaxed) {
            self.channel.close();
        }
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        // A member that is away must not hold a place of the pool.
        Box::pin(async {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.channel.ended()).await;
        })
    }

    fn is_closed(&self) -> bool {
        self.channel.end().is_some()
    }

    fn exit(&self) -> BoxFuture<'_, AgentExit> {
        let exit = match self.channel.end() {
            Some(ChannelEnd::Process(end)) => AgentExit {
                exit_code: end.exit_code,
                signal: end.signal,
                stderr_tail: end.stderr_tail,
                reason: end.reason,
                ..AgentExit::default()
            },
            Some(ChannelEnd::Lost(reason)) => AgentExit {
                reason: Some(reason),
                is_lost: true,
                ..AgentExit::default()
            },
            None => AgentExit::default(),
        };
        Box::pin(std::future::ready(exit))
    }

    fn diagnostics(&self) -> String {
        match self.channel.end() {
            Some(ChannelEnd::Process(end)) => end.stderr_tail,
            _ => String::new(),
        }
    }

    fn channel(&self) -> Option<ChannelId> {
        Some(self.channel.id())
    }

    fn acknowledge(&self, offset: u64) {
        self.channel.acknowledge(offset);
    }
}
