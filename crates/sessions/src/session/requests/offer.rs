//! A request on its way to clients.

use std::time::Duration;

use events::api::PendingRequest;
use wire::jsonrpc::IncomingId;

/// A request that is about to be offered to clients. Offering it sets its id, its time and its deadline.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) request: PendingRequest,
    pub(crate) incoming: IncomingId,
    pub(crate) wait: Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    AtMost(Duration),
    /// As long as a client follows the session's log. Without such a client, at most this duration.
    WhileFollowed(Duration),
    /// As long as its turn runs.
    Turn,
}
