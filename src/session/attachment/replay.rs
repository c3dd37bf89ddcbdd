//! The rest of a replay: history that an agent sends after its response to `session/load`.
//!
//! This history belongs to no turn, so the next prompt waits until the replay has been quiet for a while.

use tokio::time::Instant;

use crate::types::Limits;

/// The treatment of an update of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum History {
    /// The update is not part of a replay.
    Live,
    /// The update is history that is new to the log.
    New,
    /// The log already contains this history.
    Known,
}

/// A replay whose response has arrived.
#[derive(Debug)]
pub(super) struct Replay {
    /// The replay ends at this time if no update arrives before.
    quiet_at: Instant,
    /// The replay ends at this time even if updates still arrive.
    deadline: Instant,
    /// Whether the history is new to the log.
    is_new: bool,
}

impl Replay {
    pub(super) fn new(is_new: bool, limits: &Limits, now: Instant) -> Self {
        Self {
            quiet_at: now + limits.replay_quiet_interval,
            deadline: now + limits.replay_quiet_timeout,
            is_new,
        }
    }

    /// Notes an update of the history.
    pub(super) fn note_update(&mut self, limits: &Limits, now: Instant) -> History {
        self.quiet_at = now + limits.replay_quiet_interval;
        if self.is_new {
            History::New
        } else {
            History::Known
        }
    }

    pub(super) fn next_check(&self) -> Instant {
        self.quiet_at.min(self.deadline)
    }

    /// Whether the replay has ended. Output that the agent has already written (`has_unread`) extends it.
    pub(super) fn is_over(&mut self, has_unread: bool, limits: &Limits, now: Instant) -> bool {
        if now < self.next_check() {
            return false;
        }
        if has_unread && now < self.deadline {
            self.quiet_at = now + limits.replay_quiet_interval;
            return false;
        }
        true
    }
}
