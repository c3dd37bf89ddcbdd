//! The output of a process and the commands for it, each on both sides of the connection.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;

use super::frame::{ChannelId, Command, MemberFrame, OUTPUT_BYTES, ProcessEnd};
use base::types::QueuedLine;

pub(super) const EXCEEDS_WINDOW: &str = "it sends more output than the window allows";

/// The peer violated the protocol. The connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the peer violated the fleet protocol: {0}")]
pub struct ProtocolError(pub &'static str);

/// The output of a process that the gateway has not acknowledged. It is sent again after a cut.
#[derive(Debug)]
pub struct OutputBuffer {
    /// The offset of the first byte of `blocks`.
    start: u64,
    blocks: VecDeque<Bytes>,
    bytes: u64,
    /// The offset of the next byte to send. `None` until the gateway has asked for the output.
    next: Option<u64>,
    window: u64,
    end: Option<ProcessEnd>,
    end_sent: bool,
}

impl OutputBuffer {
    pub fn new(window: u64) -> Self {
        Self {
            start: 0,
            blocks: VecDeque::new(),
            bytes: 0,
            next: None,
            window,
            end: None,
            end_sent: false,
        }
    }

    /// Whether the process may be read. False while unacknowledged output fills the window.
    pub fn has_room(&self) -> bool {
        self.bytes < self.window
    }

    pub fn push(&mut self, block: Bytes) {
        self.bytes += block.len() as u64;
        if !block.is_empty() {
            self.blocks.push_back(block);
        }
    }

    /// The process has ended. No output follows.
    pub fn ended(&mut self, end: ProcessEnd) {
        self.end = Some(end);
    }

    /// The connection was cut: nothing is sent until the gateway asks for it.
    pub fn pause(&mut self) {
        self.next = None;
    }

    /// The gateway asks for the output from `offset` on. Output that it acknowledged before is not sent again.
    pub fn resume(&mut self, offset: u64) -> Result<(), ProtocolError> {
        if offset > self.start + self.bytes {
            return Err(ProtocolError("it asks for output that does not exist"));
        }
        self.next = Some(offset.max(self.start));
        self.end_sent = false;
        Ok(())
    }

    /// Discards the output before `offset`.
    pub fn durable(&mut self, offset: u64) -> Result<(), ProtocolError> {
        if offset > self.next.unwrap_or(0).max(self.start) {
            return Err(ProtocolError("it acknowledges output that was not sent"));
        }
        while self.start < offset {
            let Some(mut block) = self.blocks.pop_front() else {
                break;
            };
            let part = block
                .len()
                .min(usize::try_from(offset - self.start).unwrap_or(usize::MAX));
            let _ = block.split_to(part);
            self.start += part as u64;
            self.bytes -= part as u64;
            if !block.is_empty() {
                self.blocks.push_front(block);
            }
        }
        Ok(())
    }

    /// The next frame to send on the channel, with its payload. `None`: there is none now.
    pub fn next_frame(&mut self, channel: ChannelId) -> Option<(MemberFrame, Bytes)> {
        let next = self.next?;
        let mut at = self.start;
        for block in &self.blocks {
            let after = at + block.len() as u64;
            if next < after {
                let from = usize::try_from(next - at).unwrap_or(usize::MAX);
                let bytes = block.slice(from..block.len().min(from + OUTPUT_BYTES));
                self.next = Some(next + bytes.len() as u64);
                let offset = next;
                return Some((MemberFrame::Output { channel, offset }, bytes));
            }
            at = after;
        }
        if self.end_sent {
            return None;
        }
        let ended = MemberFrame::Ended {
            channel,
            offset: next,
            end: Box::new(self.end.clone()?),
        };
        self.end_sent = true;
        Some((ended, Bytes::new()))
    }
}

/// The position of the gateway in the output of a process.
#[derive(Debug)]
pub(super) struct OutputPosition {
    next: u64,
    /// The first part after a restart of the gateway may begin later than the gateway has asked for: the position in the log
    /// does not contain output without an event, which the gateway had acknowledged.
    may_skip: bool,
    /// The offset before which everything is acknowledged.
    durable: u64,
    window: u64,
}

impl OutputPosition {
    /// The position at `offset`, of this or of an earlier gateway process.
    pub(super) fn new(offset: u64, is_restored: bool, window: u64) -> Self {
        Self {
            next: offset,
            may_skip: is_restored,
            durable: offset,
            window,
        }
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The new bytes of a part. Bytes that were received before are removed.
    pub(super) fn receive(
        &mut self,
        offset: u64,
        mut bytes: Bytes,
    ) -> Result<Bytes, ProtocolError> {
        let skipped = offset.saturating_sub(self.next);
        if skipped > 0 && !self.may_skip {
            return Err(ProtocolError("output is missing"));
        }
        self.may_skip = false;
        if skipped > 0 {
            self.next = offset;
            self.durable = offset;
        }
        let known = usize::try_from(self.next - offset.min(self.next)).unwrap_or(usize::MAX);
        let new = bytes.split_off(known.min(bytes.len()));
        let next = self.next + new.len() as u64;
        // A block of the member can exceed the window once.
        if next - self.durable > self.window + 2 * OUTPUT_BYTES as u64 {
            return Err(ProtocolError(EXCEEDS_WINDOW));
        }
        self.next = next;
        Ok(new)
    }

    pub(super) fn durable(&mut self, offset: u64) {
        self.durable = self.durable.max(offset);
    }

    /// Whether the output is complete at the end of the process.
    pub(super) fn check_end(&mut self, offset: u64) -> Result<(), ProtocolError> {
        let complete = offset == self.next || (self.may_skip && offset > self.next);
        if complete {
            Ok(())
        } else {
            Err(ProtocolError("the output ends before its end"))
        }
    }
}

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

    pub(super) fn has_started(&self) -> bool {
        self.received > 0
    }

    /// The next command to send: its number, and its line.
    pub(super) fn next_command(&mut self) -> Option<(u64, Command, Bytes)> {
        let at = usize::try_from(self.sent - self.received).ok()?;
        let (command, line) = self.queued.get(at)?;
        self.sent += 1;
        Some((self.sent, command.clone(), line.bytes().clone()))
    }
}

#[derive(Debug, Default)]
pub struct CommandReceiver {
    received: u64,
    keys: HashSet<String>,
    /// The keys in the order of their arrival.
    order: VecDeque<String>,
}

impl CommandReceiver {
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
