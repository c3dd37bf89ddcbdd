//! Turns of a session, folded from their events.

use serde_json::value::RawValue;

use super::{SessionQuery, newest_first};
use crate::api::{Prompt, PromptList, Session, Transcript};
use crate::event::EventRef;
use crate::session::error::SessionError;
use crate::session::record::{self, PromptRecord};
use crate::session::stored::{self, read_record};
use crate::store::Table;
use crate::transcript::TurnFold;
use crate::types::PromptId;

/// The position of a turn in the log, without its text.
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
        let (mut prompts, mut next_cursor) = (Vec::new(), None);
        let (mut read, enough) = (0, 4 * self.context.limits.max_page_bytes);
        for number in newest_first(
            self.record().await?.last_prompt,
            before.map(PromptId::number),
        ) {
            if prompts.len() == limit || read >= enough {
                next_cursor = prompts
                    .last()
                    .map(|prompt: &Prompt| prompt.prompt_id.to_string());
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

    pub(in crate::session) async fn prompt_record(
        self,
        prompt: PromptId,
    ) -> Result<Option<PromptRecord>, SessionError> {
        read_record(
            self.context,
            Table::Prompt,
            record::numbered_key(self.id(), prompt.number()),
        )
        .await
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
        Ok(record.map(
            |PromptRecord {
                 first_seq,
                 last_seq,
                 ..
             }| PromptRange {
                first_seq,
                last_seq,
            },
        ))
    }

    /// The content blocks of a prompt, with the last edit. `None` if the log no longer has the event that has them.
    pub async fn prompt_blocks(
        self,
        prompt: PromptId,
    ) -> Result<Option<Box<RawValue>>, SessionError> {
        let Some(record) = self.prompt_record(prompt).await? else {
            return Ok(None);
        };
        stored::prompt_blocks(self.log, &record).await
    }

    /// The content blocks as the client sent the prompt, before edits. `None` if the log no longer has the event that has
    /// them.
    pub async fn first_blocks(
        self,
        prompt: PromptId,
    ) -> Result<Option<Box<RawValue>>, SessionError> {
        let Some(record) = self.prompt_record(prompt).await? else {
            return Ok(None);
        };
        stored::first_blocks(self.log, &record).await
    }

    /// The turn with its text, and the number of log bytes read for it. `committed` is the committed position
    /// before the record was read, so the text of a running turn never extends past the end in the record.
    pub(in crate::session) async fn prompt_with_text(
        self,
        record: &PromptRecord,
        committed: u64,
    ) -> Result<(Prompt, usize), SessionError> {
        let last = record.last_seq.unwrap_or(committed);
        self.wait_durable(last).await?;
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
        let (mut turns, mut next_cursor) = (Vec::new(), None);
        let mut oldest = None;
        for number in newest_first(
            self.record().await?.last_prompt,
            before.map(PromptId::number),
        ) {
            if turns.len() == limit {
                next_cursor = oldest.map(|prompt: PromptId| prompt.to_string());
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
            let until = next_turn
                .filter(|_| record.last_seq.is_some())
                .map_or(last, |next| next.first_seq - 1);
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
