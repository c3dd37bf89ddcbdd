//! Back-off and breaker for agents whose starts fail and for sessions whose turns crash the agent.
//!
//! A crash in a turn counts for the session and not for the agent. Otherwise the crashing prompts of one session open
//! the breaker for all sessions. The end of an idle process can delay only starts ahead of a request.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::Limits;

#[derive(Debug, Default)]
pub struct CrashBackoff {
    recent: VecDeque<Instant>,
    /// The end of the back-off.
    pub not_before: Option<Instant>,
}

impl CrashBackoff {
    pub fn record(&mut self, now: Instant, limits: &Limits) {
        self.recent.push_back(now);
        self.evict_old(now, limits);
        let doublings = u32::try_from(self.recent.len().saturating_sub(1))
            .unwrap_or(u32::MAX)
            .min(16);
        let wait = limits
            .min_backoff
            .saturating_mul(1 << doublings)
            .min(limits.max_backoff);
        self.not_before = Some(now + wait);
    }

    fn evict_old(&mut self, now: Instant, limits: &Limits) {
        while self
            .recent
            .front()
            .is_some_and(|at| now - *at > limits.breaker_window)
        {
            self.recent.pop_front();
        }
    }

    /// The time until the next start is allowed.
    pub fn remaining_backoff(&self, now: Instant) -> Option<Duration> {
        self.not_before
            .and_then(|at| at.checked_duration_since(now))
            .filter(|wait| !wait.is_zero())
    }

    /// The time until the breaker closes, or `None` if it is closed.
    pub fn breaker_open_for(&mut self, now: Instant, limits: &Limits) -> Option<Duration> {
        self.evict_old(now, limits);
        if self.recent.len() < limits.max_breaker_crashes as usize {
            None
        } else {
            self.remaining_backoff(now)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backoff_doubles_and_the_breaker_opens_at_the_fifth_crash() {
        let limits = Limits::default();
        let mut crashes = CrashBackoff::default();
        let mut waits = Vec::new();
        for _ in 0..5 {
            assert_eq!(crashes.breaker_open_for(Instant::now(), &limits), None);
            crashes.record(Instant::now(), &limits);
            waits.push(crashes.remaining_backoff(Instant::now()).unwrap().as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16]);
        assert!(crashes.breaker_open_for(Instant::now(), &limits).is_some());
        tokio::time::advance(Duration::from_secs(16)).await;
        assert_eq!(
            crashes.breaker_open_for(Instant::now(), &limits),
            None,
            "a start is allowed after the back-off"
        );
        crashes.record(Instant::now(), &limits);
        tokio::time::advance(limits.breaker_window * 2).await;
        assert_eq!(crashes.breaker_open_for(Instant::now(), &limits), None);
        crashes.record(Instant::now(), &limits);
        assert_eq!(
            crashes.remaining_backoff(Instant::now()),
            Some(limits.min_backoff),
            "old crashes do not count"
        );
    }
}
