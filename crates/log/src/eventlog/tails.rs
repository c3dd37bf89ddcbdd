//! The last committed runs in memory: for each session by seq, and for all sessions by position. Both share
//! the bytes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::store::Run;
use base::types::SessionId;

/// The last runs of one session's log.
#[derive(Debug, Default)]
pub(super) struct SessionTail {
    runs: VecDeque<Run>,
    bytes: usize,
}

impl SessionTail {
    /// Adds a run. Returns the positions of evicted runs. The last run is never evicted.
    pub(super) fn push(&mut self, run: Run, limit: usize) -> Vec<u64> {
        self.bytes += run.frames.len();
        self.runs.push_back(run);
        let mut dropped = Vec::new();
        while self.bytes > limit && self.runs.len() > 1 {
            dropped.extend(self.pop());
        }
        dropped
    }

    /// Evicts runs that end at or before `pos`.
    pub(super) fn evict(&mut self, pos: u64) {
        while self.runs.front().is_some_and(|run| run.last_pos <= pos) {
            self.pop();
        }
    }

    /// The run that holds the event after `seq`, without its earlier events. `None` if the run is not in
    /// memory.
    pub(super) fn after(&self, seq: u64) -> Option<Run> {
        let at = self.runs.partition_point(|run| run.last_seq <= seq);
        let run = self.runs.get(at)?;
        if run.first_seq > seq + 1 {
            return None;
        }
        run.after(seq)
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().map(|run| run.last_pos)
    }

    fn pop(&mut self) -> Option<u64> {
        let run = self.runs.pop_front()?;
        self.bytes -= run.frames.len();
        Some(run.last_pos)
    }
}

/// The runs of all sessions' tails by position. Runs that are evicted from their session's tail are missing.
#[derive(Debug, Default)]
pub(super) struct Tails {
    runs: BTreeMap<u64, Run>,
    bytes: usize,
}

/// The result of [`Tails::after`].
#[derive(Debug)]
pub(super) enum Found {
    Run(Run),
    /// No matching run ends at or before this position.
    NoneUpTo(u64),
    /// The next run is not in memory. Read the store.
    Gap,
}

impl Tails {
    /// Adds a run. Returns the positions of evicted runs, which the caller must also evict from their sessions' tails.
    pub(super) fn push(&mut self, run: Run, limit: usize) -> Vec<(SessionId, u64)> {
        self.bytes += run.frames.len();
        self.runs.insert(run.last_pos, run);
        let mut dropped = Vec::new();
        while self.bytes > limit && self.runs.len() > 1 {
            let Some((pos, run)) = self.runs.pop_first() else {
                break;
            };
            self.bytes -= run.frames.len();
            dropped.push((run.session, pos));
        }
        dropped
    }

    pub(super) fn remove(&mut self, pos: u64) {
        if let Some(run) = self.runs.remove(&pos) {
            self.bytes -= run.frames.len();
        }
    }

    /// The next matching run after a position. It examines a bounded number of runs, because the caller holds
    /// the lock.
    pub(super) fn after(&self, pos: u64, filter: impl Fn(&Run) -> bool) -> Found {
        const MAX_RUNS: usize = 512;
        let mut at = pos;
        let later = (Bound::Excluded(pos), Bound::Unbounded);
        for (last, run) in self.runs.range(later).take(MAX_RUNS) {
            if run.first_pos() > at + 1 {
                break;
            }
            if filter(run) {
                return run.after_pos(at).map_or(Found::NoneUpTo(*last), Found::Run);
            }
            at = *last;
        }
        if at == pos {
            Found::Gap
        } else {
            Found::NoneUpTo(at)
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

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
        if *of != session {
            return None;
        }
        let found = run.after(seq);
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
