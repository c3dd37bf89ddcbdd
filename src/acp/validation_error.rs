//! The errors of the validation of answers.

/// A part of an answer that does not match the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationError {
    /// A JSON pointer (RFC 6901) into the result.
    pub pointer: String,
    pub detail: String,
}

impl ValidationError {
    pub(super) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}
