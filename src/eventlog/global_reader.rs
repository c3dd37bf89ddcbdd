//! A reader of many sessions: it returns their runs in commit order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::event::ResetReason;
use crate::store::{Page, ReadError, Run};
use crate::types::{SessionId, Tenant};

use super::notify::{Notifier, Subscription};
use super::reader::NotReady;
use super::reader_registry::{ReaderRegistration, ReaderScope};
use super::tails::Found;
use super::{EventLog, Shared};

/// The sessions that a reader follows.
#[derive(Debug, Clone)]
pub struct GlobalScope {
    pub tenant: Tenant,
    /// The sessions, each with an optional start: after the event with this seq. `None`: every session of the
    /// tenant, including later ones.
    pub sessions: Option<HashMap<SessionId, Option<u64>>>,
}

/// The position at which a reader of many sessions starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalStart {
    /// At the beginning. A session with its own start begins there.
    Beginning,
    /// After this position. A session's own start can only exclude more events.
    After(u64),
    /// At the tail. A session with its own start begins there.
    Tail,
    /// At the earliest event, after a reset. The sessions' own starts are ignored.
    Reset(ResetReason),
}

/// An item that a reader of many sessions returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GlobalItem {
    /// Committed events of one session. [`Run::pos`] is the position of each event.
    Run(Run),
    /// Returned once: the reader has returned all events that existed when it started.
    Ready { last_pos: u64 },
    /// The client must discard earlier events. Without a session, the log follows from its earliest event.
    /// With a session, only events of that session are affected: some are damaged, and later ones follow.
    Reset { reason: ResetReason, before: u64, session: Option<SessionId> },
}

/// A cursor in the log of all sessions. It shares the bytes of runs and has no queue, like
/// [`Reader`](super::Reader).
#[derive(Debug)]
pub struct GlobalReader {
    shared: Arc<Shared>,
    scope: Arc<Scope>,
    subscription: Subscription,
    /// The position of the last event that was returned or filtered.
    cursor: u64,
    target: Option<u64>,
    reset: Option<ResetReason>,
    /// The last pruned position that a reset reported. Pruning up to it causes no further reset.
    reported_pruned_pos: u64,
    /// A read in progress. It survives a dropped `next` future.
    reading: Option<JoinHandle<Result<Page, ReadError>>>,
    page: VecDeque<Run>,
    /// The last position that the read of `page` covered.
    page_end: u64,
    _registration: ReaderRegistration,
}

#[derive(Debug)]
pub(super) struct Scope {
    tenant: Tenant,
    sessions: Option<HashMap<SessionId, LowerBound>>,
}

/// Events of a session up to this seq and this position are excluded.
#[derive(Debug, Clone, Copy, Default)]
struct LowerBound {
    seq: u64,
    pos: u64,
}

impl Scope {
    pub(super) fn contains(&self, tenant: &str, session: SessionId) -> bool {
        self.tenant.as_str() == tenant && self.sessions.as_ref().is_none_or(|of| of.contains_key(&session))
    }

    /// Whether a damaged run that ends at this seq and this position belongs to the scope.
    fn covers_damage(&self, session: SessionId, last_seq: u64, last_pos: u64) -> bool {
        self.sessions.as_ref().is_none_or(|of| {
            of.get(&session).is_some_and(|floor| floor.seq < last_seq && floor.pos < last_pos)
        })
    }

    /// The part of a run that belongs to the scope.
    fn clip(&self, run: Run) -> Option<Run> {
        if !self.contains(run.tenant.as_str(), run.session) {
            return None;
        }
        match self.sessions.as_ref().and_then(|of| of.get(&run.session)) {
            Some(floor) => run.after(floor.seq)?.after_pos(floor.pos),
            None => Some(run),
        }
    }
}

enum Step {
    Item(GlobalItem),
    ReadStore,
    Continue,
    Wait,
}

