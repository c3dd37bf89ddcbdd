//! The requests of the agent that the editor has received.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::value::RawValue;

/// The maximum number of ended requests that are remembered.
const MAX_ENDED: usize = 4096;

/// A request that ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) session: Option<Box<str>>,
}

/// After a reconnect, the gateway sends open requests again. The editor receives each request once.
#[derive(Debug, Default)]
pub(super) struct AgentRequests {
    /// Requests without an answer, with their sessions. A key is the JSON text of an id.
    open: HashMap<Box<str>, Option<Box<str>>>,
    ended: HashSet<Box<str>>,
    /// The ended requests, the oldest first.
    order: VecDeque<Box<str>>,
}

impl AgentRequests {
    /// Returns whether the editor has not received this request before.
    pub(super) fn insert(&mut self, id: &RawValue, session: Option<&str>) -> bool {
        let id = id.get();
        if self.open.contains_key(id) || self.ended.contains(id) {
            return false;
        }
        self.open.insert(id.into(), session.map(Into::into));
        true
    }

    /// Ends a request: the editor has answered it, or the gateway has cancelled it. Returns `None` if no request
    /// with this id is open.
    pub(super) fn end(&mut self, id: &RawValue) -> Option<Ended> {
        let (id, session) = self.open.remove_entry(id.get())?;
        if self.order.len() >= MAX_ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        self.order.push_back(id.clone());
        self.ended.insert(id);
        Some(Ended { session })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> Box<RawValue> {
        RawValue::from_string(format!("\"s:{number}\"")).unwrap()
    }

    #[test]
    fn a_request_is_new_once_and_ends_once() {
        let mut requests = AgentRequests::default();
        assert!(requests.insert(&id(1), Some("s")));
        assert!(!requests.insert(&id(1), Some("s")));
        assert_eq!(
            requests.end(&id(1)),
            Some(Ended {
                session: Some("s".into())
            })
        );
        assert_eq!(requests.end(&id(1)), None);
        assert!(!requests.insert(&id(1), Some("s")));
    }

    #[test]
    fn ended_requests_are_bounded() {
        let mut requests = AgentRequests::default();
        for number in 0..=MAX_ENDED {
            assert!(requests.insert(&id(number), None));
            requests.end(&id(number));
        }
        assert_eq!(
            (requests.ended.len(), requests.order.len()),
            (MAX_ENDED, MAX_ENDED)
        );
        assert!(requests.insert(&id(0), None) && !requests.insert(&id(1), None));
    }
}
