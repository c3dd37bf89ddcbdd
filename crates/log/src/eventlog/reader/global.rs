//! The merged log of many sessions as a source of a reader: their runs in commit order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::super::scope::{GlobalScope, LowerBound, ReaderRegistration, ReaderScope, Scope};
use super::super::state::Shared;
use super::super::store_reader::{Damage, Store};
use super::super::tails::Found;
use super::page::{Accepted, Item, PendingPage, Start};
use crate::store::{Page, ReadError, Run};
use base::types::SessionId;
use events::event::ResetReason;

/// A position of this source is a position of the log of all sessions.
#[derive(Debug)]
pub(super) struct GlobalSource {
    pub(super) shared: Arc<Shared>,
    pub(super) scope: Arc<Scope>,
    /// The last pruned position that a reset reported. Pruning up to it causes no further reset.
    reported_pruned_pos: u64,
    page: VecDeque<Run>,
    /// The last position that the read of `page` covered.
    page_end: u64,
    /// One registration for each named session, or one for all sessions of the user.
    _registrations: Vec<ReaderRegistration>,
}

impl GlobalSource {
    /// Resolves the start in a log whose last published position is `last`. Returns the source, its cursor,
    /// and the reset that must precede the events.
    pub(super) async fn open(
        shared: Arc<Shared>,
        scope: GlobalScope,
        start: Start,
        last: u64,
    ) -> Result<(Self, u64, Option<ResetReason>), ReadError> {
        let uses_session_starts = matches!(start, Start::Beginning | Start::Tail);
        let (floor, mut reset) = start.resolve(last);
        let mut cursor = floor;
        let mut floors = None;
        if let Some(sessions) = scope.sessions {
            let of = floors.insert(HashMap::new());
            for (session, after) in sessions {
                let mut bound = LowerBound { seq: 0, pos: floor };
                if reset.is_none()
                    && let Some(seq) = after
                {
                    bound.seq = seq;
                    if uses_session_starts {
                        bound.pos = 0;
                        match position_before(&shared, session, seq).await? {
                            Ok(pos) => cursor = cursor.min(pos.unwrap_or(last)),
                            Err(reason) => reset = Some(reason),
                        }
                    }
                }
                of.insert(session, bound);
            }
        }
        let scope = Arc::new(Scope {
            owner: scope.owner,
            shares: scope.with_shared.then(|| Arc::clone(&shared.shares)),
            sessions: floors,
        });
        let register = |scope| shared.readers.register(scope);
        let registrations = match &scope.sessions {
            Some(sessions) => {
                let sessions = sessions.keys().copied();
                sessions.map(ReaderScope::Session).map(register).collect()
            }
            None => vec![register(ReaderScope::User(scope.owner.clone()))],
        };
        let source = Self {
            _registrations: registrations,
            shared,
            scope,
            reported_pruned_pos: 0,
            page: VecDeque::new(),
            page_end: 0,
        };
        if reset.is_none() && source.was_pruned(cursor) {
            reset = Some(ResetReason::Pruned);
        }
        Ok((source, cursor, reset))
    }

    /// Returns to the beginning of the log. Returns the cursor.
    pub(super) fn restart(&mut self) -> u64 {
        self.page.clear();
        self.reported_pruned_pos = self.shared.store.tail().first_pos - 1;
        self.scope = Arc::new(self.scope.without_bounds());
        0
    }

    /// Advances the cursor to the next run of the page.
    pub(super) fn pop(&mut self, cursor: &mut u64) -> Option<Run> {
        let run = self.page.pop_front()?;
        let at_end = self.page.is_empty();
        *cursor = if at_end { self.page_end } else { run.last_pos };
        Some(run)
    }

    /// Advances the cursor to the next run in the tails, or over runs outside the scope.
    pub(super) fn find(&self, cursor: &mut u64) -> Found {
        let filter = |run: &Run| self.scope.contains(run.owner.as_str(), run.session);
        let found = self.shared.published.tails().after(*cursor, filter);
        match found {
            Found::Run(run) => {
                *cursor = run.last_pos;
                let run = self.scope.clip(run);
                run.map_or(Found::NoneUpTo(*cursor), Found::Run)
            }
            Found::NoneUpTo(pos) => {
                *cursor = pos;
                found
            }
            Found::Gap => found,
        }
    }

