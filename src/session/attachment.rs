//! How far a session is with a process.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::command::Reply;
use super::dropped::Dropped;
use crate::acp::{self, Dialect, TraceContext};
use crate::api::event::AttachedBy;
use crate::jsonrpc::CallId;
use crate::types::Limits;

/// How far the session is with a process.
#[derive(Debug)]
pub(super) enum Attachment {
    Detached,
    /// In the pool's line.
    Waiting {
        since: Instant,
    },
    /// The agent was asked to take the session.
    Setting {
        by: By,
        call: CallId,
        deadline: Instant,
        swallowed: u64,
        early: Early,
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
