//! The limits on the sessions of a connection.

/// The maximum number of sessions of a connection.
pub(super) const MAX_SESSIONS: usize = 1024;
/// The maximum number of sessions whose stream is open before a request has named them.
pub(super) const MAX_UNCONFIRMED: usize = 16;

/// The limit that prevents a connection from following another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooManySessions {
    #[error("this connection follows too many sessions (limit {MAX_SESSIONS})")]
    Followed,
    #[error("too many streams of sessions that no request has named (limit {MAX_UNCONFIRMED})")]
    Unconfirmed,
}