impl EventLog {
    /// Replays the sessions of `scope` from `start` to the tail, then follows them.
    pub async fn global_reader(
        &self,
        scope: GlobalScope,
        start: GlobalStart,
    ) -> Result<GlobalReader, ReadError> {
        let shared = Arc::clone(&self.shared);
        let mut subscription = shared.last_pos.subscribe();
        let target = subscription.observe();
        let uses_session_starts = matches!(start, GlobalStart::Beginning | GlobalStart::Tail);
        let (mut cursor, mut reset) = match start {
            GlobalStart::Beginning => (0, None),
            GlobalStart::After(pos) if pos > target => (0, Some(ResetReason::UnknownCursor)),
            GlobalStart::After(pos) => (pos, None),
            GlobalStart::Tail => (target, None),
            GlobalStart::Reset(reason) => (0, Some(reason)),
        };
        let floor = cursor;
        let mut floors = None;
        if let Some(sessions) = scope.sessions {
            let of = floors.insert(HashMap::new());
            for (session, after) in sessions {
                let Some(seq) = after.filter(|_| reset.is_none()) else {
                    of.insert(session, LowerBound { seq: 0, pos: floor });
                    continue;
                };
                of.insert(session, LowerBound { seq, pos: if uses_session_starts { 0 } else { floor } });
                if uses_session_starts {
                    match shared.session_start(session, seq).await? {
                        Ok(pos) => cursor = cursor.min(pos.unwrap_or(target)),
                        Err(reason) => reset = Some(reason),
                    }
                }
            }
        }
        let scope = Arc::new(Scope { tenant: scope.tenant, sessions: floors });
        let mut reader = GlobalReader {
            _registration: ReaderRegistration::register(&shared, ReaderScope::Many(Arc::clone(&scope))),
            shared,
            scope,
            subscription,
            cursor,
            target: Some(target),
            reset,
            reported_pruned_pos: 0,
            reading: None,
            page: VecDeque::new(),
            page_end: 0,
        };
        if reader.reset.is_none() && reader.was_pruned() {
            reader.reset = Some(ResetReason::Pruned);
        }
        Ok(reader)
    }
}

impl Shared {
    /// The position before the first event after `seq`. `None` if the event does not exist yet.
    async fn session_start(
        &self,
        session: SessionId,
        seq: u64,
    ) -> Result<Result<Option<u64>, ResetReason>, ReadError> {
        let Some(log) = self.bounds(session).await? else {
            return Ok(if seq == 0 { Ok(None) } else { Err(ResetReason::UnknownCursor) });
        };
        if seq > log.last_seq {
            return Ok(Err(ResetReason::UnknownCursor));
        }
        let store = Arc::clone(&self.store);
        let page = match self.blocking(move || store.read(session, seq, 1)).await {
            // The exact position is unknown. The reader reports the damage when it reaches it.
            Err(ReadError::Corrupt { .. }) => return Ok(Ok(Some(log.first_pos.saturating_sub(1)))),
            page => page?,
        };
        let Some(run) = page.first() else { return Ok(Ok(None)) };
        let last = log.first_seq == log.last_seq;
        if run.first_seq > seq + 1 && !last {
            return Ok(Err(ResetReason::Pruned));
        }
        Ok(Ok(Some(run.first_pos() - 1)))
    }
}

impl GlobalReader {
    /// The position of the last event that was returned or filtered.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns the next item. At the tail it waits. Cancel-safe.
    pub async fn next(&mut self) -> Result<GlobalItem, ReadError> {
        loop {
            match self.step() {
                Step::Item(item) => return Ok(item),
                // Yield to other tasks while many events are filtered.
                Step::Continue => tokio::task::consume_budget().await,
                Step::ReadStore => {
                    if let Some(item) = self.read_store().await? {
                        return Ok(item);
                    }
                }
                Step::Wait => self.changed().await,
            }
        }
    }

    /// Returns the next item if no wait is necessary. It does not filter long ranges: [`next`](Self::next)
    /// does, and yields to other tasks.
    pub fn try_next(&mut self) -> Result<GlobalItem, NotReady> {
        match self.step() {
            Step::Item(item) => Ok(item),
            Step::Continue | Step::ReadStore => Err(NotReady::ReadStore),
            Step::Wait => Err(NotReady::AtTail),
        }
    }

    /// Waits until the log commits an event after the last observed position. Cancel-safe.
    pub async fn changed(&mut self) {
        self.subscription.changed().await;
    }

    /// Registers the reader with the notifier of its thread.
    pub fn subscribe_via(&mut self, notifier: &Arc<Notifier>) {
        self.subscription.subscribe_via(&self.shared.last_pos, notifier, None);
    }

