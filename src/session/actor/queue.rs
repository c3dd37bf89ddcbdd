//! The queue of a session: begins the next prompt, keeps the queue during a drain, and restores it after a
//! restart.
//!
//! A prompt is sent to the agent at most once. The record of the prompt decides. A `queued` prompt was never
//! sent. A `running` prompt may have been sent, unless a drain has marked it as `unsent`. The commit of
//! `session.attached` removes the mark, and the prompt is sent only after that commit.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use super::turn::TurnEnd;
use crate::api::{Problem, ProblemCode};
use crate::event::{EncodedEvent, PromptStarted};
use crate::eventlog::Records;
use crate::pool::AcquireError;
use crate::session::error::{ProcessError, PromptError, SessionError, ToProblem};
use crate::session::record::{self, PromptRecord, SessionRecord};
use crate::session::stored::{self, read_record};
use crate::session::turns::Queued;
use crate::store::Table;
use crate::types::{PromptId, PromptStatus, Timestamp};

/// The delay before a restored prompt is retried after a limit rejected it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Actor {
    /// Begins the next prompt of the queue, unless a turn runs.
    ///
    /// A prompt fails if the pool's queue is full. A restored prompt waits instead until it expires, because
    /// no client is there to send it again.
    pub(super) fn next_queued(&mut self) {
        self.turns.retry_at(None);
        while self.lifecycle.drain_at.is_none()
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
                    return self.turns.retry_at(Some(Instant::now() + RETRY_INTERVAL));
                }
                Err(PromptError::Process(ProcessError::Acquire(_))) if restored => expired(self),
                Err(error) => error.problem(),
            };
            if let Some(next) = self.turns.dequeue() {
                self.append_turn_end(next.record, TurnEnd::Failed(problem));
            }
        }
    }

    /// Whether a restored prompt has expired. If the clock may be ahead, its time counts as correct. A client can
    /// send a failed prompt again, but cannot undo a prompt that ran a day late.
    fn is_old(&self, created_at: Timestamp) -> bool {
        created_at.after(self.context.limits.queued_prompt_max_age) <= self.context.log.expiry().latest_now()
    }

    pub(super) fn begin_queued(&mut self) {
        let Some(mut queued) = self.turns.dequeue() else { return };
        let (prompt, now) = (queued.record.prompt_id, Instant::now());
        self.serving.turn_began(queued.serving.take());
        if queued.record.unsent {
            // The commit of `session.attached` permits the send.
            self.journal.update(|record| record.begin_prompt(prompt));
            return self.turns.begin(queued, u64::MAX, now);
        }
        queued.record.status = PromptStatus::Running;
        let event = EncodedEvent::from(&PromptStarted {
            prompt: None,
            by: &queued.record.by,
            idempotency_key: None,
            acp_request: queued.record.acp_request.as_ref(),
            broadcast_id: queued.record.broadcast,
        });
        let seq =
            self.journal.append_with(Some(prompt), event, |_, change| change.run_prompt(&queued.record));
        self.turns.begin(queued, seq, now);
    }

    /// Saves the mark of `Turns::return_unsent` after all other commits of this actor.
    pub(super) async fn save_unsent(&self) {
        let Some(unsent) = self.turns.unsent_head() else { return };
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
        let open: Vec<_> = record.prompt_id.iter().chain(&record.queued).copied().collect();
        let (mut failed, mut queued) = (Vec::new(), Vec::new());
        for prompt in open {
            let key = record::numbered_key(self.journal.session(), prompt.number());
            let Some(record) = read_record::<PromptRecord>(&self.context, Table::Prompt, key).await? else {
                continue;
            };
            if record.status.has_ended() {
                continue;
            }
            let outcome = if restore { self.restored_blocks(&record).await? } else { Err(interrupted()) };
            let blocks = outcome.unwrap_or_else(|problem| {
                failed.push((prompt, problem));
                RawValue::NULL.to_owned()
            });
            queued.push(prompt);
            self.turns.enqueue(Queued {
                record,
                blocks,
                trace: None,
                restored: true,
                checked: None,
                serving: None,
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
        let is_unsent = record.unsent || (session.channel.is_none() && self.link.spec().is_member());
        if record.status != PromptStatus::Queued && !is_unsent {
            return Ok(Err(interrupted()));
        }
        if !self.context.may_prompt.allows(&self.journal.record().tenant(), &record.by) {
            let detail = "the key that sent the prompt was revoked, or no longer has the scope prompt";
            return Ok(Err(Problem::new(ProblemCode::KeyRevoked, detail)));
        }
        if self.is_old(record.created_at) {
            return Ok(Err(expired(self)));
        }
        let blocks = stored::prompt_blocks(self.journal.log(), record).await?;
        Ok(blocks.ok_or_else(|| {
            let detail = "the gateway was restarted, and the log no longer has the content of the prompt";
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
    let detail = format!("the prompt waited for longer than queued_prompt_max_age ({age} s); send it again");
    Problem::new(ProblemCode::PromptExpired, detail)
}
