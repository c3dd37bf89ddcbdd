//! How far a session is with a process.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::command::Reply;
use super::dropped::Dropped;
use super::refusal::Refusal;
use crate::acp::{self, Dialect, TraceContext};
use crate::agent::AgentFailure;
use crate::api::event::{AttachedBy, DetachedReason};
use crate::jsonrpc::{CallId, RpcError};
use crate::pool::Fate;
use crate::types::Limits;

/// How far the session is with a process.
#[derive(Debug)]
pub(super) enum Attachment {
    Detached,
    /// In the pool's line.
    Waiting {
        since: Instant,
    },
    /// The agent did not restore the session. A process is asked for again at that time.
    Retrying {
        at: Instant,
    },
    /// The agent was asked to take the session.
    Setting {
        by: By,
        /// The agent's error to `session/resume`, if `session/load` follows it.
        resume: Option<RpcError>,
        call: CallId,
        deadline: Instant,
        swallowed: u64,
        early: Early,
    },
    /// The agent refused to load the session without a sign-in. It was asked for a step of the sign-in with its key.
    SigningIn {
        call: CallId,
        deadline: Instant,
        /// The agent's error to `session/load`.
        refusal: RpcError,
    },
    Attached,
    /// The agent was asked to let the session go.
    Leaving {
        call: CallId,
        deadline: Instant,
        /// Closed, not deleted: then its process may serve another session.
        closes: bool,
    },
}

/// Who waits for a process without a turn.
#[derive(Debug)]
pub(super) struct Attaching {
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<u64>,
    pub(super) deadline: Instant,
}

/// Updates that came before the session's id at the agent is known.
#[derive(Debug, Default)]
pub(super) struct Early {
    pub(super) updates: VecDeque<Box<RawValue>>,
    bytes: usize,
    dropped: Dropped,
}

impl Early {
    /// Keeps the last ones, within the limits.
    pub(super) fn keep(&mut self, params: Box<RawValue>, limits: &Limits) {
        self.bytes += params.get().len();
        self.updates.push_back(params);
        while self.updates.len() > limits.early_updates || self.bytes > limits.batch_bytes {
            let Some(oldest) = self.updates.pop_front() else { return };
            self.bytes -= oldest.get().len();
            if let Some(dropped) = self.dropped.one_more() {
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
pub(super) enum By {
    New,
    Resume,
    Load,
    /// The agent can give back no session: a new one, without what was said.
    Fresh,
}

impl By {
    pub(super) const fn word(self) -> AttachedBy {
        match self {
            Self::New => AttachedBy::New,
            Self::Resume => AttachedBy::Resume,
            Self::Load => AttachedBy::Load,
            Self::Fresh => AttachedBy::Fresh,
        }
    }

    pub(super) const fn method(self, dialect: Dialect) -> &'static str {
        match self {
            Self::New | Self::Fresh => acp::method::SESSION_NEW,
            Self::Resume => acp::method::SESSION_RESUME,
            Self::Load => dialect.replay(),
        }
    }
}

impl Actor {
    /// How long an idle session keeps its process. The agent forgets a session that it cannot restore.
    fn idle_timeout(&self) -> Duration {
        let pool = &self.spec.pool;
        match &self.inputs.lease {
            Some(lease) if !lease.process().initialized.capabilities.can_restore() => {
                pool.no_load_idle_timeout
            }
            _ => pool.idle,
        }
    }

    pub(super) fn attach_deadline(&self) -> Option<Instant> {
        match &self.attachment {
            Attachment::Detached => None,
            Attachment::Waiting { since } => {
                let end = *since + self.context.limits.line_wait;
                Some(self.restore_deadline().map_or(end, |restore| restore.min(end)))
            }
            Attachment::Retrying { at } => Some(*at),
            Attachment::Setting { deadline, .. }
            | Attachment::SigningIn { deadline, .. }
            | Attachment::Leaving { deadline, .. } => Some(*deadline),
            Attachment::Attached => (!self.is_busy()).then(|| self.idle_since + self.idle_timeout()),
        }
    }

    pub(super) fn attach_overdue(&mut self, now: Instant) {
        if self.attach_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match &self.attachment {
            Attachment::Detached => {}
            Attachment::Waiting { .. } => {
                self.inputs.place = None;
                self.release(Fate::Stop, &Refusal::Closed);
                let method = "the wait for a process".to_owned();
                let timeout = Refusal::Agent(AgentFailure::Timeout { method });
                self.unattached(&self.not_restored().unwrap_or(timeout));
            }
            Attachment::Retrying { .. } => self.restore_again(),
            Attachment::Setting { by, call, .. } => {
                let method = by.method(self.dialect()).to_owned();
                self.abandon(*call);
                self.give_up(AgentFailure::Timeout { method });
            }
            Attachment::SigningIn { call, refusal, .. } => {
                let refusal = refusal.clone();
                self.abandon(*call);
                self.not_taken(refusal);
            }
            Attachment::Leaving { .. } => self.part(Fate::Stop),
            Attachment::Attached => self.leave(DetachedReason::Idle),
        }
    }
}
