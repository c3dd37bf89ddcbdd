//! The output of a channel on its way to its reader, and the end of the channel.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

use super::frame::ProcessEnd;
use crate::shutdown::lock_or_abort;

/// The end of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelEnd {
    /// The process has ended, and all its output was received.
    Process(ProcessEnd),
    /// The member did not return, or returned without the process. The text is the reason.
    Lost(String),
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
