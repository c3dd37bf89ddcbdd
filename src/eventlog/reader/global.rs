//! The merged log of many sessions as a source of a reader: their runs in commit order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::store::{Page, ReadError, Run};
use crate::types::SessionId;

use super::super::reader_registry::{ReaderRegistration, ReaderScope};
use super::super::scope::{GlobalScope, LowerBound, Scope};
use super::super::state::Shared;
use super::super::store_reader::Store;
use super::super::tails::Found;
use super::item::{Item, Start};
use super::page::{Accepted, PendingPage};
use crate::event::ResetReason;

/// A position of this source is a position of the log of all sessions.
#[derive(Debug)]
pub(super) struct GlobalSource {
    pub(super) shared: Arc<Shared>,
    pub(super) scope: Arc<Scope>,
    /// The last pruned position that a reset reported. Pruning up to it causes no further reset.
    reported_pruned_pos: u64,
    /// Runs of the scope that a read returned.
    page: VecDeque<Run>,
    /// The last position that the read of `page` covered.
    page_end: u64,
    /// One registration for each named session, or one registration for the whole tenant.
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
        let (mut cursor, mut floors) = (floor, None);
        if let Some(sessions) = scope.sessions {
            let of = floors.insert(HashMap::new());
            for (session, after) in sessions {
                let Some(seq) = after.filter(|_| reset.is_none()) else {
                    of.insert(session, LowerBound { seq: 0, pos: floor });
                    continue;
                };
                of.insert(
                    session,
                    LowerBound {
                        seq,
                        pos: if uses_session_starts { 0 } else { floor },
                    },
                );
                if uses_session_starts {
                    match position_before(&shared, session, seq).await? {
                        Ok(pos) => cursor = cursor.min(pos.unwrap_or(last)),
                        Err(reason) => reset = Some(reason),
                    }
                }
            }
        }
        let scope = Arc::new(Scope {
            tenant: scope.tenant,
            sessions: floors,
        });
        let scopes = match &scope.sessions {
            Some(sessions) => sessions.keys().copied().map(ReaderScope::Session).collect(),
            None => vec![ReaderScope::Tenant(scope.tenant.clone())],
        };
        let source = Self {
            _registrations: scopes
                .into_iter()
                .map(|scope| shared.readers.register(scope))
                .collect(),
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
        *cursor = if self.page.is_empty() {
            self.page_end
        } else {
            run.last_pos
        };
        Some(run)
    }

    /// Advances the cursor to the next run in the tails, or over runs outside the scope.
    pub(super) fn find(&self, cursor: &mut u64) -> Found {
        let filter = |run: &Run| self.scope.contains(run.tenant.as_str(), run.session);
        let found = self.shared.published.tails().after(*cursor, filter);
        match found {
            Found::Run(run) => {
                *cursor = run.last_pos;
                self.scope
                    .clip(run)
                    .map_or(Found::NoneUpTo(*cursor), Found::Run)
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
        let (scope, after, max_bytes) = (
            Arc::clone(&self.scope),
            *cursor,
            self.shared.limits.store_page_bytes,
        );
        let read = move |store: &dyn Store| {
            store.read_all(after, max_bytes, &|tenant, session| {
                scope.contains(tenant, session)
            })
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
        match page {
            Ok(Page { runs, through }) => {
                self.page = runs
                    .into_iter()
                    .filter_map(|run| self.scope.clip(run))
                    .collect();
                self.page_end = through;
                if self.page.is_empty() {
                    *cursor = through.max(*cursor);
                }
                Ok(Accepted::Continue)
            }
            Err(ReadError::Corrupt {
                session,
                first_seq,
                last_seq,
                after,
            }) => {
                self.shared
                    .reads
                    .report_damage(session, first_seq, last_seq);
                *cursor = after;
                let reset = Item::Reset {
                    reason: ResetReason::Damaged,
                    before: after,
                    session: Some(session),
                };
                let affected = self.scope.covers_damage(session, last_seq, after);
                Ok(if affected {
                    Accepted::Item(reset)
                } else {
                    Accepted::Continue
                })
            }
            Err(error) => Err(error),
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
            store
                .usage(*session)
                .is_some_and(|log| log.first_seq > 1 && log.first_pos > cursor)
        };
        store.tail().first_pos - 1 > cursor.max(self.reported_pruned_pos)
            && self
                .scope
                .sessions
                .as_ref()
                .is_none_or(|of| of.keys().any(of_a_log))
    }
}

/// The position before the first event after `seq`. `None` if the event does not exist yet.
async fn position_before(
    shared: &Shared,
    session: SessionId,
    seq: u64,
) -> Result<Result<Option<u64>, ResetReason>, ReadError> {
    let Some(log) = shared.bounds(session).await? else {
        return Ok(if seq == 0 {
            Ok(None)
        } else {
            Err(ResetReason::UnknownCursor)
        });
    };
    if seq > log.last_seq {
        return Ok(Err(ResetReason::UnknownCursor));
    }
    let page = match shared
        .reads
        .blocking(move |store| store.read(session, seq, 1))
        .await
    {
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
