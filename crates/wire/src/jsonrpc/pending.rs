//! The two tables that match requests with responses. The gateway creates the numbers of both tables. A
//! client's JSON-RPC ids never reach a peer, and a peer's ids never leave this module.

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
pub struct CallId(u64);

impl CallId {
    pub const fn number(self) -> u64 {
        self.0
    }

    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Accepts only the text that the gateway itself writes.
    pub fn parse(raw_id: &RawValue) -> Option<Self> {
        let digits = raw_id.get().bytes().all(|b| b.is_ascii_digit());
        digits.then(|| raw_id.get().parse().ok().map(Self))?
    }
}

/// The gateway's number for a request from the peer. The peer's own ids may repeat or be 0, `null` or text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IncomingId(u64);

impl IncomingId {
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The pending requests in both directions of one connection.
#[derive(Debug, Default)]
pub struct PendingTables {
    next: u64,
    /// The last number of an earlier gateway process on this connection. The calls of that process have no callers.
    earlier: u64,
    outgoing: HashSet<CallId>,
    incoming: HashMap<IncomingId, Box<RawValue>>,
}

impl PendingTables {
    fn mint(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The tables of a connection that an earlier gateway process had. `earlier`: at least its number of calls. `calls` and
    /// `requests` are those that are still open.
    pub fn restored(
        earlier: u64,
        calls: impl IntoIterator<Item = CallId>,
        requests: impl IntoIterator<Item = (IncomingId, Box<RawValue>)>,
    ) -> Self {
        Self {
            next: earlier,
            earlier,
            outgoing: calls.into_iter().collect(),
            incoming: requests.into_iter().collect(),
        }
    }

    /// Registers a call with an id that the caller has chosen.
    pub fn register_call_as(&mut self, id: CallId) {
        self.outgoing.insert(id);
    }

    /// Whether a response with this raw id answers a call of an earlier gateway process.
    pub fn is_earlier_call(&self, raw_id: &RawValue) -> bool {
        CallId::parse(raw_id).is_some_and(|id| (1..=self.earlier).contains(&id.0))
    }

    pub fn register_call(&mut self) -> CallId {
        let id = CallId(self.mint());
        self.register_call_as(id);
        id
    }

    /// Removes and returns the call that a response with this raw id answers. A second response finds no
    /// call.
    pub fn resolve_call(&mut self, raw_id: &RawValue) -> Option<CallId> {
        CallId::parse(raw_id).filter(|id| self.outgoing.remove(id))
    }

    pub fn remove_call(&mut self, id: CallId) {
        self.outgoing.remove(&id);
    }

    pub fn register_request(&mut self, raw_id: Box<RawValue>) -> IncomingId {
        let id = IncomingId(self.mint());
        self.incoming.insert(id, raw_id);
        id
    }

    /// Registers a request with an id that the caller has chosen.
    pub fn register_request_as(&mut self, id: IncomingId, raw_id: Box<RawValue>) {
        self.incoming.insert(id, raw_id);
    }

    /// The peer's id of a pending request.
    pub fn raw_request(&self, id: IncomingId) -> Option<&RawValue> {
        self.incoming.get(&id).map(|raw_id| &**raw_id)
    }

    pub fn resolve_request(&mut self, id: IncomingId) -> Option<Box<RawValue>> {
        self.incoming.remove(&id)
    }

    /// Finds the pending request with the peer's id `raw_id`. If the peer reused an id, the newest request is
    /// returned.
    pub fn find_request(&self, raw_id: &RawValue) -> Option<IncomingId> {
        let requests = self.incoming.iter();
        let same = requests.filter(|(_, raw)| raw.get() == raw_id.get());
        same.map(|(id, _)| *id).max()
    }

    pub fn find_call(&self, raw_id: &RawValue) -> Option<CallId> {
        CallId::parse(raw_id).filter(|id| self.outgoing.contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_response_resolves_its_call_only_once() {
        let mut tables = PendingTables::default();
        let id = tables.register_call();
        for wrong in ["null", "99", "\"1\"", "1.0", "-1", "1e0", "[]"] {
            assert_eq!(tables.resolve_call(&raw(wrong)), None, "{wrong}");
            assert_eq!(tables.find_call(&raw(wrong)), None, "{wrong}");
        }
        assert_eq!(tables.find_call(&raw("1")), Some(id));
        assert_eq!(tables.resolve_call(&raw("1")), Some(id));
        assert_eq!(tables.resolve_call(&raw("1")), None);
    }

    #[test]
    fn requests_with_equal_peer_ids_are_distinct() {
        let mut tables = PendingTables::default();
        let first = tables.register_request(raw("0"));
        let second = tables.register_request(raw("0"));
        assert_ne!(first, second);
        assert_eq!(tables.find_request(&raw("0")), Some(second));
        assert_eq!(tables.resolve_request(first).unwrap().get(), "0");
        assert!(tables.resolve_request(first).is_none());
        assert_eq!(tables.find_request(&raw("0")), Some(second));
    }
}
