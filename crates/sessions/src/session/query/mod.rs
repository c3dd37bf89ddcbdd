//! Reads that need no actor: the store and the log have the answer.
//!
//! `list` and `agent_sessions` find sessions of a user. `SessionQuery` reads one session. This module must not know the
//! directory, the handles or the actors.

pub(super) mod agent_sessions;
pub(super) mod list;

pub use list::{ListOrder, ListQuery, MetadataFilter};
use serde_json::value::RawValue;

use super::context::{self, Context, FOLD_PAGE_BYTES};
use super::error::SessionError;
use super::record::{self, FoldRecord, PromptRecord, RequestRecord, SessionRecord, TerminalRecord};
use crate::transcript::{OutputFold, SessionFold, TurnFold};
use base::types::{PromptId, RequestId, SessionId, TerminalId};
use events::api::{
    PendingRequest, Prompt, PromptList, Session, Terminal, TerminalList, TerminalWindow, Transcript,
};
use events::event::EventRef;
use log::eventlog::SessionLog;
use wire::acp::ModePolicy;

/// Reads one session. Every result reflects only committed events.
#[derive(Debug, Clone, Copy)]
pub struct SessionQuery<'a> {
    context: &'a Context,
    log: &'a SessionLog,
}

impl<'a> SessionQuery<'a> {
    pub(super) fn new(context: &'a Context, log: &'a SessionLog) -> Self {
        Self { context, log }
    }

    fn id(self) -> SessionId {
        self.log.session()
    }

    pub(super) async fn record(self) -> Result<SessionRecord, SessionError> {
        let record = self.context.read_session(self.id()).await?;
        record.ok_or(SessionError::NoSuchSession)
    }

    /// Passes the events after `seq` and up to `last` to `fold`. Returns the sequence number of the last one, and the
    /// number of log bytes that were read.
    async fn fold_events(
        self,
        mut seq: u64,
        last: u64,
        mut fold: impl FnMut(&EventRef<'_>),
    ) -> Result<(u64, usize), SessionError> {
        let mut read = 0;
        while seq < last {
            let runs = self.log.read(seq, FOLD_PAGE_BYTES).await?;
            let Some(end) = runs.last() else { break };
            seq = end.last_seq.min(last);
            read += runs.iter().map(|run| run.frames.len()).sum::<usize>();
            for run in runs.iter().filter_map(|run| run.through(last)) {
                run.events().for_each(|event| fold(&event));
            }
        }
        Ok((seq, read))
    }
}

/// The numbers of a page, newest first: those up to `last` and before `before`.
fn newest_first(last: u32, before: Option<u32>) -> impl Iterator<Item = u32> {
    let newest = before.map_or(last, |before| before.saturating_sub(1).min(last));
    (1..=newest).rev()
}

impl SessionQuery<'_> {
    /// The last committed snapshot of the session.
    pub(super) async fn snapshot(self) -> Result<Session, SessionError> {
        let record = self.record().await?;
        let key = record::session_key(self.id());
        let folded = self.context.read::<FoldRecord>(key).await?;
        // Up to the position in the session's record, no event has changed the fold.
        let (mut fold, seq) = match folded {
            Some(FoldRecord { seq, fold }) => (fold, seq.max(record.seq)),
            None => (SessionFold::default(), 0),
        };
        let (seq, _) = self
            .fold_events(seq, u64::MAX, |event| _ = fold.event(event))
            .await?;
        let requests = self.open_requests(&record).await?;
        let spec = self.context.agent_spec(&record);
        let modes = ModePolicy {
            denied: &spec.settings.denied_modes,
            modes: fold.modes.as_deref(),
            config_options: fold.config_options.as_deref(),
        };
        let denied_modes = modes.offered();
        Ok(Session {
            denied_modes,
            ..record.snapshot(&fold, requests, self.log.id(seq))
        })
    }

    /// The requests of the agent that were open at the last commit.
    async fn open_requests(
        self,
        record: &SessionRecord,
    ) -> Result<Vec<PendingRequest>, SessionError> {
        let mut open = Vec::new();
        for request in &record.open_requests {
            let stored = self
                .request(*request)
                .await?
                .filter(|stored| stored.resolution.is_none());
            open.extend(stored.and_then(|stored| stored.pending));
        }
        Ok(open)
    }

