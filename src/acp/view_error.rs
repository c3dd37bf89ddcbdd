//! The error of all views.

/// A member that the gateway routes on is missing, repeated or not a string.
#[derive(Debug, thiserror::Error)]
#[error("a member that the message is routed by is missing or malformed")]
pub struct ViewError(#[from] serde_json::Error);
