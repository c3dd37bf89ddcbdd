//! The errors of an answer.

use base::types::RequestId;
use events::api::Resolution;

#[derive(Debug, Clone)]
pub(super) enum AnswerError {
    NotFound(NotFound),
    Resolved(RequestResolved),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct NotFound(pub(super) &'static str);

#[derive(Debug, Clone)]
pub(super) struct RequestResolved {
    pub(super) id: RequestId,
    pub(super) resolution: Resolution,
    pub(super) by: Option<String>,
}
