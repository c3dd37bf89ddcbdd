//! Turns of a session, folded from their events.

use super::SessionQuery;
use crate::api::{Prompt, PromptList, Session, Transcript};
use crate::session::record::{self, PromptRecord};
use crate::session::refusal::Refusal;
use crate::session::stored::read_record;
use crate::store::{Run, Table};
use crate::transcript::TurnFold;
use crate::types::PromptId;

/// The position of a turn in the log, without its text.
#[derive(Debug, Clone, Copy)]
pub struct PromptRange {
    pub first_seq: u64,
    /// The sequence number of the end of the turn, if it has ended.
    pub last_seq: Option<u64>,
}

/// A turn folded from the log.
struct FoldedTurn {
    turn: TurnFold,
    /// The sequence number up to which the fold is exact.
    seq: u64,
    /// The number of log bytes read for the fold.
    read_bytes: usize,
}

impl SessionQuery<'_> {
    /// A page of turns, newest first, before the turn `before`. It ends early if it needs many log reads.
    pub async fn prompts(self, before: Option<PromptId>, limit: usize) -> Result<PromptList, Refusal> {
        let (mut prompts, mut next_cursor) = (Vec::new(), None);
        let (mut read, enough) = (0, 4 * self.context.limits.max_page_bytes);
        for number in self.turns_before(before).await? {
            if prompts.len() == limit || read >= enough {
                next_cursor = prompts.last().map(|prompt: &Prompt| prompt.prompt_id.to_string());
                break;
            }
            let committed = self.log.committed();
            if let Some(record) = self.prompt_record(PromptId::new(number)).await? {
                let (prompt, bytes) = self.prompt_with_text(&record, committed).await?;
                prompts.push(prompt);
                read += bytes;
            }
        }
        Ok(PromptList { prompts, next_cursor })
    }

    /// The numbers of the turns, newest first.
    async fn turns_before(
        self,
        before: Option<PromptId>,
    ) -> Result<impl Iterator<Item = u32> + use<>, Refusal> {
        let last = self.record().await?.last_prompt;
        let newest = before.map_or(last, |before| before.number().saturating_sub(1).min(last));
        Ok((1..=newest).rev())
    }

    pub(in crate::session) async fn prompt_record(
        self,
        prompt: PromptId,
    ) -> Result<Option<PromptRecord>, Refusal> {
        read_record(self.context, Table::Prompt, record::prompt_key(self.id(), prompt)).await
    }

    /// The current state of a turn. `None` if there is no such turn.
    pub async fn prompt_state(self, prompt: PromptId) -> Result<Option<Prompt>, Refusal> {
        let committed = self.log.committed();
        let Some(record) = self.prompt_record(prompt).await? else { return Ok(None) };
        Ok(Some(self.prompt_with_text(&record, committed).await?.0))
    }

    /// The position of a turn in the log, read from its record alone. `None` if there is no such turn.
    pub async fn prompt_range(self, prompt: PromptId) -> Result<Option<PromptRange>, Refusal> {
        let record = self.prompt_record(prompt).await?;
        Ok(record.map(|PromptRecord { first_seq, last_seq, .. }| PromptRange { first_seq, last_seq }))
    }

    /// The turn with its text, and the number of log bytes read for it. `committed` is the committed position
    /// before the record was read, so the text of a running turn never extends past the end in the record.
    pub(in crate::session) async fn prompt_with_text(
        self,
        record: &PromptRecord,
        committed: u64,
    ) -> Result<(Prompt, usize), Refusal> {
        let last = record.last_seq.unwrap_or(committed);
        self.wait_durable(last).await?;
        let FoldedTurn { turn, seq, read_bytes: read } = self.fold_turn(record, last).await?;
        let mut shown = record.to_prompt(self.id(), self.log.id(seq));
        (shown.text, shown.truncated) = turn.text();
        Ok((shown, read))
    }

    /// Folds the events of a turn up to `last`.
    async fn fold_turn(self, record: &PromptRecord, last: u64) -> Result<FoldedTurn, Refusal> {
        let (mut turn, mut seq, mut read) = (TurnFold::new(), record.first_seq - 1, 0);
        while seq < last {
            let runs = self.read(seq).await?;
            let Some(end) = runs.last().map(|run| run.last_seq) else { break };
            read += runs.iter().map(|run| run.frames.len()).sum::<usize>();
            for event in runs
                .iter()
                .filter_map(|run| run.through(last))
                .collect::<Vec<Run>>()
                .iter()
                .flat_map(Run::events)
            {
                if event.is_of(record.prompt_id) {
                    turn.event(&event);
                }
            }
            seq = end.min(last);
        }
        Ok(FoldedTurn { turn, seq: seq.max(record.first_seq), read_bytes: read })
    }

    /// A page of folded turns, newest first, exact at the `lastEventId` of the snapshot.
    pub(in crate::session) async fn transcript(
        self,
        session: Session,
        before: Option<PromptId>,
        limit: usize,
    ) -> Result<Transcript, Refusal> {
        let last = session.last_event_id.seq;
        let (mut turns, mut next_cursor) = (Vec::new(), None);
        let mut oldest = None;
        for number in self.turns_before(before).await? {
            if turns.len() == limit {
                next_cursor = oldest.map(|prompt: PromptId| prompt.to_string());
                break;
            }
            let Some(record) = self.prompt_record(PromptId::new(number)).await? else { continue };
            if record.first_seq > last {
                continue;
            }
            // Late updates belong to the turn too, so it is folded to the start of the next turn.
            let next_turn = self.prompt_record(PromptId::new(number + 1)).await?;
            let until =
                next_turn.filter(|_| record.last_seq.is_some()).map_or(last, |next| next.first_seq - 1);
            let until = until.max(record.last_seq.unwrap_or(last)).min(last);
            let turn = self.fold_turn(&record, until).await?.turn;
            oldest = Some(record.prompt_id);
            turns.extend(turn.finish());
        }
        let last_event_id = session.last_event_id.clone();
        Ok(Transcript { session, turns, next_cursor, last_event_id })
    }
}
