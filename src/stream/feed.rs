//! The events and summaries that a client selects from a log, the end of a turn, and pages for clients that poll.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::encoder::Encoder;

use base::types::{Access, Author, Epoch, EventId, Ids, Position, PromptId, SessionId, UserId};
use events::event::{
    self, ControlFrame, EndFrame, EndReason, EventRef, PositionFrame, Ready, ResetReason,
    SessionSharedFrame, SessionSummaryFrame, SessionUnsharedFrame, SummariesReset,
};
use log::audit::Audit;
use log::eventlog::{
    DirectSink, EventLog, Item, Notifier, ReadError, Reader, Run, Summary, SummaryReader,
    TailCursor,
};
use sessions::session::SessionHandle;

#[derive(Clone)]
pub(crate) struct TurnFilter {
    pub(crate) prompt: PromptId,
    /// The last event of the turn, if the turn had ended when the stream began.
    pub(crate) last_seq: Option<u64>,
}

pub(crate) struct Feed {
    pub(crate) source: Source,
    pub(crate) types: EventTypes,
    pub(crate) turn: Option<TurnFilter>,
    /// The cursor that the client has: of the last event that it received, or of its start position.
    pub(crate) client_cursor: u64,
    /// The stream began at the tail. Then `ready` has an id, because it may be the first id that the client
    /// receives.
    pub(crate) from_tail: bool,
    pub(crate) epoch: Epoch,
    pub(crate) ids: Ids,
}

/// A part of a feed. With `end`, it completes the feed.
pub(super) struct Piece {
    pub(super) content: Content,
    pub(super) end: Option<End>,
}

pub(super) enum Content {
    Events(Run),
    Control(ControlFrame),
    Ready(ControlFrame),
    Nothing,
}

/// Events before a reset are void for the client.
pub(super) struct Reset {
    reason: ResetReason,
    before: u64,
    /// The affected session. `None` affects all sessions.
    session: Option<SessionId>,
}

#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) reason: EndReason,
    /// The cursor of the last delivered event. If `None`, the end frame has the source's cursor, which may be later.
    cursor: Option<u64>,
}

impl End {
    pub(super) const fn new(reason: EndReason) -> Self {
        Self {
            reason,
            cursor: None,
        }
    }
}

impl Feed {
    /// The next pieces. A reset of several sessions yields one piece for each.
    pub(super) async fn next(&mut self) -> Result<Vec<Piece>, ReadError> {
        let item = self.source.reader.next().await?;
        Ok(match self.piece(item) {
            Ok(piece) => vec![piece],
            Err(reset) => Box::pin(self.reset_frames(reset)).await,
        })
    }

    /// Converts an item to a piece. A reset is returned as the error, because it has to be awaited and may
    /// become several pieces.
    pub(super) fn piece(&self, item: Item) -> Result<Piece, Reset> {
        let turn_ended = End::new(EndReason::TurnEnded);
        let (content, end) = match item {
            Item::Run(run) => {
                if let Sessions::Merged(_, reads) = &self.source.sessions
                    && reads.user != run.owner
                    && run.events().any(|event| self.is_selected(&event))
                {
                    let SharedReads { audit, author, .. } = &**reads;
                    audit.session_read(author, run.session, &run.owner);
                }
                let last = self.turn_end(&run);
                let run = last.and_then(|seq| run.through(seq)).unwrap_or(run);
                let end = last.map(|_| End {
                    cursor: last,
                    ..turn_ended
                });
                (Content::Events(run), end)
            }
            Item::Ready { cursor } => {
                let last = self.turn.as_ref().and_then(|turn| turn.last_seq);
                let has_ended = last.is_some_and(|seq| seq <= cursor);
                let frame = self.ready_frame(cursor);
                (Content::Ready(frame), has_ended.then_some(turn_ended))
            }
            Item::Reset {
                reason,
                before,
                session,
            } => {
                return Err(Reset {
                    reason,
                    before,
                    session,
                });
            }
            Item::End => (Content::Nothing, Some(End::new(EndReason::SessionDeleted))),
        };
        Ok(Piece { content, end })
    }