    fn step(&mut self) -> Step {
        if let Some(reason) = self.reset.take() {
            return Step::Item(self.restart(reason));
        }
        while let Some(run) = self.page.pop_front() {
            self.cursor = run.last_pos;
            if let Some(run) = self.scope.clip(run) {
                return Step::Item(GlobalItem::Run(run));
            }
        }
        self.cursor = self.cursor.max(self.page_end);
        if self.target.is_some_and(|target| self.cursor >= target) {
            self.target = None;
            return Step::Item(GlobalItem::Ready { last_pos: self.cursor });
        }
        let watermark = self.subscription.observe();
        if self.cursor < watermark {
            return self.next_from_tails();
        }
        Step::Wait
    }

    fn next_from_tails(&mut self) -> Step {
        if self.reading.is_some() {
            return Step::ReadStore;
        }
        let scope = Arc::clone(&self.scope);
        let wanted = |run: &Run| scope.contains(run.tenant.as_str(), run.session);
        let found = self.shared.tails().after(self.cursor, wanted);
        match found {
            Found::Run(run) => {
                self.cursor = run.last_pos;
                scope.clip(run).map_or(Step::Continue, |run| Step::Item(GlobalItem::Run(run)))
            }
            Found::NoneUpTo(pos) => {
                self.cursor = pos;
                Step::Continue
            }
            Found::Gap => Step::ReadStore,
        }
    }

    fn restart(&mut self, reason: ResetReason) -> GlobalItem {
        self.page.clear();
        self.page_end = 0;
        self.reading = None;
        self.cursor = 0;
        self.reported_pruned_pos = self.shared.store.tail().first_pos - 1;
        let of = self.scope.sessions.as_ref();
        let sessions = of.map(|of| of.keys().map(|session| (*session, LowerBound::default())).collect());
        self.scope = Arc::new(Scope { tenant: self.scope.tenant.clone(), sessions });
        GlobalItem::Reset { reason, before: 0, session: None }
    }

    async fn read_store(&mut self) -> Result<Option<GlobalItem>, ReadError> {
        if self.reading.is_none() {
            self.skip_to_scope();
            let permit = self.shared.permit().await;
            let (store, scope) = (Arc::clone(&self.shared.store), Arc::clone(&self.scope));
            let (cursor, max_bytes) = (self.cursor, self.shared.limits.store_page_bytes);
            self.reading = Some(self.shared.shutdown.spawn_blocking(move || {
                let page =
                    store.read_all(cursor, max_bytes, &|tenant, session| scope.contains(tenant, session));
                drop(permit);
                page
            }));
        }
        let reading = self.reading.as_mut().expect("it was set above");
        let result = reading.await;
        self.reading = None;
        let page = result.map_err(|lost| ReadError::Failed(lost.into()))?;
        if self.was_pruned() {
            self.reset = Some(ResetReason::Pruned);
            return Ok(None);
        }
        match page {
            Ok(page) => {
                self.page = page.runs.into();
                self.page_end = page.through_pos;
                Ok(None)
            }
            Err(ReadError::Corrupt { session, first_seq, last_seq, after }) => {
                self.shared.report_damage(session, first_seq, last_seq);
                self.cursor = after;
                let reset =
                    GlobalItem::Reset { reason: ResetReason::Damaged, before: after, session: Some(session) };
                Ok(self.scope.covers_damage(session, last_seq, after).then_some(reset))
            }
            Err(error) => Err(error),
        }
    }

    /// Skips positions without events of the named sessions. The bounds in memory suffice, so this reads
    /// nothing.
    fn skip_to_scope(&mut self) {
        let Some(of) = &self.scope.sessions else { return };
        let watermark = self.shared.last_pos.last();
        let next = of.iter().filter_map(|(session, floor)| {
            let log = self.shared.store.usage(*session)?;
            (log.last_pos > self.cursor.max(floor.pos))
                .then_some(log.first_pos.saturating_sub(1).max(floor.pos))
        });
        // Stop at the published position: a named session may have newer commits.
        self.cursor = self.cursor.max(next.min().unwrap_or(watermark).min(watermark));
    }

    /// Whether retention deleted events after the cursor.
    fn was_pruned(&self) -> bool {
        let store = &self.shared.store;
        let pruned = store.tail().first_pos - 1;
        let of_a_log = |session: &SessionId| {
            store.usage(*session).is_some_and(|log| log.first_seq > 1 && log.first_pos > self.cursor)
        };
        pruned > self.cursor.max(self.reported_pruned_pos)
            && self.scope.sessions.as_ref().is_none_or(|of| of.keys().any(of_a_log))
    }
}