    pub(super) async fn request(
        self,
        request: RequestId,
    ) -> Result<Option<RequestRecord>, SessionError> {
        let number = request.number();
        self.context.read_numbered(self.id(), number).await
    }
}

#[derive(Debug, Clone, Copy)]
pub struct PromptRange {
    pub first_seq: u64,
    /// The sequence number of the end of the turn, if it has ended.
    pub last_seq: Option<u64>,
}

impl SessionQuery<'_> {
    /// A page of turns, newest first, before the turn `before`. It ends early if it needs many log reads.
    pub async fn prompts(
        self,
        before: Option<PromptId>,
        limit: usize,
    ) -> Result<PromptList, SessionError> {
        let mut prompts: Vec<Prompt> = Vec::new();
        let mut next_cursor = None;
        let mut read = 0;
        let enough = 4 * self.context.limits.max_page_bytes;
        let last = self.record().await?.last_prompt;
        for number in newest_first(last, before.map(PromptId::number)) {
            if prompts.len() == limit || read >= enough {
                next_cursor = prompts.last().map(|prompt| prompt.prompt_id.to_string());
                break;
            }
            let committed = self.log.committed();
            if let Some(record) = self.prompt_record(PromptId::new(number)).await? {
                let (prompt, bytes) = self.prompt_with_text(&record, committed).await?;
                prompts.push(prompt);
                read += bytes;
            }
        }
        Ok(PromptList {
            prompts,
            next_cursor,
        })
    }

    pub(super) async fn prompt_record(
        self,
        prompt: PromptId,
    ) -> Result<Option<PromptRecord>, SessionError> {
        let number = prompt.number();
        self.context.read_numbered(self.id(), number).await
    }

    /// The current state of a turn. `None` if there is no such turn.
    pub async fn prompt_state(self, prompt: PromptId) -> Result<Option<Prompt>, SessionError> {
        let committed = self.log.committed();
        let Some(record) = self.prompt_record(prompt).await? else {
            return Ok(None);
        };
        Ok(Some(self.prompt_with_text(&record, committed).await?.0))
    }

    /// The position of a turn in the log, read from its record alone. `None` if there is no such turn.
    pub async fn prompt_range(self, prompt: PromptId) -> Result<Option<PromptRange>, SessionError> {
        let record = self.prompt_record(prompt).await?;
        Ok(record.map(|record| PromptRange {
            first_seq: record.first_seq,
            last_seq: record.last_seq,
        }))
    }

    /// The content blocks of a prompt, with the last edit. `None` if the log no longer contains their event.
    pub async fn prompt_blocks(
        self,
        prompt: PromptId,
    ) -> Result<Option<Box<RawValue>>, SessionError> {
        let Some(record) = self.prompt_record(prompt).await? else {
            return Ok(None);
        };
        context::prompt_blocks(self.log, record.content_seq()).await
    }

    /// The content blocks as the client sent the prompt, before edits. `None` if the log no longer contains their event.
    pub async fn first_blocks(
        self,
        prompt: PromptId,
    ) -> Result<Option<Box<RawValue>>, SessionError> {
        let Some(record) = self.prompt_record(prompt).await? else {
            return Ok(None);
        };
        context::prompt_blocks(self.log, record.first_seq).await
    }

    /// The turn with its text, and the number of log bytes read for it. `committed` is the committed position
    /// before the record was read, so the text of a running turn never extends past the end in the record.
    pub(super) async fn prompt_with_text(
        self,
        record: &PromptRecord,
        committed: u64,
    ) -> Result<(Prompt, usize), SessionError> {
        let last = record.last_seq.unwrap_or(committed);
        self.context.wait_durable(self.log, last).await?;
        let (turn, seq, read) = self.fold_turn(record, last).await?;
        let mut shown = record.to_prompt(self.id(), self.log.id(seq));
        (shown.text, shown.truncated) = turn.text();
        Ok((shown, read))
    }

    /// The turn up to `last`, the position up to which it is exact, and the number of log bytes read for it.
    async fn fold_turn(
        self,
        record: &PromptRecord,
        last: u64,
    ) -> Result<(TurnFold, u64, usize), SessionError> {
        let mut turn = TurnFold::default();
        let fold = |event: &EventRef<'_>| {
            if event.is_of(record.prompt_id) {
                turn.event(event);
            }
        };
        let (seq, read) = self.fold_events(record.first_seq - 1, last, fold).await?;
        Ok((turn, seq.max(record.first_seq), read))
    }

    /// A page of folded turns, exact at the `lastEventId` of the snapshot. The page has the turns with the highest ids. The
    /// last turn of the order in which they run is the first.
    pub async fn transcript(
        self,
        session: Session,
        before: Option<PromptId>,
        limit: usize,
    ) -> Result<Transcript, SessionError> {
        let last = session.last_event_id.seq;
        let mut turns = Vec::new();
        let mut next_cursor = None;
        let mut oldest: Option<PromptId> = None;
        let last_prompt = self.record().await?.last_prompt;
        for number in newest_first(last_prompt, before.map(PromptId::number)) {
            if turns.len() == limit {
                next_cursor = oldest.map(|prompt| prompt.to_string());
                break;
            }
            let Some(record) = self.prompt_record(PromptId::new(number)).await? else {
                continue;
            };
            if record.first_seq > last {
                continue;
            }
            // Late updates belong to the turn too, so it is folded to the start of the next turn.
            let next_turn = self.prompt_record(PromptId::new(number + 1)).await?;
            let until = match next_turn {
                Some(next) if record.last_seq.is_some() => next.first_seq - 1,
                _ => last,
            };
            let until = until.max(record.last_seq.unwrap_or(last)).min(last);
            oldest = Some(record.prompt_id);
            let turn = self.fold_turn(&record, until).await?.0.finish();
            turns.extend(turn.map(|turn| (place_of(&record, &session), turn)));
        }
        // Clients can have changed the order of the queue.
        turns.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        let turns = turns.into_iter().map(|(_, turn)| turn).collect();
        let last_event_id = session.last_event_id.clone();
        Ok(Transcript {
            session,
            turns,
            next_cursor,
            last_event_id,
        })
    }
}