    pub(super) async fn start_read(&self, cursor: &mut u64) -> PendingPage {
        self.skip_to_scope(cursor);
        let scope = Arc::clone(&self.scope);
        let after = *cursor;
        let max_bytes = self.shared.limits.store_page_bytes;
        let read = move |store: &dyn Store| {
            let filter = |owner: &str, session| scope.contains(owner, session);
            store.read_all(after, max_bytes, &filter)
        };
        self.shared.reads.start(read).await
    }

    pub(super) fn accept(
        &mut self,
        cursor: &mut u64,
        page: Result<Page, ReadError>,
    ) -> Result<Accepted, ReadError> {
        if self.was_pruned(*cursor) {
            return Ok(Accepted::Reset(ResetReason::Pruned));
        }
        match self.shared.reads.skip_damage(page)? {
            Ok(Page { runs, through }) => {
                let runs = runs.into_iter();
                self.page = runs.filter_map(|run| self.scope.clip(run)).collect();
                self.page_end = through;
                if self.page.is_empty() {
                    *cursor = through.max(*cursor);
                }
                Ok(Accepted::Continue)
            }
            Err(Damage {
                session,
                last_seq,
                after,
            }) => {
                *cursor = after;
                if !self.scope.covers_damage(session, last_seq, after) {
                    return Ok(Accepted::Continue);
                }
                Ok(Accepted::Item(Item::Reset {
                    reason: ResetReason::Damaged,
                    before: after,
                    session: Some(session),
                }))
            }
        }
    }

    /// Skips positions without events of the named sessions. The bounds in memory suffice, so this reads
    /// nothing.
    fn skip_to_scope(&self, cursor: &mut u64) {
        let Some(of) = &self.scope.sessions else {
            return;
        };
        let published = self.shared.published.last_pos.last();
        let next = of.iter().filter_map(|(session, floor)| {
            let log = self.shared.store.usage(*session)?;
            (log.last_pos > (*cursor).max(floor.pos))
                .then_some(log.first_pos.saturating_sub(1).max(floor.pos))
        });
        // Stop at the published position: a named session may have newer commits.
        *cursor = (*cursor).max(next.min().unwrap_or(published).min(published));
    }

    /// Whether retention deleted events after the cursor.
    fn was_pruned(&self, cursor: u64) -> bool {
        let store = &self.shared.store;
        let of_a_log = |session: &SessionId| {
            let log = store.usage(*session);
            log.is_some_and(|log| log.first_seq > 1 && log.first_pos > cursor)
        };
        let sessions = self.scope.sessions.as_ref();
        store.tail().first_pos - 1 > cursor.max(self.reported_pruned_pos)
            && sessions.is_none_or(|of| of.keys().any(of_a_log))
    }
}

/// The position before the first event after `seq`. `None` if the event does not exist yet.
async fn position_before(
    shared: &Shared,
    session: SessionId,
    seq: u64,
) -> Result<Result<Option<u64>, ResetReason>, ReadError> {
    let log = shared.bounds(session).await?;
    if seq > log.as_ref().map_or(0, |log| log.last_seq) {
        return Ok(Err(ResetReason::UnknownCursor));
    }
    let Some(log) = log else {
        return Ok(Ok(None));
    };
    let read = move |store: &dyn Store| store.read(session, seq, 1);
    let page = match shared.reads.blocking(read).await {
        // The exact position is unknown. The reader reports the damage when it reaches it.
        Err(ReadError::Corrupt { .. }) => return Ok(Ok(Some(log.first_pos.saturating_sub(1)))),
        page => page?,
    };
    let Some(run) = page.first() else {
        return Ok(Ok(None));
    };
    let last = log.first_seq == log.last_seq;
    if run.first_seq > seq + 1 && !last {
        return Ok(Err(ResetReason::Pruned));
    }
    Ok(Ok(Some(run.first_pos() - 1)))
}
