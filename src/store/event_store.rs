//! The port for runs of events.

use crate::types::{Epoch, SessionId, Tenant, Timestamp};

use super::error::ReadError;
use super::record_store::RecordStore;
use super::run::Run;

/// A store of events. Its commits contain runs of events and records.
///
/// `read`, `read_all` and `bounds` block. The other methods answer from memory. All methods may be called from
/// any thread.
pub trait EventStore: RecordStore {
    /// The epoch of all event ids. It changes only if the history may differ from the one that clients saw.
    fn epoch(&self) -> Epoch;

    /// Returns events of a session after `after`, ascending: about `max_bytes`, and at least one run if one
    /// exists.
    ///
    /// The first run is cut to begin after `after`. If those events were pruned, the result begins with the
    /// oldest stored event. The result ends before a damaged run. If the first run is damaged, the result is
    /// [`ReadError::Corrupt`].
    fn read(&self, session: SessionId, after: u64, max_bytes: usize)
    -> Result<Vec<Run>, ReadError>;

    /// Returns events after position `after_pos` of all sessions that `wanted` accepts, ordered by position.
    ///
    /// The read may stop before `max_bytes`, or before the first match. Continue from `through`. It stops
    /// before a damaged run of an accepted session. If the first run is damaged, the result is
    /// [`ReadError::Corrupt`].
    fn read_all(
        &self,
        after_pos: u64,
        max_bytes: usize,
        filter: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError>;

    /// Bounds and size of a session's log. `None` if the store has no event of the session.
    fn usage(&self, session: SessionId) -> Option<LogUsage>;

    /// Like [`usage`](Self::usage), but verified against the stored runs, and blocking. Must be called before
    /// a log that no state owns is continued. A wrong bound in memory is corrected, so that no seq is used
    /// twice.
    fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError>;

    /// The first and last position of the whole store.
    fn tail(&self) -> Tail;
}

/// The runs of one read, and the last position or seq that the read covered.
#[derive(Debug, Clone)]
pub struct Page {
    pub runs: Vec<Run>,
    pub through: u64,
}

/// The bounds of the store. A cursor at `first_pos - 1` or later misses only events that their owner erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    pub first_pos: u64,
    pub last_pos: u64,
}

/// Bounds of a session's log, its stored bytes and runs, and the time of its last commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogUsage {
    pub session: SessionId,
    pub tenant: Tenant,
    pub first_seq: u64,
    pub last_seq: u64,
    pub first_pos: u64,
    pub last_pos: u64,
    pub bytes: u64,
    pub runs: u64,
    pub last_time: Timestamp,
}
