//! The changes of one commit.

use crate::types::{SessionId, Timestamp};

use super::record::{Delete, Expect, Put};
use super::run::Run;

/// The changes of one commit. The key of a record is in `puts` or in `deletes`, never in both.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub expect: Vec<Expect>,
    /// Sessions whose runs are all deleted before `runs` are appended.
    pub erase: Vec<SessionId>,
    pub runs: Vec<Run>,
    pub puts: Vec<Put>,
    pub deletes: Vec<Delete>,
    /// The commit time of the runs. `None`: the store reads its own clock.
    pub time: Option<Timestamp>,
}
