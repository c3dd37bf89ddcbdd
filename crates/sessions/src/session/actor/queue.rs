//! The queue of a session: begins the next prompt, applies the changes of clients, keeps the queue during a drain, and
//! restores it after a restart.
//!
//! A prompt is sent to the agent at most once. The record of the prompt decides. A `queued` prompt was never
//! sent, also if it waits for a process at the head of the queue. A `running` prompt may have been sent, unless it is marked as
//! `unsent`, because its process ended before the send, or because of a drain. The commit of `session.attached` removes the mark,
//! and the prompt is sent only after that commit.
//!
//! - The blocks of a restored prompt are in the log. A copy in the record would double every prompt on disk.
//! - A change of the content and of the place is one event. With two events, a crash could keep half of a request.
//! - `before` names the next prompt. A number would mean another prompt after a concurrent start.
//! - `prompt.started` is appended when the process has the session. If it is appended at the request, a crash during
//!   the start of the process loses the prompt.
//! - The record does not store each send. The additional commit costs a sync, and a crash after it is as ambiguous.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use crate::session::command::PromptRequest;
use crate::session::error::{
    NotFound, NotQueued, ProcessError, PromptError, QueueError, SessionError, ToProblem,
};
use crate::session::record::{self, PromptEdit, PromptRecord, SessionRecord};
use crate::session::stored::{self, read_record};
use crate::session::turns::{NOT_YET, Queued, TurnEnd};
use agents::pool::AcquireError;
use base::types::{Principal, PromptId, PromptStatus, Timestamp};
use events::api::{Problem, ProblemCode};
use events::event::{EncodedEvent, PromptChanged};
use log::eventlog::Records;
use log::store::Table;

