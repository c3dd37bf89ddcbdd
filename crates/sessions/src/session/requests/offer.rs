//! A request on its way to clients.

use std::time::Duration;

use events::api::PendingRequest;
use wire::jsonrpc::IncomingId;

/// A request that is about to be offered to clients. Its id, its time and its deadline are those of the offer.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) request: PendingRequest,
    pub(crate) incoming: IncomingId,
    pub(crate) wait: Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    AtMost(Duration),
    /// As long as a client follows the session's log, and this long without one.
    WhileFollowed(Duration),
    /// As long as its turn runs.
    Turn,
}
