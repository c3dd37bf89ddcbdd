//! What each session's log is, in memory, so that limits cost no query.

use std::collections::HashMap;

use crate::types::{SessionId, Tenant, Timestamp};

use super::{Pruned, RunHead};

/// What a session's log is: its ends, its bytes and runs, the time of its last commit.
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

/// All logs of a store. It changes after a commit, never before.
#[derive(Debug, Default)]
pub(super) struct Usages {
    logs: HashMap<SessionId, LogUsage>,
    bytes: u64,
}

impl Usages {
    pub(super) fn get(&self, session: SessionId) -> Option<&LogUsage> {
        self.logs.get(&session)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn pick(&self, limit: usize, wanted: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage> {
        self.logs.values().filter(|log| wanted(log)).take(limit).cloned().collect()
    }

    /// A run as it is stored: `head` names its place.
    pub(super) fn append(&mut self, tenant: &str, head: &RunHead) {
        self.bytes += head.bytes;
        let log = self.logs.entry(head.session).or_insert_with(|| LogUsage {
            session: head.session,
            tenant: Tenant::new(tenant),
            first_seq: head.first_seq,
            last_seq: 0,
            first_pos: head.last_pos - (head.last_seq - head.first_seq),
            last_pos: 0,
            bytes: 0,
            runs: 0,
            last_time: head.time,
        });
        log.last_seq = head.last_seq;
        log.last_pos = head.last_pos;
        // A clock that was set back makes nothing older than it is.
        log.last_time = log.last_time.max(head.time);
        log.bytes += head.bytes;
        log.runs += 1;
    }

    pub(super) fn erase(&mut self, session: SessionId) {
        if let Some(log) = self.logs.remove(&session) {
            self.bytes -= log.bytes;
        }
    }

    /// The oldest runs of a log are gone; it begins at `first_seq` and `first_pos` now.
    pub(super) fn cut(&mut self, session: SessionId, first_seq: u64, first_pos: u64, gone: Pruned) {
        if let Some(log) = self.logs.get_mut(&session) {
            log.first_seq = first_seq;
            log.first_pos = first_pos;
            log.bytes -= gone.bytes;
            log.runs -= gone.runs;
            self.bytes -= gone.bytes;
        }
    }
}
