//! A channel of the gateway: one process of a member.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

use super::frame::{ChannelId, Command, ProcessEnd};
use super::member::Member;
use crate::shutdown::lock_or_abort;

/// The end of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelEnd {
    /// The process has ended, and all its output was received.
    Process(ProcessEnd),
    /// The member did not return, or returned without the process. The text is the reason.
    Lost(String),
}

/// A process of a member. Dropping it tells the member to stop the process and to discard its output.
#[derive(Debug)]
pub struct Channel {
    pub(super) member: Arc<Member>,
    pub(super) id: ChannelId,
    pub(super) end: watch::Receiver<Option<ChannelEnd>>,
    /// The number of commands that the member had received when the channel was opened.
    pub(super) former_commands: u64,
}

impl Channel {
    pub fn id(&self) -> ChannelId {
        self.id
    }

    /// The number of commands that an earlier gateway process has sent.
    pub fn former_commands(&self) -> u64 {
        self.former_commands
    }

    /// Queues a line for the process, which receives at most one line with the same `once`. Returns false if the queue is
    /// full or the channel has ended.
    pub fn send_line(&self, once: Option<String>, line: Bytes) -> bool {
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
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        ended.unwrap_or_else(|| ChannelEnd::Lost("the gateway released the process".to_owned()))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.member.forget(self.id);
    }
}

/// The output of a process that was received and not read. The window of the member bounds its size.
#[derive(Debug, Default)]
pub(super) struct Received(Mutex<ReceivedBytes>);

#[derive(Debug, Default)]
struct ReceivedBytes {
    bytes: BytesMut,
    is_complete: bool,
    reader: Option<Waker>,
}

impl Received {
    fn update(&self, update: impl FnOnce(&mut ReceivedBytes)) {
        let mut received = lock_or_abort(self.0.lock());
        update(&mut received);
        let reader = received.reader.take();
        drop(received);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    pub(super) fn push(&self, bytes: &[u8]) {
        self.update(|received| received.bytes.extend_from_slice(bytes));
    }

    /// No output follows.
    pub(super) fn complete(&self) {
        self.update(|received| received.is_complete = true);
    }
}

/// The output of a process.
#[derive(Debug)]
pub struct ChannelOutput(pub(super) Arc<Received>);

impl AsyncRead for ChannelOutput {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut received = lock_or_abort(self.0.0.lock());
        if received.bytes.is_empty() && !received.is_complete {
            received.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let part = received.bytes.len().min(buffer.remaining());
        buffer.put_slice(&received.bytes.split_to(part));
        Poll::Ready(Ok(()))
    }
}