    fn turn_end(&self, run: &Run) -> Option<u64> {
        let turn = self.turn.as_ref()?;
        let ends = |event: &EventRef<'_>| {
            matches!(event.kind(), "prompt.completed" | "prompt.failed") && event.is_of(turn.prompt)
        };
        run.events().find(ends).map(|event| event.seq())
    }

    fn ready_frame(&self, cursor: u64) -> ControlFrame {
        let id = self.source.id(&self.epoch, cursor);
        let frame = ControlFrame::new(&Ready { last_event_id: &id }, self.ids.now());
        frame.with_id(self.from_tail.then_some(id))
    }

    /// The `reset` frames with a snapshot, one for each affected session that the client named. If the client
    /// named none, there is a single frame without a snapshot.
    pub(super) async fn reset_frames(&self, reset: Reset) -> Vec<Piece> {
        let mut resets = Vec::new();
        for session in self.source.sessions() {
            if reset.session.is_none_or(|id| session.id() == id) {
                resets.extend(self.reset_frame(session, reset.reason).await);
            }
        }
        if resets.is_empty() {
            let frame = event::Reset {
                reason: reset.reason,
                session: None,
            };
            let frame = ControlFrame::new(&frame, self.ids.now());
            resets.push(frame.with_session(reset.session));
        }
        // Only the last frame has an id. A client that disconnects earlier receives all frames again.
        let id = self.source.id(&self.epoch, reset.before);
        let last = resets.pop().map(|frame| frame.with_id(id));
        let piece = |frame| Piece {
            content: Content::Control(frame),
            end: None,
        };
        resets.into_iter().chain(last).map(piece).collect()
    }

    /// Returns `None` if the session no longer exists. The end of the session follows.
    async fn reset_frame(
        &self,
        session: &SessionHandle,
        reason: ResetReason,
    ) -> Option<ControlFrame> {
        let snapshot = session.snapshot().await.ok()?;
        let frame = event::Reset {
            reason,
            session: Some(&snapshot),
        };
        let frame = ControlFrame::new(&frame, self.ids.now());
        Some(frame.with_session(session.id()))
    }

    fn passes_all(&self) -> bool {
        self.types == EventTypes::All && self.turn.is_none()
    }

    pub(super) fn is_selected(&self, event: &EventRef<'_>) -> bool {
        let turn = self.turn.as_ref();
        self.types.contains(event.kind()) && turn.is_none_or(|turn| event.is_of(turn.prompt))
    }

    fn uses_stored_frames(&self, encoder: &dyn Encoder) -> bool {
        self.source.has_stored_ids() && encoder.uses_stored_frames()
    }

    /// The cursor for direct delivery, if the client receives the stored bytes of all events.
    pub(super) fn tail_cursor(&self, encoder: &dyn Encoder) -> Option<TailCursor> {
        if self.uses_stored_frames(encoder) && self.passes_all() {
            self.source.reader.tail_cursor()
        } else {
            None
        }
    }

    pub(super) fn resume(&mut self, from: &TailCursor) {
        if from.cursor() > self.source.cursor() {
            self.source.reader.resume_from(from);
            self.client_cursor = from.cursor();
        }
    }

    /// Encodes a run for the client. In the common case, this shares the stored bytes without a copy.
    pub(super) fn write(&mut self, run: &Run, encoder: &mut dyn Encoder) -> Bytes {
        let stored = self.uses_stored_frames(encoder);
        if stored && self.passes_all() {
            self.client_cursor = run.last_seq;
            return run.frames.clone();
        }
        let selects_most = self.types == EventTypes::All;
        let mut out = BytesMut::with_capacity(if selects_most { run.frames.len() } else { 0 });
        let mut client_cursor = self.client_cursor;
        for event in run.events().filter(|event| self.is_selected(event)) {
            client_cursor = self.source.cursor_of(run, event.seq());
            if stored {
                out.extend_from_slice(event.raw_frame());
            } else {
                let id = || self.source.id(&self.epoch, client_cursor);
                encoder.event(&mut out, &id, &event);
                if encoder.is_complete() {
                    break;
                }
            }
        }
        self.client_cursor = client_cursor;
        out.freeze()
    }

    /// The frame that advances the cursor of the client to that of the source. `None` if the client already
    /// has it.
    pub(super) fn position_frame(&mut self) -> Option<ControlFrame> {
        let cursor = self.source.cursor();
        let moved = std::mem::replace(&mut self.client_cursor, cursor) != cursor;
        let frame = |id: String| ControlFrame::new(&PositionFrame {}, self.ids.now()).with_id(id);
        moved.then(|| frame(self.source.id(&self.epoch, cursor)))
    }

    /// The next summaries. The access to a session can have ended since its summary was published.
    pub(super) fn summary_frames(&mut self) -> Vec<ControlFrame> {
        let Source {
            summaries, shares, ..
        } = &mut self.source;
        let Some(summaries) = summaries else {
            return Vec::new();
        };
        let is_visible =
            |id: SessionId| shares.as_ref().is_none_or(|shares| shares.permits_read(id));
        summaries.next(&self.ids, is_visible)
    }

    /// The changes of the sessions that are shared with the user of the stream.
    pub(super) fn share_changes(&mut self) -> Vec<ControlFrame> {
        let cursor = self.source.cursor();
        let shares = self.source.shares.as_mut();
        let changes = shares.map(|shares| shares.changes()).unwrap_or_default();
        if changes.is_empty() {
            return Vec::new();
        }
        let id = self.source.id(&self.epoch, cursor);
        let last_event_id = &*id;
        let now = self.ids.now();
        let frame = |(session, access)| {
            let frame = match access {
                Some(access) => ControlFrame::new(
                    &SessionSharedFrame {
                        access,
                        last_event_id,
                    },
                    now,
                ),
                None => ControlFrame::new(&SessionUnsharedFrame { last_event_id }, now),
            };
            frame.with_session(session)
        };
        changes.into_iter().map(frame).collect()
    }

    /// The last frame of a complete stream. A client that reconnects with its id receives 204.
    pub(super) fn end_frame(&self, End { reason, cursor }: End) -> ControlFrame {
        let cursor = cursor.unwrap_or_else(|| self.source.cursor());
        let id = self.source.id(&self.epoch, cursor);
        let frame = EndFrame {
            reason,
            last_event_id: &id,
        };
        ControlFrame::new(&frame, self.ids.now()).with_id(id)
    }
}

