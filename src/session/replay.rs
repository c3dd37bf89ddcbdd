//! The rest of a replay: history that an agent sends after its answer to `session/load`.
//!
//! It belongs to no turn, so the next prompt is held until the replay has been quiet for a while.

use tokio::time::Instant;

use super::actor::Actor;
use crate::acp::update;
use crate::agent::Process;
use crate::pool::Lease;

/// A replay whose answer has come.
#[derive(Debug)]
pub(super) struct Replay {
    /// Nothing came until then: the replay is over.
    quiet_at: Instant,
    /// It counts as over at that time in any case.
    deadline: Instant,
    /// The log does not have the history yet.
    is_new: bool,
}

impl Actor {
    /// The agent has answered `session/load`.
    pub(super) fn track_trailing_replay(&mut self, is_new: bool) {
        let (now, limits) = (Instant::now(), &self.context.limits);
        let end = now + limits.replay_quiet_timeout;
        self.restore.replay = Some(Replay { quiet_at: now + limits.replay_quiet_interval, deadline: end, is_new });
    }

    /// Handles an update that came after the answer to the load. Returns `None` if the update is not history, otherwise
    /// whether to append it.
    pub(super) fn trailing_replay(&mut self, kind: &str) -> Option<bool> {
        let replay = self.restore.replay.as_mut().filter(|_| update::is_history(kind))?;
        replay.quiet_at = Instant::now() + self.context.limits.replay_quiet_interval;
        Some(replay.is_new)
    }

    pub(super) fn replay_deadline(&self) -> Option<Instant> {
        self.restore.replay.as_ref().map(|replay| replay.quiet_at.min(replay.deadline))
    }

    pub(super) fn check_replay_deadline(&mut self, now: Instant) {
        if self.replay_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        // Output that the agent has already written is read first.
        let unread = self.event_loop.lease.as_ref().map(Lease::process).is_some_and(Process::has_unread);
        match &mut self.restore.replay {
            Some(replay) if unread && now < replay.deadline => {
                replay.quiet_at = now + self.context.limits.replay_quiet_interval;
            }
            _ => self.restore.replay = None,
        }
    }
}
