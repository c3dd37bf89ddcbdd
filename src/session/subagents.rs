//! The child sessions of the agent: they come with the process, are named by their parent, and speak through it.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::actor::Actor;
use crate::acp;
use crate::types::limits::{KNOWN_SUBAGENTS, SUBAGENT_ID_BYTES};

/// Ids of the agent, as its `subagent_update`s named them on this process.
#[derive(Debug, Default)]
pub(super) struct Subagents(HashSet<Box<str>>);

/// To whom a session id of the agent belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionOwner {
    /// The session itself.
    ThisSession,
    /// A child of it, or a child of its child.
    Subagent,
    Unknown,
}

impl Subagents {
    /// The process is gone, and the next one names its own.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// False: there are too many, or the id is no id.
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

    /// A `subagent_update` of the session or of a child: from here the child that it names may speak.
    pub(super) fn subagent_announced(&mut self, update: &RawValue) {
        let known = acp::update::subagent_of(update).is_none_or(|id| self.subagents.add(&id));
        if !known {
            self.update_discarded("a subagent is not heard: there are too many, or its id is too long");
        }
    }

    /// The child that params are of; None: the session itself, or the whole connection.
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