/// A selection of event types. Control frames (`ready`, `position`, `reset`, `problem`, `shutdown`, `end`) are
/// always sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventTypes {
    All,
    /// All types except the frequent ones. The default for streams over all sessions.
    NoBulk,
    /// These types. A name that ends with a dot selects all types with that prefix.
    Only(Vec<String>),
}

impl EventTypes {
    /// Parses a list such as `prompt.,request.created`. `None` if the list is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_lowercase() || matches!(b, b'.' | b'_');
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        let is_valid = |name: &String| !name.is_empty() && name.bytes().all(plain);
        (names.len() <= 64 && names.iter().all(is_valid)).then_some(Self::Only(names))
    }

    pub fn contains(&self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::NoBulk => !matches!(kind, "session.update" | "terminal.output" | "extension"),
            Self::Only(names) => names
                .iter()
                .any(|name| kind == name || name.ends_with('.') && kind.starts_with(name.as_str())),
        }
    }
}

/// A reader, and the sessions whose snapshots a reset contains. A cursor is a sequence number of one session
/// or a position in the whole log.
pub(crate) struct Source {
    pub(super) reader: Reader,
    sessions: Sessions,
    /// Boxed: most streams have none, and an idle stream must be small.
    pub(super) summaries: Option<Box<SummaryFeed>>,
    shares: Option<Box<ShareFeed>>,
}

/// The reader of a stream of many sessions, for the audit log: its user may not own a session that the stream contains.
pub(crate) struct SharedReads {
    pub(crate) audit: Audit,
    pub(crate) author: Author,
    pub(crate) user: UserId,
}

enum Sessions {
    One(SessionHandle),
    None,
    /// The reader merges sessions. An empty list selects all sessions that the key may read.
    Merged(Vec<SessionHandle>, Box<SharedReads>),
}

impl Source {
    const fn new(reader: Reader, sessions: Sessions) -> Self {
        Self {
            reader,
            sessions,
            summaries: None,
            shares: None,
        }
    }

    pub(crate) const fn session(reader: Reader, session: SessionHandle) -> Self {
        Self::new(reader, Sessions::One(session))
    }

    pub(crate) const fn log(reader: Reader) -> Self {
        Self::new(reader, Sessions::None)
    }

    pub(crate) fn merged(
        reader: Reader,
        sessions: Vec<SessionHandle>,
        summaries: Option<SummaryReader>,
        reads: SharedReads,
    ) -> Self {
        let summaries = summaries.map(|reader| Box::new(SummaryFeed::new(reader)));
        Self {
            summaries,
            ..Self::new(reader, Sessions::Merged(sessions, Box::new(reads)))
        }
    }

    /// Adds the changes of the sessions that are shared with a user.
    #[must_use]
    pub(crate) fn with_shares(self, log: &EventLog, user: &UserId) -> Self {
        Self {
            shares: Some(Box::new(ShareFeed::new(log.clone(), user.clone()))),
            ..self
        }
    }

    /// Whether the user of the stream still has access to all sessions that the client named.
    pub(super) fn has_access(&self) -> bool {
        self.sessions()
            .iter()
            .all(|session| session.access().is_some())
    }

