//! The commands of the gateway on both sides of the connection: the queue of the gateway, and the receiver of the member.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;

use super::frame::Command;
use super::output::ProtocolError;
use crate::types::QueuedLine;

/// The number of commands that may wait for a member. Beyond it, the agent accepts no more messages.
const MAX_QUEUED_COMMANDS: usize = 1024;
/// The size of the lines that may wait for a member.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// The number of `once` keys that a member remembers for a channel. Beyond it, it forgets the oldest one.
const REMEMBERED_KEYS: usize = 4096;

/// The commands of a channel that the member has not received. They are sent again after a cut.
#[derive(Debug)]
pub(super) struct CommandQueue {
    /// The number of the last command that the member has received.
    received: u64,
    queued: VecDeque<(Command, QueuedLine)>,
    bytes: usize,
    /// The number of the last command that was sent on this connection.
    sent: u64,
}

/// A command to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NumberedCommand {
    pub(super) number: u64,
    pub(super) command: Command,
    pub(super) line: Bytes,
}

impl CommandQueue {
    /// The queue of a channel whose member has received `received` commands, of this or of an earlier gateway process.
    pub(super) fn new(received: u64) -> Self {
        Self {
            received,
            queued: VecDeque::new(),
            bytes: 0,
            sent: received,
        }
    }

    /// Queues a command. Returns false if the queue is full.
    pub(super) fn push(&mut self, command: Command, line: impl Into<QueuedLine>) -> bool {
        let line = line.into();
        let bytes = self.bytes + line.bytes().len();
        if self.queued.len() >= MAX_QUEUED_COMMANDS || bytes > MAX_QUEUED_BYTES {
            return false;
        }
        self.bytes = bytes;
        self.queued.push_back((command, line));
        true
    }

    /// The member has received all commands up to `number`.
    pub(super) fn received(&mut self, number: u64) -> Result<(), ProtocolError> {
        if number > self.sent {
            return Err(ProtocolError("it acknowledges a command that was not sent"));
        }
        while self.received < number {
            if let Some((_, line)) = self.queued.pop_front() {
                self.bytes -= line.bytes().len();
                line.delivered();
            }
            self.received += 1;
        }
        Ok(())
    }

    /// A new connection of the member, which reports the last command that it has received.
    pub(super) fn reconnected(&mut self, received: u64) -> Result<(), ProtocolError> {
        if received < self.received || received > self.received + self.queued.len() as u64 {
            return Err(ProtocolError("it reports a command that was not sent"));
        }
        self.sent = self.sent.max(received);
        self.received(received)?;
        self.sent = received;
        Ok(())
    }

    /// Whether the member has received any command.
    pub(super) fn has_started(&self) -> bool {
        self.received > 0
    }

    /// The next command to send.
    pub(super) fn next_command(&mut self) -> Option<NumberedCommand> {
        let at = usize::try_from(self.sent - self.received).ok()?;
        let (command, line) = self.queued.get(at)?;
        let (command, line) = (command.clone(), line.bytes().clone());
        self.sent += 1;
        Some(NumberedCommand {
            number: self.sent,
            command,
            line,
        })
    }
}

/// The commands that a member has received.
#[derive(Debug, Default)]
pub struct CommandReceiver {
    received: u64,
    keys: HashSet<String>,
    /// The keys in the order of their arrival.
    order: VecDeque<String>,
}

impl CommandReceiver {
    /// The number of the last command.
    pub fn last(&self) -> u64 {
        self.received
    }

    /// Receives a command. Returns whether the member executes it. A command that arrives again, or a line whose key is
    /// known, is not executed.
    pub fn receive(&mut self, number: u64, command: &Command) -> Result<bool, ProtocolError> {
        if number <= self.received {
            return Ok(false);
        }
        if number > self.received + 1 {
            return Err(ProtocolError("a command is missing"));
        }
        self.received = number;
        let Command::Line { once: Some(key) } = command else {
            return Ok(true);
        };
        if !self.keys.insert(key.clone()) {
            return Ok(false);
        }
        self.order.push_back(key.clone());
        if self.order.len() > REMEMBERED_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        Ok(true)
    }
}
