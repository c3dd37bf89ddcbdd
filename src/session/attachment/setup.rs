//! The setup of the session on a process: its method, and the updates that arrive before its result.

use std::collections::VecDeque;

use serde_json::value::RawValue;

use super::discarded::DiscardCounter;
use crate::acp;
use crate::agent::Dialect;
use crate::event::AttachedBy;
use crate::types::Limits;

/// Buffers the updates that arrive before the agent's session id is known.
#[derive(Debug, Default)]
pub(super) struct PreAttachBuffer {
    pub(super) updates: VecDeque<Box<RawValue>>,
    bytes: usize,
    discarded: DiscardCounter,
}

/// The method that attaches the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum AttachMethod {
    New,
    Resume,
    Load,
    /// A new agent session without the conversation, because the former one cannot be restored.
    Fresh,
}

impl PreAttachBuffer {
    /// Appends an update. Discards the oldest updates above the limits.
    pub(super) fn push(&mut self, params: Box<RawValue>, limits: &Limits) {
        self.bytes += params.get().len();
        self.updates.push_back(params);
        while self.updates.len() > limits.max_pre_attach_updates || self.bytes > limits.max_batch_bytes {
            let Some(oldest) = self.updates.pop_front() else { return };
            self.bytes -= oldest.get().len();
            if let Some(discarded) = self.discarded.increment() {
                tracing::warn!(
                    discarded,
                    "discarded an update that arrived before its session was known; the buffer is full"
                );
            }
        }
    }
}

impl AttachMethod {
    pub(in crate::session) const fn attached_by(self) -> AttachedBy {
        match self {
            Self::New => AttachedBy::New,
            Self::Resume => AttachedBy::Resume,
            Self::Load => AttachedBy::Load,
            Self::Fresh => AttachedBy::Fresh,
        }
    }

    pub(in crate::session) fn method(self, dialect: &dyn Dialect) -> &'static str {
        match self {
            Self::New | Self::Fresh => acp::method::SESSION_NEW,
            Self::Resume => acp::method::SESSION_RESUME,
            Self::Load => dialect.replay_method(),
        }
    }
}