    pub(super) fn subscribe_via(
        &mut self,
        notifier: &Arc<Notifier>,
        sink: Option<Arc<dyn DirectSink>>,
    ) {
        self.reader.subscribe_via(notifier, sink);
        if let Some(summaries) = &mut self.summaries {
            summaries.subscribe_via(notifier);
        }
    }

    /// Waits for an event of the log, or until summaries are due. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        let Some(summaries) = &mut self.summaries else {
            return self.reader.changed().await;
        };
        tokio::select! {
            () = self.reader.changed() => {}
            () = summaries.due() => {}
        }
    }

    /// The next item of the log, or `None` if summaries are due before. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<Item, ReadError>> {
        let Some(summaries) = &mut self.summaries else {
            return Some(self.reader.next().await);
        };
        tokio::select! {
            next = self.reader.next() => Some(next),
            () = summaries.due() => None,
        }
    }

    pub(crate) fn cursor(&self) -> u64 {
        self.reader.cursor()
    }

    pub(super) fn id(&self, epoch: &Epoch, cursor: u64) -> String {
        match &self.sessions {
            Sessions::One(session) => session.log().id(cursor).to_string(),
            Sessions::None => {
                let epoch = epoch.of_session(SessionId::AUDIT);
                EventId { epoch, seq: cursor }.to_string()
            }
            Sessions::Merged(..) => {
                let epoch = epoch.clone();
                Position { epoch, pos: cursor }.to_string()
            }
        }
    }

    pub(crate) fn sessions(&self) -> &[SessionHandle] {
        match &self.sessions {
            Sessions::One(session) => std::slice::from_ref(session),
            Sessions::None => &[],
            Sessions::Merged(sessions, _) => sessions,
        }
    }

    pub(super) fn cursor_of(&self, run: &Run, seq: u64) -> u64 {
        if self.has_stored_ids() {
            seq
        } else {
            run.pos(seq)
        }
    }

    pub(super) const fn has_stored_ids(&self) -> bool {
        matches!(self.sessions, Sessions::One(_) | Sessions::None)
    }
}

/// The sessions of others that are shared with the user of a stream.
struct ShareFeed {
    log: EventLog,
    user: UserId,
    changed: watch::Receiver<u64>,
    /// The sessions that the client knows.
    known: BTreeMap<SessionId, Access>,
}

impl ShareFeed {
    fn new(log: EventLog, user: UserId) -> Self {
        let changed = log.watch_grants();
        let known = log.shared_with(&user).into_iter().collect();
        Self {
            log,
            user,
            changed,
            known,
        }
    }

    /// Whether the user has access to a session now.
    fn permits_read(&self, session: SessionId) -> bool {
        let owner = self.log.owner(session);
        owner.is_none_or(|owner| self.log.access(&owner, session, &self.user).is_some())
    }

    /// The sessions whose access has changed since the last call, with the new one.
    fn changes(&mut self) -> Vec<(SessionId, Option<Access>)> {
        // The log owns the sender.
        if !self.changed.has_changed().unwrap_or(false) {
            return Vec::new();
        }
        self.changed.mark_unchanged();
        let now: BTreeMap<_, _> = self.log.shared_with(&self.user).into_iter().collect();
        let gone = self.known.keys().filter(|id| !now.contains_key(id));
        let mut changes: Vec<_> = gone.map(|id| (*id, None)).collect();
        let given = now
            .iter()
            .filter(|(id, access)| self.known.get(id) != Some(access));
        changes.extend(given.map(|(id, access)| (*id, Some(*access))));
        self.known = now;
        changes
    }
}

/// The time between two rounds. A session has at most one summary in it.
const ROUND: Duration = Duration::from_millis(250);
/// The approximate bytes that one step of a round adds to a stream.
const MAX_STEP_BYTES: usize = 32 << 10;

/// The summaries of sessions in a stream of many sessions. They begin after the replay: the client reads the list of sessions
/// when it gets `ready`. A round sends each changed session once. Rounds are a fixed interval apart, so that a session that
/// changes often costs little.
///
/// The page keeps its previous stream for one second after a new stream is live (`LINGER_MS` in
/// `web/packages/client/src/log/leader.ts`). `ROUND` must be shorter, or the page misses changes of the list. A
/// stream with summaries and without `session` is not a reader of any session: an agent sends extension requests only
/// while a client follows its session.
///
/// Rejected: a queue for each stream (memory, and old states first); a store read for each stream and change; events of all
/// sessions that the client folds (an unknown event type makes the list wrong); the sessions that changed before `ready` in
/// place of the list (a deleted session leaves no record to send).
pub(super) struct SummaryFeed {
    reader: SummaryReader,
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

