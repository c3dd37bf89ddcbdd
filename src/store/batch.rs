//! The changes of one commit, and its result.

use crate::types::{SessionId, Timestamp};

use super::record::{Delete, Expect, Put};
use super::run::{Run, RunHeader};

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

/// The result of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// `last_pos` of each run, in the order of the batch.
    pub positions: Vec<u64>,
    /// The stored bytes of all runs of the batch.
    pub bytes: u64,
}

impl Committed {
    pub(super) fn of(runs: &[RunHeader]) -> Self {
        let positions = runs.iter().map(|run| run.last_pos).collect();
        Self { positions, bytes: runs.iter().map(|run| run.bytes).sum() }
    }
}
