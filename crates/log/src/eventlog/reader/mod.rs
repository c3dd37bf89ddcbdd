//! A reader of the log: it replays from its start to the tail, then follows. A slow reader falls back to the
//! store.
//!
//! A reader is a cursor in a source: the log of one session, or the merged log of many sessions. The source
//! finds runs in memory and reads pages of the store. The reader does everything else: waiting, resets, and
//! the end of the replay.
//!
//! Reading order: `page` (items, and pages of the store), this file, `session` and `global` (the sources).

use std::sync::Arc;

use global::GlobalSource;
use page::{Accepted, PendingPage};
use session::SessionSource;

use super::notify::{DirectSink, Notifier, Subscription};
use super::scope::GlobalScope;
use super::state::{Shared, State};
use super::store_reader::joined;
use super::tails::Found;
use crate::store::ReadError;
use events::event::ResetReason;

pub use page::{Item, NotReady, Start};
pub use session::TailCursor;

mod global;
mod page;
mod session;

/// A cursor in a log. Readers share the bytes of runs and have no queue of their own.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    subscription: Subscription,
    /// The last position that was returned or filtered.
    cursor: u64,
    /// The position at which the replay ends; `None` after the replay.
    target: Option<u64>,
    reset: Option<ResetReason>,
    /// A read in progress. It survives a dropped `next` future.
    page: Option<PendingPage>,
}

#[derive(Debug)]
enum Source {
    Session(SessionSource),
    /// Boxed: it is rare, and an idle reader must be small.
    Global(Box<GlobalSource>),
}

enum Step {
    Item(Item),
    ReadStore,
    /// The cursor passed events outside the scope.
    Continue,
    Wait,
}

impl Reader {
    pub(super) fn of_session(state: Arc<State>, start: Start) -> Self {
        let mut subscription = state.committed.subscribe();
        let committed = subscription.observe();
        let (cursor, reset) = start.resolve(committed);
        let source = Source::Session(SessionSource::new(state));
        Self {
            source,
            subscription,
            cursor,
            target: Some(committed),
            reset,
            page: None,
        }
    }

    /// A reader of many sessions.
    pub(super) async fn of_scope(
        shared: Arc<Shared>,
        scope: GlobalScope,
        start: Start,
    ) -> Result<Self, ReadError> {
        let mut subscription = shared.published.last_pos.subscribe();
        let published = subscription.observe();
        let (source, cursor, reset) = GlobalSource::open(shared, scope, start, published).await?;
        let source = Source::Global(Box::new(source));
        Ok(Self {
            source,
            subscription,
            cursor,
            target: Some(published),
            reset,
            page: None,
        })
    }

    /// The last position that was returned or filtered: a seq of the session, or a position of the log of all
    /// sessions.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns the next item. At the tail it waits, even if the log is closed. Cancel-safe.
    pub async fn next(&mut self) -> Result<Item, ReadError> {
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
    pub fn try_next(&mut self) -> Result<Item, NotReady> {
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

    /// Registers the reader with the notifier of its thread. `sink` receives events while the reader waits.
    /// A reader of many sessions ignores the sink: it must filter their runs.
    pub fn subscribe_via(&mut self, notifier: &Arc<Notifier>, sink: Option<Arc<dyn DirectSink>>) {
        let (watermark, sink) = match &self.source {
            Source::Session(one) => (&one.state.committed, sink),
            Source::Global(many) => (&many.shared.published.last_pos, None),
        };
        self.subscription.subscribe_via(watermark, notifier, sink);
    }

    /// The reader's position, for a sink. [`resume_from`](Self::resume_from) adopts the position that the
    /// sink reached. `None` for a reader of many sessions.
    pub fn tail_cursor(&self) -> Option<TailCursor> {
        match &self.source {
            Source::Session(one) => Some(one.tail_cursor(self.cursor)),
            Source::Global(_) => None,
        }
    }

    pub fn resume_from(&mut self, from: &TailCursor) {
        self.cursor = from.cursor();
    }

    fn step(&mut self) -> Step {
        if let Some(reason) = self.reset.take() {
            self.page = None;
            self.cursor = match &mut self.source {
                Source::Session(one) => one.before_first(),
                Source::Global(many) => many.restart(),
            };
            return Step::Item(Item::Reset {
                reason,
                before: self.cursor,
                session: None,
            });
        }
        // The rest of a page of one session is in the read cache.
        if let Source::Global(many) = &mut self.source
            && let Some(run) = many.pop(&mut self.cursor)
        {
            return Step::Item(Item::Run(run));
        }
        if self.target.is_some_and(|target| self.cursor >= target) {
            self.target = None;
            return Step::Item(Item::Ready {
                cursor: self.cursor,
            });
        }
        let committed = self.subscription.observe();
        if self.cursor < committed {
            let found = match &mut self.source {
                Source::Session(one) => one.find(&mut self.cursor, committed),
                Source::Global(many) => many.find(&mut self.cursor),
            };
            return match found {
                Found::Run(run) => {
                    // The page was requested for an older cursor.
                    self.page = None;
                    Step::Item(Item::Run(run))
                }
                Found::NoneUpTo(_) => Step::Continue,
                Found::Gap => Step::ReadStore,
            };
        }
        match &self.source {
            Source::Session(one) if one.ends_at(self.cursor) => Step::Item(Item::End),
            _ => Step::Wait,
        }
    }

    /// Reads a page from the store. `None`: the source may have the next run in memory.
    async fn read_store(&mut self) -> Result<Option<Item>, ReadError> {
        if self.page.is_none() {
            self.page = match &mut self.source {
                Source::Session(one) => one.start_read(self.cursor).await,
                Source::Global(many) => Some(many.start_read(&mut self.cursor).await),
            };
        }
        let Some(page) = &mut self.page else {
            return Ok(None);
        };
        let page = joined(page.await);
        self.page = None;
        let accepted = match &mut self.source {
            Source::Session(one) => one.accept(&mut self.cursor, page),
            Source::Global(many) => many.accept(&mut self.cursor, page),
        };
        match accepted? {
            Accepted::Item(item) => return Ok(Some(item)),
            Accepted::Continue => {}
            Accepted::Reset(reason) => self.reset = Some(reason),
        }
        Ok(None)
    }
}
