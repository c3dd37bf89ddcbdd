//! The sessions that a process has held.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::types::limits::REMEMBERED_SESSIONS;

/// The agent's ids of the last sessions that a process has held since its start.
#[derive(Debug, Default)]
pub(super) struct SessionHistory(VecDeque<Arc<str>>);

impl SessionHistory {
    pub(super) fn record(&mut self, session: &str) {
        self.0.retain(|held| **held != *session);
        if self.0.len() >= REMEMBERED_SESSIONS {
            self.0.pop_front();
        }
        self.0.push_back(session.into());
    }

    pub(super) fn contains(&self, session: &str) -> bool {
        self.0.iter().any(|held| **held == *session)
    }

    /// The session that the process held last.
    pub(super) fn last(&self) -> Option<&str> {
        self.0.back().map(|held| &**held)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_held_session_is_evicted_first() {
        let mut held = SessionHistory::default();
        assert!(held.is_empty());
        for number in 0..REMEMBERED_SESSIONS {
            held.record(&number.to_string());
        }
        held.record("0");
        held.record("one more");
        assert!(
            held.contains("0")
                && !held.contains("1")
                && held.contains("2")
                && held.contains("one more")
        );
    }
}
