//! A line in a queue to a process.

use bytes::Bytes;
use tokio::sync::oneshot;

/// A line with its newline, in the queue of a writer. Its sender can wait for its delivery.
#[derive(Debug)]
pub struct QueuedLine {
    bytes: Bytes,
    delivered: Option<oneshot::Sender<()>>,
}

impl From<Bytes> for QueuedLine {
    fn from(bytes: Bytes) -> Self {
        Self {
            bytes,
            delivered: None,
        }
    }
}

impl QueuedLine {
    /// A line whose delivery is reported. The receiver fails if the writer ends before the delivery.
    pub fn reported(bytes: Bytes) -> (Self, oneshot::Receiver<()>) {
        let (delivered, receiver) = oneshot::channel();
        (
            Self {
                bytes,
                delivered: Some(delivered),
            },
            receiver,
        )
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Reports the delivery to the sender.
    pub fn delivered(self) {
        if let Some(delivered) = self.delivered {
            // The sender may have stopped waiting.
            delivered.send(()).ok();
        }
    }
}
