//! The messages with which a dialect answers the gateway without a line of the agent.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use super::dialect::Decoded;
use crate::shutdown::lock_or_abort;

/// The replies that the reader has not delivered yet. Each message of the gateway adds a small number of them, and the
/// gateway limits its open calls.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pending: Mutex<Vec<Decoded>>,
    added: Notify,
}

impl Replies {
    fn pending(&self) -> MutexGuard<'_, Vec<Decoded>> {
        lock_or_abort(self.pending.lock())
    }

    /// Adds replies and wakes the reader.
    pub(super) fn push(&self, replies: Vec<Decoded>) {
        self.pending().extend(replies);
        self.added.notify_one();
    }

    /// Removes the pending replies.
    pub(super) fn take(&self) -> Vec<Decoded> {
        std::mem::take(&mut *self.pending())
    }

    /// Completes after replies were added. Cancel-safe.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }
}
