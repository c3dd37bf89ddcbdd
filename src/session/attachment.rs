//! The state machine of a session's process.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::command::Reply;
use super::discarded::DiscardCounter;
use super::refusal::Refusal;
use crate::acp::{self, TraceContext};
use crate::agent::{AgentFailure, Dialect};
use crate::event::{AttachedBy, DetachedReason};
use crate::jsonrpc::{CallId, RpcError};
use crate::pool::Disposition;
use crate::types::Limits;

/// The state of the session's process.
#[derive(Debug)]
pub(super) enum Attachment {
    Detached,
    /// The session waits for a process in the pool's queue.
    Queued {
        since: Instant,
    },
    /// The agent did not restore the session. The session asks for a process again at that time.
    Retrying {
        at: Instant,
    },
    /// The agent is creating or restoring the session.
    SettingUp {
        method: AttachMethod,
        /// The agent's error to `session/resume`, if `session/load` follows it.
        resume: Option<RpcError>,
        call: CallId,
        deadline: Instant,
        skipped_updates: u64,
        buffer: PreAttachBuffer,
    },
    /// The agent refused to load the session without a sign-in. It was asked for a step of the sign-in with its key.
    SigningIn {
        call: CallId,
        deadline: Instant,
        /// The agent's error to `session/load`.
        refusal: RpcError,
    },
    Attached,
    /// The agent is closing or deleting the session.
    Releasing {
        call: CallId,
        deadline: Instant,
        /// Whether the call closes the session. A process that closed a session can serve another one.
        closes: bool,
    },
}

/// A client that waits for a process without a turn.
#[derive(Debug)]
pub(super) struct AttachWaiter {
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<u64>,
    pub(super) deadline: Instant,
}

/// Buffers the updates that arrive before the agent's session id is known.
#[derive(Debug, Default)]
pub(super) struct PreAttachBuffer {
    pub(super) updates: VecDeque<Box<RawValue>>,
    bytes: usize,
    discarded: DiscardCounter,
}

impl PreAttachBuffer {
    /// Appends an update. Discards the oldest updates above the limits.
    pub(super) fn push(&mut self, params: Box<RawValue>, limits: &Limits) {
        self.bytes += params.get().len();
        self.updates.push_back(params);
        while self.updates.len() > limits.max_pre_attach_updates || self.bytes > limits.max_batch_bytes {
            let Some(oldest) = self.updates.pop_front() else { return };
            self.bytes -= oldest.get().len();
            if let Some(dropped) = self.discarded.increment() {
                tracing::warn!(
                    dropped,
                    "discarded an update that arrived before its session was known; the buffer is full"
                );
            }
        }
    }
}

/// The method that attaches the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttachMethod {
    New,
    Resume,
    Load,
    /// A new agent session without the conversation, because the former one cannot be restored.
    Fresh,
}

impl AttachMethod {
    pub(super) const fn attached_by(self) -> AttachedBy {
        match self {
            Self::New => AttachedBy::New,
            Self::Resume => AttachedBy::Resume,
            Self::Load => AttachedBy::Load,
            Self::Fresh => AttachedBy::Fresh,
        }
    }

    pub(super) fn method(self, dialect: &dyn Dialect) -> &'static str {
        match self {
            Self::New | Self::Fresh => acp::method::SESSION_NEW,
            Self::Resume => acp::method::SESSION_RESUME,
            Self::Load => dialect.replay_method(),
        }
    }
}

impl Actor {
    /// How long an idle session keeps its process. It depends on whether the agent can restore it.
    fn idle_timeout(&self) -> Duration {
        let pool = &self.spec.settings.pool;
        match &self.event_loop.lease {
            Some(lease) if !lease.process().initialized.capabilities.can_restore() => {
                pool.no_load_idle_timeout
            }
            _ => pool.idle_timeout,
        }
    }

    pub(super) fn attach_deadline(&self) -> Option<Instant> {
        match &self.attachment {
            Attachment::Detached => None,
            Attachment::Queued { since } => {
                let end = *since + self.context.limits.queue_timeout;
                Some(self.restore_deadline().map_or(end, |restore| restore.min(end)))
            }
            Attachment::Retrying { at } => Some(*at),
            Attachment::SettingUp { deadline, .. }
            | Attachment::SigningIn { deadline, .. }
            | Attachment::Releasing { deadline, .. } => Some(*deadline),
            Attachment::Attached => (!self.is_busy()).then(|| self.idle_since + self.idle_timeout()),
        }
    }

    pub(super) fn check_attach_deadline(&mut self, now: Instant) {
        if self.attach_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match &self.attachment {
            Attachment::Detached => {}
            Attachment::Queued { .. } => {
                self.event_loop.pending_lease = None;
                self.release(Disposition::Stop, &Refusal::Closed);
                let method = "a request for a process".to_owned();
                let timeout = Refusal::Agent(AgentFailure::Timeout { method });
                self.attach_failed(&self.restore_failure().unwrap_or(timeout));
            }
            Attachment::Retrying { .. } => self.end_restore_backoff(),
            Attachment::SettingUp { method: by, call, .. } => {
                let method = by.method(self.dialect()).to_owned();
                self.cancel_call(*call);
                self.setup_failed(AgentFailure::Timeout { method });
            }
            Attachment::SigningIn { call, refusal, .. } => {
                let refusal = refusal.clone();
                self.cancel_call(*call);
                self.setup_rejected(refusal);
            }
            Attachment::Releasing { .. } => self.finish_detach(Disposition::Stop),
            Attachment::Attached => self.detach_if_idle(DetachedReason::Idle),
        }
    }
}
