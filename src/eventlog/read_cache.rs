//! What was read from the store last, for readers of the same log: ten who replay it together read it once.

use std::collections::{BTreeMap, VecDeque};

use crate::store::Run;
use crate::types::SessionId;

/// Runs by session and first seq, no more bytes of them than a limit; those that came first go first.
#[derive(Debug, Default)]
pub(super) struct ReadCache {
    runs: BTreeMap<(SessionId, u64), Run>,
    order: VecDeque<(SessionId, u64)>,
    bytes: usize,
    /// Since the last [`rest`](Self::rest).
    used: bool,
}

impl ReadCache {
    /// What begins with the event after `seq`, if it is here.
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

    /// Nothing of this session is given any more.
    pub(super) fn invalidate(&mut self, session: SessionId) {
        self.order.retain(|(of, _)| *of != session);
        while let Some((key, _)) = self.runs.range((session, 0)..=(session, u64::MAX)).next() {
            self.remove(*key);
        }
    }

    /// Forgets everything that nobody asked for since the last time.
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
