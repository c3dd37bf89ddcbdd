//! The child sessions of the agent. The parent announces them, and they end with the process.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::actor::Actor;
use crate::acp;
use crate::types::limits::{KNOWN_SUBAGENTS, SUBAGENT_ID_BYTES};

/// The agent's ids of the child sessions, as announced by `subagent_update` on this process.
#[derive(Debug, Default)]
pub(super) struct Subagents(HashSet<Box<str>>);

/// The owner of an agent's session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionOwner {
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

    /// Adds an id. Returns false if the id is too long or there are too many.
    fn add(&mut self, id: &str) -> bool {
        if self.0.contains(id) {
            return true;
        }
        self.0.len() < KNOWN_SUBAGENTS && id.len() <= SUBAGENT_ID_BYTES && self.0.insert(id.into())
    }
}

impl Actor {
    pub(super) fn session_owner(&self, id: &str) -> SessionOwner {
        if self.record.agent_session_id.as_deref() == Some(id) {
            SessionOwner::ThisSession
        } else if self.subagents.0.contains(id) {
            SessionOwner::Subagent
        } else {
            SessionOwner::Unknown
        }
    }

    /// Handles a `subagent_update`. Updates of the announced child are accepted from here on.
    pub(super) fn subagent_announced(&mut self, update: &RawValue) {
        let known = acp::update::subagent_of(update).is_none_or(|id| self.subagents.add(&id));
        if !known {
            self.update_discarded("ignored a subagent; there are too many, or its id is too long");
        }
    }

    /// The child session that the params name. `None` for the session itself or the whole connection.
    pub(super) fn subagent_of(&self, params: &RawValue) -> Option<String> {
        let id = acp::session_id_of(params).ok()??;
        (self.session_owner(&id) == SessionOwner::Subagent).then(|| id.into_owned())
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
