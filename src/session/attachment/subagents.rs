//! The child sessions of the agent. The parent announces them, and they end with the process.

use std::collections::HashSet;

use crate::types::limits::{KNOWN_SUBAGENTS, SUBAGENT_ID_BYTES};

/// The agent's ids of the child sessions, as announced by `subagent_update` on this process.
#[derive(Debug, Default)]
pub(super) struct Subagents(HashSet<Box<str>>);

/// The owner of an agent's session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum SessionOwner {
    /// The session itself.
    ThisSession,
    /// A child session, at any depth.
    Subagent,
    Unknown,
}

impl Subagents {
    /// Clears the ids, because the session released the process.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.0.contains(id)
    }

    /// Adds an id. Returns false if the id is too long or there are too many.
    pub(super) fn add(&mut self, id: &str) -> bool {
        if self.0.contains(id) {
            return true;
        }
        self.0.len() < KNOWN_SUBAGENTS && id.len() <= SUBAGENT_ID_BYTES && self.0.insert(id.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subagents_are_limited() {
        let mut known = Subagents::default();
        for id in 0..KNOWN_SUBAGENTS {
            assert!(known.add(&id.to_string()));
        }
        assert!(known.add("0") && !known.add("one more"));
        known.clear();
        assert!(known.add("one more") && !known.add(&"x".repeat(SUBAGENT_ID_BYTES + 1)));
    }
}
