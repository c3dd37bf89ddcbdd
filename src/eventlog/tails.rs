//! The last committed runs, in memory: of each session, and of all sessions by place. Both share the same bytes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Weak;

use crate::store::Run;

use super::session::State;

/// The end of one session's log.
#[derive(Debug, Default)]
pub(super) struct SessionTail {
    runs: VecDeque<Run>,
    bytes: usize,
}

impl SessionTail {
    /// Adds a run and gives the places of those that are too old now. The last run stays, whatever its size.
    pub(super) fn push(&mut self, run: Run, limit: usize) -> Vec<u64> {
        self.bytes += run.frames.len();
        self.runs.push_back(run);
        let mut dropped = Vec::new();
        while self.bytes > limit && self.runs.len() > 1 {
            dropped.extend(self.pop());
        }
        dropped
    }

    /// Drops what ends at or before `pos`.
    pub(super) fn evict(&mut self, pos: u64) {
        while self.runs.front().is_some_and(|run| run.last_pos <= pos) {
            self.pop();
        }
    }

    /// The run that holds the event after `seq`, cut to begin there; `None` when that is not in memory.
    pub(super) fn after(&self, seq: u64) -> Option<Run> {
        let at = self.runs.partition_point(|run| run.last_seq <= seq);
        self.runs.get(at).filter(|run| run.first_seq <= seq + 1)?.after(seq)
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

/// The runs of every session's tail, by place. Where a run left its session's tail there is a hole.
#[derive(Debug, Default)]
pub(super) struct Tails {
    runs: BTreeMap<u64, (Weak<State>, Run)>,
    bytes: usize,
}

/// What [`Tails::after`] finds.
#[derive(Debug)]
pub(super) enum Found {
    Run(Run),
    /// Nothing that is wanted comes up to and with this place.
    NoneUpTo(u64),
    /// Only the store knows what comes next.
    Gap,
}

impl Tails {
    /// Adds a run and gives those that are too old now: their sessions drop them too.
    pub(super) fn push(&mut self, state: Weak<State>, run: Run, limit: usize) -> Vec<(Weak<State>, u64)> {
        self.bytes += run.frames.len();
        self.runs.insert(run.last_pos, (state, run));
        let mut dropped = Vec::new();
        while self.bytes > limit && self.runs.len() > 1 {
            let Some((pos, (state, run))) = self.runs.pop_first() else { break };
            self.bytes -= run.frames.len();
            dropped.push((state, pos));
        }
        dropped
    }

    pub(super) fn remove(&mut self, pos: u64) {
        if let Some((_, run)) = self.runs.remove(&pos) {
            self.bytes -= run.frames.len();
        }
    }

    /// The next wanted run after a place. It looks at no more than a few hundred runs, so that nobody waits for it.
    pub(super) fn after(&self, pos: u64, wanted: impl Fn(&Run) -> bool) -> Found {
        const MAX_RUNS: usize = 512;
        let mut at = pos;
        for (last, (_, run)) in self.runs.range((Bound::Excluded(pos), Bound::Unbounded)).take(MAX_RUNS) {
            if run.first_pos() > at + 1 {
                return if at == pos { Found::Gap } else { Found::NoneUpTo(at) };
            }
            if wanted(run) {
                return run.after_pos(at).map_or(Found::NoneUpTo(*last), Found::Run);
            }
            at = *last;
        }
        if at == pos { Found::Gap } else { Found::NoneUpTo(at) }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
