//! What an answer can meet.

use crate::api::Resolution;
use crate::types::RequestId;

#[derive(Debug, Clone)]
pub(super) enum Refusal {
    NotFound(&'static str),
    RequestResolved { id: RequestId, resolution: Resolution, by: Option<String> },
}
