//! The work that an agent of ACP v2 reports: when the work of a turn ends, which work runs without a turn,
//! and which parts can be cancelled (ACP v2, Prompt Lifecycle).
//!
//! In v1 the response to `session/prompt` ends the turn, and this state does not change.

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::acp::{CancelTarget, WorkEnd};
use crate::types::limits::CANCEL_TARGETS;

/// The work that the agent last reported on this process.
#[derive(Debug)]
pub(super) struct ReportedWork {
    /// Whether the agent reported work that has not ended.
    pub(super) busy: bool,
    /// When the agent last sent an update of this session.
    pub(super) last_update: Instant,
    /// The parts that the agent last reported as cancellable.
    cancellable: Vec<CancelTarget>,
}

impl ReportedWork {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            busy: false,
            last_update: now,
            cancellable: Vec::new(),
        }
    }

    /// Tracks a part that can be cancelled, or no longer.
    pub(super) fn track_cancellable(&mut self, part: CancelTarget, can: bool) {
        self.cancellable.retain(|known| *known != part);
        if can {
            if self.cancellable.len() >= CANCEL_TARGETS {
                self.cancellable.remove(0);
            }
            self.cancellable.push(part);
        }
    }

    pub(super) fn can_cancel(&self, part: &CancelTarget) -> bool {
        self.cancellable.contains(part)
    }
}

/// The progress of the agent with the prompt of a turn.
#[derive(Debug, Default)]
pub(super) struct PromptWork {
    /// Whether background work ran when the prompt was sent. The end of that work does not end the turn.
    pub(super) predates_prompt: bool,
    /// Whether the agent has responded to the prompt: the message is part of the conversation.
    pub(super) acknowledged: bool,
    /// The `state_update` that ended the work, and when it arrived. It may arrive before the response.
    pub(super) ended: Option<(Instant, Box<RawValue>)>,
}

impl PromptWork {
    /// Notes the end of work. `was_busy`: the agent had reported that work began.
    pub(super) fn note_end(
        &mut self,
        was_busy: bool,
        end: &WorkEnd<'_>,
        raw: &RawValue,
        now: Instant,
    ) {
        if self.predates_prompt && !self.acknowledged {
            self.predates_prompt = false;
            return;
        }
        // A repeated idle state ends nothing. Some agents report no start of their work, only a stop reason.
        if was_busy || (self.acknowledged && end.stop_reason.is_some()) {
            self.ended = Some((now, raw.to_owned()));
        }
    }
}
