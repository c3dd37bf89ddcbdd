//! The rest of a replay: history that an agent sends after its response to `session/load`.
//!
//! This history belongs to no turn, so the next prompt waits until the replay has been quiet for a while.

use tokio::time::Instant;

use super::actor::Actor;
use crate::acp::update;
use crate::agent::Process;
use crate::pool::Lease;

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

impl Actor {
    /// Begins to track the replay after the response to `session/load`.
    pub(super) fn track_trailing_replay(&mut self, is_new: bool) {
        let (now, limits) = (Instant::now(), &self.context.limits);
        let end = now + limits.replay_quiet_timeout;
        self.restore.replay =
            Some(Replay { quiet_at: now + limits.replay_quiet_interval, deadline: end, is_new });
    }

    /// Handles an update that arrives after the response to the load. Returns `None` if the update is not
    /// history, otherwise whether to append it.
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
        // Wait until the output that the agent has already written is read.
        let unread = self.event_loop.lease.as_ref().map(Lease::process).is_some_and(Process::has_unread);
        match &mut self.restore.replay {
            Some(replay) if unread && now < replay.deadline => {
                replay.quiet_at = now + self.context.limits.replay_quiet_interval;
            }
            _ => self.restore.replay = None,
        }
    }
}
