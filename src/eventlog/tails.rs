//! The last committed runs in memory: for each session by seq, and for all sessions by position. Both share
//! the bytes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::store::Run;
use crate::types::SessionId;

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
        self.runs
            .get(at)
            .filter(|run| run.first_seq <= seq + 1)?
            .after(seq)
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
        for (last, run) in self
            .runs
            .range((Bound::Excluded(pos), Bound::Unbounded))
            .take(MAX_RUNS)
        {
            if run.first_pos() > at + 1 {
                return if at == pos {
                    Found::Gap
                } else {
                    Found::NoneUpTo(at)
                };
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
