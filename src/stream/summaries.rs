//! The summaries of sessions in a stream of many sessions.
//!
//! They begin after the replay: the client reads the list of sessions when it gets `ready`. A round sends each
//! changed session once. Rounds are a fixed interval apart, so that a session that changes often costs little.
//!
//! The page keeps its previous stream for one second after a new stream is live (`LINGER_MS` in
//! `web/packages/client/src/log/leader.ts`). `ROUND` must be shorter, or the page misses changes of the list. A
//! stream with summaries and without `session` is not a reader of any session: an agent sends extension requests only
//! while a client follows its session.
//!
//! Rejected designs:
//!
//! - A queue for each stream: memory grows with streams and sessions, and a slow reader receives old states first.
//! - A store read for each stream and change: all streams would read the same bytes.
//! - Events of all sessions, which the client folds into a list: an unknown event type makes the list wrong.
//! - The sessions that changed before `ready`, in place of the list: a deleted session leaves no record to send.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::event::{ControlFrame, SessionSummaryFrame, SummariesReset};
use crate::eventlog::{Notifier, Summary, SummaryReader};
use crate::types::Ids;

/// The time between two rounds. A session has at most one summary in it.
const ROUND: Duration = Duration::from_millis(250);
/// The approximate bytes that one step of a round adds to a stream.
const MAX_STEP_BYTES: usize = 32 << 10;

#[derive(Debug)]
pub(super) struct SummaryFeed {
    reader: SummaryReader,
    /// Whether the replay is complete.
    live: bool,
    /// The last change of the round. Later ones are part of the next round.
    through: u64,
    next_round: Instant,
}

impl SummaryFeed {
    pub(super) fn new(reader: SummaryReader) -> Self {
        Self {
            reader,
            live: false,
            through: 0,
            next_round: Instant::now(),
        }
    }

    pub(super) fn subscribe_via(&mut self, notifier: &Arc<Notifier>) {
        self.reader.subscribe_via(notifier);
    }

    /// Begins at the end of the replay.
    pub(super) fn begin(&mut self) {
        self.live = true;
        self.reader.skip_to_end();
        self.through = self.reader.cursor();
    }

    /// Waits until [`next`](Self::next) may return frames. Cancel-safe.
    pub(super) async fn due(&mut self) {
        if !self.live {
            pending::<()>().await;
        }
        if self.reader.cursor() < self.through {
            return;
        }
        self.reader.changed().await;
        sleep_until(self.next_round).await;
    }

    /// The next frames of the round, if there are any.
    pub(super) fn next(&mut self, ids: &Ids) -> Vec<ControlFrame> {
        if !self.live || self.reader.cursor() >= self.through && !self.begins_round() {
            return Vec::new();
        }
        let now = ids.now();
        let page = self.reader.read(self.through, MAX_STEP_BYTES);
        let lost = page
            .lost
            .then(|| ControlFrame::new(&SummariesReset {}, now));
        let frame = |(session, summary)| {
            let summary = match &summary {
                Summary::Listed(summary) => Some(&**summary),
                Summary::Gone => None,
            };
            ControlFrame::new(&SessionSummaryFrame { session: summary }, now).with_session(session)
        };
        lost.into_iter()
            .chain(page.changes.into_iter().map(frame))
            .collect()
    }

    fn begins_round(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next_round {
            return false;
        }
        self.through = self.reader.observe();
        let begins = self.reader.cursor() < self.through;
        if begins {
            self.next_round = now + ROUND;
        }
        begins
    }
}
