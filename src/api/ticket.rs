//! Tickets: short-lived keys in a URL, for clients that cannot set headers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema::StreamPath;
use crate::types::Timestamp;

/// A request for a ticket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTicket {
    /// The paths of the streams and sockets that the ticket opens, without a query, such as `/v1/events`. At
    /// most 64.
    #[schema(value_type = Vec<StreamPath>, min_items = 1, max_items = 64)]
    pub paths: Vec<String>,
}

/// A ticket: a short-lived key for a URL.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// The value for the query parameter `ticket`.
    pub ticket: String,
    /// The time at which an unused ticket expires.
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for Ticket {
    /// Omits the secret, so that no log contains it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}
