//! The errors of an answer.

use crate::api::Resolution;
use crate::types::RequestId;

#[derive(Debug, Clone)]
pub(super) enum Refusal {
    NotFound(&'static str),
    RequestResolved { id: RequestId, resolution: Resolution, by: Option<String> },
}
