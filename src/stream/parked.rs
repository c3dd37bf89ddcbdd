//! The state of a stream whose task waits.

use super::keep_alive::ParkedKeepAlive;
use crate::eventlog::TailCursor;

/// The state of a waiting stream that direct delivery uses.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(super) tail_cursor: TailCursor,
    pub(super) keep_alive: ParkedKeepAlive,
}
