//! The sessions that a process has held.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::types::limits::HELD_SESSIONS;

/// The agent's ids of the last sessions that a process has held since its start.
#[derive(Debug, Default)]
pub(super) struct Held(VecDeque<Arc<str>>);

impl Held {
    pub(super) fn note(&mut self, session: &str) {
        self.0.retain(|held| **held != *session);
        if self.0.len() >= HELD_SESSIONS {
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
    fn the_session_that_was_held_longest_ago_is_forgotten_first() {
        let mut held = Held::default();
        assert!(held.is_empty());
        for number in 0..HELD_SESSIONS {
            held.note(&number.to_string());
        }
        held.note("0");
        held.note("one more");
        assert!(held.contains("0") && !held.contains("1") && held.contains("2") && held.contains("one more"));
    }
}