    pub(super) fn next(
        &mut self,
        ids: &Ids,
        is_visible: impl Fn(SessionId) -> bool,
    ) -> Vec<ControlFrame> {
        if !self.live || self.reader.cursor() >= self.through && !self.begins_round() {
            return Vec::new();
        }
        let now = ids.now();
        let page = self.reader.read(self.through, MAX_STEP_BYTES);
        let mut frames = Vec::new();
        if page.lost {
            frames.push(ControlFrame::new(&SummariesReset {}, now));
        }
        for (id, summary) in page.changes {
            let session = match &summary {
                Summary::Listed(summary) if is_visible(id) => Some(&**summary),
                Summary::Listed(_) | Summary::Gone => None,
            };
            let frame = ControlFrame::new(&SessionSummaryFrame { session }, now);
            frames.push(frame.with_session(id));
        }
        frames
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

pub(crate) struct Page {
    /// The events as JSON objects with commas between them. `finish` adds the text around them.
    events: Vec<u8>,
    count: usize,
    limit: usize,
    max_bytes: usize,
    /// The bytes that were read, selected or not. The limit keeps a filter that selects nothing from reading
    /// the whole log.
    scanned: usize,
    cursor: u64,
}

pub(crate) enum PageState {
    Full,
    Accepted { ready: bool },
    Ended,
}

impl Page {
    pub(crate) fn new(feed: &Feed, limit: usize, max_bytes: usize) -> Self {
        Self {
            events: Vec::new(),
            count: 0,
            limit,
            max_bytes,
            scanned: 0,
            cursor: feed.source.cursor(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the next events of the feed. Waits for events at the tail. Dropping the future loses nothing.
    pub(crate) async fn read(&mut self, feed: &mut Feed) -> Result<PageState, ReadError> {
        let pieces = feed.next().await?;
        Ok(self.push_pieces(feed, pieces))
    }

    fn push_pieces(&mut self, feed: &Feed, pieces: Vec<Piece>) -> PageState {
        let mut ready = false;
        for Piece { content, end } in pieces {
            match content {
                Content::Events(run) => {
                    if !self.push_run(feed, &run) {
                        return PageState::Full;
                    }
                }
                Content::Control(frame) => {
                    self.push_event(&frame.json());
                    self.cursor = feed.source.cursor();
                }
                Content::Ready(_) => {
                    self.cursor = feed.source.cursor();
                    ready = true;
                }
                Content::Nothing => {}
            }
            if end.is_some() {
                return PageState::Ended;
            }
        }
        PageState::Accepted { ready }
    }

    /// Adds the selected events of a run. Returns false if the page became full.
    fn push_run(&mut self, feed: &Feed, run: &Run) -> bool {
        for event in run.events() {
            let keep = feed.is_selected(&event);
            let full = self.count >= self.limit
                || self.events.len() + event.raw_json().len() > self.max_bytes;
            if (keep && full && self.count > 0) || self.scanned > 4 * self.max_bytes {
                return false;
            }
            if keep {
                self.push_event(event.raw_json());
            }
            self.scanned += event.raw_frame().len();
            self.cursor = feed.source.cursor_of(run, event.seq());
        }
        true
    }

    fn push_event(&mut self, object: &[u8]) {
        if self.count > 0 {
            self.events.push(b',');
        }
        self.events.extend_from_slice(object);
        self.count += 1;
    }

    pub(crate) fn finish(self, feed: &Feed, more: bool) -> Vec<u8> {
        let last_event_id = feed.source.id(&feed.epoch, self.cursor);
        let mut json = Vec::with_capacity(self.events.len() + 80);
        json.extend_from_slice(b"{\"events\":[");
        json.extend_from_slice(&self.events);
        let end = format!("],\"lastEventId\":\"{last_event_id}\",\"more\":{more}}}");
        json.extend_from_slice(end.as_bytes());
        json
    }
}

#[cfg(test)]
mod event_types_tests {
    use super::*;

    #[test]
    fn types_are_full_names_or_prefixes_with_a_dot() {
        let types = EventTypes::parse("prompt.,request.created").unwrap();
        for (kind, kept) in [
            ("prompt.started", true),
            ("request.created", true),
            ("request.resolved", false),
            ("prompt", false),
            ("session.update", false),
        ] {
            assert_eq!(types.contains(kind), kept, "{kind}");
        }
        for wrong in ["", "a,", "a b", "A", "a\nb"] {
            assert_eq!(EventTypes::parse(wrong), None, "{wrong:?}");
        }
    }
}
