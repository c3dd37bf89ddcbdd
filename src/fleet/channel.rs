//! A channel of the gateway: one process of a member.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use super::WINDOW;
use super::commands::CommandQueue;
use super::frame::{ChannelId, Command};
use super::member::Member;
use super::output::OutputPosition;
use super::received::{ChannelEnd, ChannelOutput};
use crate::types::QueuedLine;

/// A process of a member. The drop sends the member a command that stops the process and discards its output.
#[derive(Debug)]
pub struct Channel {
    member: Arc<Member>,
    id: ChannelId,
    end: watch::Receiver<Option<ChannelEnd>>,
    /// The number of commands that the member had received when the channel was opened.
    former_commands: u64,
}

impl Channel {
    /// Opens a channel for a new process.
    pub(super) fn open(member: Arc<Member>, id: ChannelId) -> (Self, ChannelOutput) {
        let mut commands = CommandQueue::new(0);
        commands.push(Command::Open, Bytes::new());
        let (output, end) = member.insert(id, commands, OutputPosition::start(WINDOW));
        (
            Self {
                member,
                id,
                end,
                former_commands: 0,
            },
            output,
        )
    }

    /// Claims a channel of an earlier gateway process, which has processed its output before `offset`. `None`: the member
    /// does not have it.
    pub(super) fn claim(
        member: Arc<Member>,
        id: ChannelId,
        offset: u64,
    ) -> Option<(Self, ChannelOutput)> {
        let former_commands = member.take_unclaimed(id)?;
        let position = OutputPosition::restored(offset, WINDOW);
        let (output, end) = member.insert(id, CommandQueue::new(former_commands), position);
        Some((
            Self {
                member,
                id,
                end,
                former_commands,
            },
            output,
        ))
    }

    pub fn id(&self) -> ChannelId {
        self.id
    }

    /// The number of commands that an earlier gateway process has sent.
    pub fn former_commands(&self) -> u64 {
        self.former_commands
    }

    /// Queues a line for the process, which receives at most one line with the same `once`. Returns false if the queue is
    /// full or the channel has ended. The line is delivered when the member has received it.
    pub fn send_line(&self, once: Option<String>, line: QueuedLine) -> bool {
        self.member.send(self.id, Command::Line { once }, line)
    }

    /// Asks the member to stop the process gracefully. Its output is still received.
    pub fn close(&self) {
        // A full queue means that the member does not read. The drop of the channel ends the process.
        self.member.send(self.id, Command::Close, Bytes::new());
    }

    /// Acknowledges the output before `offset`: its events are durable.
    pub fn acknowledge(&self, offset: u64) {
        self.member.acknowledge(self.id, offset);
    }

    /// The end of the channel. `None` while it is open.
    pub fn end(&self) -> Option<ChannelEnd> {
        self.end.borrow().clone()
    }

    /// Waits for the end of the channel.
    pub async fn ended(&self) -> ChannelEnd {
        let mut end = self.end.clone();
        let ended = end
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|end| end.clone());
        ended.unwrap_or_else(|| ChannelEnd::Lost("the gateway released the process".to_owned()))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.member.forget(self.id);
    }
}
