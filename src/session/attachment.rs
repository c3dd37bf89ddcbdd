//! How far a session is with a process.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::command::Reply;
use super::discarded::DiscardCounter;
use super::refusal::Refusal;
use crate::acp::{self, AcpVersion, TraceContext};
use crate::agent::AgentFailure;
use crate::api::event::{AttachedBy, DetachedReason};
use crate::jsonrpc::{CallId, RpcError};
use crate::pool::Disposition;
use crate::types::Limits;

/// How far the session is with a process.
#[derive(Debug)]
pub(super) enum Attachment {
    Detached,
    /// In the pool's line.
    Queued {
        since: Instant,
    },
    /// The agent did not restore the session. A process is asked for again at that time.
    Retrying {
        at: Instant,
    },
    /// The agent was asked to take the session.
    SettingUp {
        method: AttachMethod,
        /// The agent's error to `session/resume`, if `session/load` follows it.
        resume: Option<RpcError>,
        call: CallId,
        deadline: Instant,
        skipped_updates: u64,
        buffer: PreAttachBuffer,
    },
    Attached,
    /// The agent was asked to let the session go.
    Releasing {
        call: CallId,
        deadline: Instant,
        /// Closed, not deleted: then its process may serve another session.
        closes: bool,
    },
}

/// Who waits for a process without a turn.
#[derive(Debug)]
pub(super) struct AttachWaiter {
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<u64>,
    pub(super) deadline: Instant,
}

/// Updates that came before the session's id at the agent is known.
#[derive(Debug, Default)]
pub(super) struct PreAttachBuffer {
    pub(super) updates: VecDeque<Box<RawValue>>,
    bytes: usize,
    discarded: DiscardCounter,
}

impl PreAttachBuffer {
    /// Keeps the last ones, within the limits.
    pub(super) fn push(&mut self, params: Box<RawValue>, limits: &Limits) {
        self.bytes += params.get().len();
        self.updates.push_back(params);
        while self.updates.len() > limits.early_updates || self.bytes > limits.batch_bytes {
            let Some(oldest) = self.updates.pop_front() else { return };
            self.bytes -= oldest.get().len();
            if let Some(dropped) = self.discarded.increment() {
                tracing::warn!(
                    dropped,
                    "an update that came before its session was dropped: too many of them"
                );
            }
        }
    }
}

/// By which method the agent takes the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttachMethod {
    New,
    Resume,
    Load,
    /// The agent can give back no session: a new one, without what was said.
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

    pub(super) const fn method(self, dialect: AcpVersion) -> &'static str {
        match self {
            Self::New | Self::Fresh => acp::method::SESSION_NEW,
            Self::Resume => acp::method::SESSION_RESUME,
            Self::Load => dialect.replay_method(),
        }
    }
}

impl Actor {
    /// How long an idle session keeps its process. The agent forgets a session that it cannot restore.
    fn idle_timeout(&self) -> Duration {
        let pool = &self.spec.pool;
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
                let end = *since + self.context.limits.line_wait;
                Some(self.restore_deadline().map_or(end, |restore| restore.min(end)))
            }
            Attachment::Retrying { at } => Some(*at),
            Attachment::SettingUp { deadline, .. } | Attachment::Releasing { deadline, .. } => Some(*deadline),
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
                let method = "the wait for a process".to_owned();
                let timeout = Refusal::Agent(AgentFailure::Timeout { method });
                self.attach_failed(&self.restore_failure().unwrap_or(timeout));
            }
            Attachment::Retrying { .. } => self.end_restore_backoff(),
            Attachment::SettingUp { method: by, call, .. } => {
                let method = by.method(self.dialect()).to_owned();
                self.cancel_call(*call);
                self.setup_failed(AgentFailure::Timeout { method });
            }
            Attachment::Releasing { .. } => self.finish_detach(Disposition::Stop),
            Attachment::Attached => self.detach_if_idle(DetachedReason::Idle),
        }
    }
}