/// The place of a turn in the order in which turns run: ended ones by their end, then the running one, then the queue.
fn place_of(record: &PromptRecord, session: &Session) -> (u64, usize) {
    match session
        .queued
        .iter()
        .position(|queued| *queued == record.prompt_id)
    {
        Some(at) => (u64::MAX, at + 1),
        None => (record.last_seq.unwrap_or(u64::MAX), 0),
    }
}

impl SessionQuery<'_> {
    /// A page of terminals, newest first. `before` is the last terminal of the previous page.
    pub async fn terminals(
        self,
        before: Option<TerminalId>,
        limit: usize,
    ) -> Result<TerminalList, SessionError> {
        let mut terminals: Vec<Terminal> = Vec::new();
        let mut next_cursor = None;
        let last = self.record().await?.last_terminal;
        for number in newest_first(last, before.map(TerminalId::number)) {
            if terminals.len() == limit {
                next_cursor = terminals
                    .last()
                    .map(|terminal| terminal.terminal_id.to_string());
                break;
            }
            let record = self.terminal_record(TerminalId::new(number)).await?;
            terminals.extend(record.map(|record| record.shown));
        }
        Ok(TerminalList {
            terminals,
            next_cursor,
        })
    }

    async fn terminal_record(
        self,
        terminal: TerminalId,
    ) -> Result<Option<TerminalRecord>, SessionError> {
        let number = terminal.number();
        self.context.read_numbered(self.id(), number).await
    }

    /// A terminal with the tail of its output, as stored in the log. `None` if there is no such terminal.
    pub async fn terminal(
        self,
        terminal: TerminalId,
    ) -> Result<Option<TerminalWindow>, SessionError> {
        let committed = self.log.committed();
        let Some(record) = self.terminal_record(terminal).await? else {
            return Ok(None);
        };
        let last = record.last_seq.unwrap_or(committed);
        self.context.wait_durable(self.log, last).await?;
        let mut window = OutputFold::new(terminal, workspace::DEFAULT_TERMINAL_BYTES);
        self.fold_events(record.first_seq, last, |event| window.event(event))
            .await?;
        let OutputFold { output, offset, .. } = window;
        let last_event_id = self.log.id(last.max(record.first_seq));
        Ok(Some(TerminalWindow {
            terminal: record.shown,
            output,
            offset,
            truncated: offset > 0,
            last_event_id,
        }))
    }
}