/// The delay before a restored prompt is retried after a limit rejected it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Actor {
    /// Begins the next prompt of the queue, unless a turn runs.
    ///
    /// A prompt fails if the pool's queue is full. A restored prompt waits instead until it expires, because
    /// no client is there to send it again.
    pub(super) fn next_queued(&mut self) {
        self.turns.retry_at = None;
        while !self.is_draining()
            && let Some(next) = self.turns.next()
        {
            let (restored, created_at) = (next.restored, next.record.created_at);
            let problem = match self.check_turn().and_then(|()| Ok(self.reserve()?)) {
                Ok(()) => return self.begin_queued(),
                // The coming drain keeps the queue.
                Err(PromptError::Process(ProcessError::Acquire(AcquireError::Draining))) => return,
                Err(PromptError::Process(ProcessError::Acquire(_)))
                    if restored && !self.is_old(created_at) =>
                {
                    self.turns.retry_at = Some(Instant::now() + RETRY_INTERVAL);
                    return;
                }
                Err(PromptError::Process(ProcessError::Acquire(_))) if restored => expired(self),
                Err(error) => error.problem(),
            };
            if let Some(next) = self.turns.dequeue() {
                self.turns
                    .append_end(&mut self.journal, next.record, TurnEnd::Failed(problem));
            }
        }
    }

    /// Whether a restored prompt has expired. If the clock may be ahead, its time counts as correct. A client can
    /// send a failed prompt again, but cannot undo a prompt that ran a day late.
    fn is_old(&self, created_at: Timestamp) -> bool {
        created_at.after(self.context.limits.queued_prompt_max_age)
            <= self.context.log.expiry().latest_now()
    }

    pub(super) fn begin_queued(&mut self) {
        let Some(queued) = self.turns.dequeue() else {
            return;
        };
        let prompt = queued.record.prompt_id;
        if queued.record.unsent {
            // The commit of `session.attached` permits the send.
            self.journal.update(|record| record.begin_prompt(prompt));
        }
        self.begin_turn(queued, NOT_YET);
        self.start_prompt();
    }

    /// Changes a queued prompt, also the one that waits for a process: the agent cannot have seen it. `before`: the queued
    /// prompt before which the prompt moves; `Some(None)`: to the end.
    #[expect(
        clippy::option_option,
        reason = "a place that is absent stays, and one that is null is the end of the queue"
    )]
    pub(crate) fn change_prompt(
        &mut self,
        by: &Principal,
        prompt: PromptId,
        blocks: Option<Box<RawValue>>,
        before: Option<Option<PromptId>>,
    ) -> Result<u64, QueueError> {
        let waited = self.turns.is_waiting() && self.turns.return_unsent();
        let changed = self.change_queue(by, prompt, blocks, before);
        if waited {
            self.begin_queued();
        }
        changed
    }

    /// Changes the content and the place of a queued prompt in one event. Returns the event that must be durable before the
    /// client sees the change. A prompt in the queue is never sent, so the agent gets the content after the last edit.
    #[expect(clippy::option_option, reason = "as in `change_prompt`")]
    fn change_queue(
        &mut self,
        by: &Principal,
        prompt: PromptId,
        mut blocks: Option<Box<RawValue>>,
        mut before: Option<Option<PromptId>>,
    ) -> Result<u64, QueueError> {
        if prompt.number() > self.journal.record().last_prompt {
            return Err(NotFound("turn").into());
        }
        if self.is_draining() {
            return Err(ProcessError::DRAINING.into());
        }
        if self.context.log.storage_full() {
            return Err(SessionError::StorageFull.into());
        }
        self.check_quota()?;
        let queued = self.turns.queued(prompt).ok_or(NotQueued(prompt))?;
        blocks.take_if(|blocks| blocks.get() == queued.request.blocks.get());
        if let Some(Some(other)) = before
            && self.turns.queued(other).is_none()
        {
            return Err(NotQueued(other).into());
        }
        if let Some(blocks) = &blocks {
            self.check_content(by, blocks)?;
        }
        let order = before.and_then(|before| self.turns.moved(prompt, before));
        before.take_if(|_| order.is_none());
        if blocks.is_none() && before.is_none() {
            return Ok(self.journal.appended());
        }
        let event = EncodedEvent::from(&PromptChanged {
            prompt: blocks.as_deref(),
            before,
            by: &by.id,
        });
        let order = order.unwrap_or_else(|| self.turns.order());
        self.turns.reorder(&order);
        if let Some(blocks) = &blocks {
            self.journal.fold_prompt(blocks);
        }
        let rules = self.client_rules();
        let seq = self
            .journal
            .append_with(Some(prompt), event, |seq, change| {
                change.set_queue(order);
                let edit = PromptEdit {
                    seq,
                    by: by.id.to_string(),
                };
                if let Some(record) =
                    blocks.and_then(|blocks| self.turns.edit(prompt, blocks, edit, rules))
                {
                    change.put_prompt(record);
                }
            });
        Ok(seq)
    }

    /// Saves the mark of `Turns::return_unsent` after all other commits of this actor.
    pub(super) async fn save_unsent(&self) {
        let Some(unsent) = self.turns.unsent_head() else {
            return;
        };
        let session = self.journal.session();
        let mut records = Records::default();
        unsent.put(session, &mut records);
        if let Err(error) = self.context.log.write(records).await {
            tracing::warn!(%session, %error, "could not keep an unsent prompt for the next start");
        }
    }

    /// Puts every prompt without an end into the queue, in order, and returns the prompts that fail.
    /// `restore`: prompts that were not sent may run.
    pub(super) async fn restore_queue(
        &mut self,
        restore: bool,
    ) -> Result<Vec<(PromptId, Problem)>, SessionError> {
        let record = self.journal.record();
        let open: Vec<_> = record
            .prompt_id
            .iter()
            .chain(&record.queued)
            .copied()
            .collect();
        let (mut failed, mut queued) = (Vec::new(), Vec::new());
        for prompt in open {
            let key = record::numbered_key(self.journal.session(), prompt.number());
            let Some(record) =
                read_record::<PromptRecord>(&self.context, Table::Prompt, key).await?
            else {
                continue;
            };
            if record.status.has_ended() {
                continue;
            }
            let outcome = if restore {
                self.restored_blocks(&record).await?
            } else {
                Err(interrupted())
            };
            let blocks = outcome.unwrap_or_else(|problem| {
                failed.push((prompt, problem));
                RawValue::NULL.to_owned()
            });
            queued.push(prompt);
            self.turns.enqueue(Queued {
                record,
                request: PromptRequest::new(blocks),
                restored: true,
                checked: None,
            });
        }
        let restored = queued.len() - failed.len();
        self.journal.update(|record: &mut SessionRecord| {
            (record.prompt_id, record.queued) = (None, queued);
        });
        if restored > 0 {
            tracing::info!(session = %self.journal.session(), restored, "queued prompts were restored");
        }
        Ok(failed)
    }

    /// The blocks of a prompt that may still run, or the problem with which it fails.
    async fn restored_blocks(
        &self,
        record: &PromptRecord,
    ) -> Result<Result<Box<RawValue>, Problem>, SessionError> {
        // A prompt to a member is sent only after the commit that names the process.
        let session = self.journal.record();
        let is_unsent =
            record.unsent || (session.channel.is_none() && self.link.spec().is_member());
        if record.status != PromptStatus::Queued && !is_unsent {
            return Ok(Err(interrupted()));
        }
        let (tenant, editor) = (
            self.journal.record().tenant(),
            record.edit.as_ref().map(|edit| &edit.by),
        );
        if [Some(&record.by), editor]
            .into_iter()
            .flatten()
            .any(|by| !self.context.may_prompt.allows(&tenant, by))
        {
            let detail = "the key that sent or edited the prompt was revoked, or no longer has the scope prompt";
            return Ok(Err(Problem::new(ProblemCode::KeyRevoked, detail)));
        }
        if self.is_old(record.created_at) {
            return Ok(Err(expired(self)));
        }
        let blocks = stored::prompt_blocks(self.journal.log(), record).await?;
        Ok(blocks.ok_or_else(|| {
            let detail =
                "the gateway was restarted, and the log no longer has the content of the prompt";
            Problem::new(ProblemCode::Interrupted, detail)
        }))
    }
}

fn interrupted() -> Problem {
    let detail = "the gateway was restarted, or failed, while the turn was running or waiting";
    Problem::new(ProblemCode::Interrupted, detail)
}

fn expired(actor: &Actor) -> Problem {
    let age = actor.context.limits.queued_prompt_max_age.as_secs_f64();
    let detail =
        format!("the prompt waited for longer than queued_prompt_max_age ({age} s); send it again");
    Problem::new(ProblemCode::PromptExpired, detail)
}
