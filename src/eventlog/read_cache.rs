//! A cache of runs that were read from the store. Readers that replay the same log together read each page
//! once.

use std::collections::{BTreeMap, VecDeque};

use crate::store::Run;
use crate::types::SessionId;

/// Runs by session and first seq, bounded by bytes. The oldest insertion is evicted first.
#[derive(Debug, Default)]
pub(super) struct ReadCache {
    runs: BTreeMap<(SessionId, u64), Run>,
    order: VecDeque<(SessionId, u64)>,
    bytes: usize,
    /// Whether the cache was used since the last [`evict_if_unused`](Self::evict_if_unused).
    used: bool,
}

impl ReadCache {
    /// The cached events that directly follow `seq`.
    pub(super) fn after(&mut self, session: SessionId, seq: u64) -> Option<Run> {
        let ((of, _), run) = self.runs.range(..=(session, seq + 1)).next_back()?;
        let found = run.after(seq).filter(|_| *of == session);
        self.used |= found.is_some();
        found
    }

    pub(super) fn add(&mut self, run: Run, limit: usize) {
        let key = (run.session, run.first_seq);
        self.used = true;
        self.bytes += run.frames.len();
        match self.runs.insert(key, run) {
            Some(earlier) => self.bytes -= earlier.frames.len(),
            None => self.order.push_back(key),
        }
        while self.bytes > limit
            && let Some(first) = self.order.pop_front()
        {
            self.remove(first);
        }
    }

    /// Removes all runs of a session.
    pub(super) fn invalidate(&mut self, session: SessionId) {
        self.order.retain(|(of, _)| *of != session);
        while let Some((key, _)) = self.runs.range((session, 0)..=(session, u64::MAX)).next() {
            self.remove(*key);
        }
    }

    /// Clears the cache if it was not used since the last call.
    pub(super) fn evict_if_unused(&mut self) {
        if !std::mem::take(&mut self.used) {
            *self = Self::default();
        }
    }

    fn remove(&mut self, key: (SessionId, u64)) {
        if let Some(run) = self.runs.remove(&key) {
            self.bytes -= run.frames.len();
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
