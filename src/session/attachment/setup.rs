//! The setup of the session on a process: its method, and the updates that arrive before its result.

use std::collections::VecDeque;

use serde_json::value::RawValue;

use crate::acp::{self, AcpVersion};
use crate::event::{AttachedBy, LostReason};
use crate::jsonrpc::RpcError;
use crate::types::Limits;

/// A request to create or restore the session.
#[derive(Debug)]
pub(in crate::session) struct SetUp {
    pub(in crate::session) method: AttachMethod,
    /// The agent's error to `session/resume`, if `session/load` follows it.
    pub(in crate::session) resume: Option<RpcError>,
    /// The reason why a fresh agent session does not have the conversation.
    pub(in crate::session) lost_context: Option<LostContext>,
    pub(in crate::session) replayed_updates: u64,
    /// Updates that arrived before the agent's session id was known.
    pub(in crate::session) updates: VecDeque<Box<RawValue>>,
    bytes: usize,
    discarded: DiscardCounter,
}

/// The reason for a lost context of the session.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) struct LostContext {
    pub(in crate::session) reason: LostReason,
    pub(in crate::session) detail: Option<String>,
}

/// Counts input of the agent that the gateway discards. Limits the rate of the log messages about it.
#[derive(Debug, Default)]
pub(in crate::session) struct DiscardCounter(u64);

impl DiscardCounter {
    /// Increments the counter. Returns the count if it should be logged: at every power of two.
    pub(in crate::session) fn increment(&mut self) -> Option<u64> {
        self.0 += 1;
        self.0.is_power_of_two().then_some(self.0)
    }
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

impl SetUp {
    pub(in crate::session) fn new(method: AttachMethod) -> Self {
        Self {
            method,
            resume: None,
            lost_context: None,
            replayed_updates: 0,
            updates: VecDeque::new(),
            bytes: 0,
            discarded: DiscardCounter::default(),
        }
    }

    /// A load after the agent's error to the resume.
    pub(in crate::session) fn load_after(resume: RpcError) -> Self {
        Self {
            resume: Some(resume),
            ..Self::new(AttachMethod::Load)
        }
    }

    /// A new agent session without the conversation.
    pub(in crate::session) fn fresh(reason: LostReason, detail: Option<String>) -> Self {
        Self {
            lost_context: Some(LostContext { reason, detail }),
            ..Self::new(AttachMethod::Fresh)
        }
    }

    pub(super) fn has_no_updates(&self) -> bool {
        self.replayed_updates == 0 && self.updates.is_empty()
    }

    /// Buffers an update. Discards the oldest updates above the limits.
    pub(super) fn buffer(&mut self, params: Box<RawValue>, limits: &Limits) {
        self.bytes += params.get().len();
        self.updates.push_back(params);
        while self.updates.len() > limits.max_pre_attach_updates
            || self.bytes > limits.max_batch_bytes
        {
            let Some(oldest) = self.updates.pop_front() else {
                return;
            };
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
    /// Whether the agent creates a session.
    pub(in crate::session) const fn is_new(self) -> bool {
        matches!(self, Self::New | Self::Fresh)
    }

    pub(in crate::session) const fn attached_by(self) -> AttachedBy {
        match self {
            Self::New => AttachedBy::New,
            Self::Resume => AttachedBy::Resume,
            Self::Load => AttachedBy::Load,
            Self::Fresh => AttachedBy::Fresh,
        }
    }

    pub(in crate::session) fn method(self, version: AcpVersion) -> &'static str {
        match self {
            Self::New | Self::Fresh => acp::method::SESSION_NEW,
            Self::Resume => acp::method::SESSION_RESUME,
            Self::Load => version.replay_method(),
        }
    }
}
