//! The queue of a session: begins the next prompt, keeps the queue during a drain, and restores it after a
//! restart.
//!
//! A prompt is sent to the agent at most once. The record of the prompt decides. A `queued` prompt was never
//! sent. A `running` prompt may have been sent, unless a drain has marked it as `unsent`. The commit of
//! `session.attached` removes the mark, and the prompt is sent only after that commit.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::record::{self, PromptRecord, StoredStatus};
use super::recovery::read_record;
use super::refusal::Refusal;
use super::turn::{Queued, Turn};
use crate::api::{Problem, ProblemCode};
use crate::event::{EncodedEvent, PromptStarted};
use crate::eventlog::Records;
use crate::store::{Run, Table};
use crate::types::{PromptId, Timestamp};

/// The delay before a restored prompt is retried after a limit refused it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Actor {
    /// Begins the next prompt of the queue, unless a turn runs.
    ///
    /// A prompt fails if the pool's queue is full. A restored prompt waits instead until it expires, because
    /// no client is there to send it again.
    pub(super) fn next_queued(&mut self) {
        self.retry_at = None;
        while self.turn.is_none()
            && self.drain_at.is_none()
            && let Some(next) = self.queue.front()
        {
            let (restored, created_at) = (next.restored, next.record.created_at);
            let may_begin =
                self.check_quota().and_then(|()| self.check_crashes()).and_then(|()| self.reserve());
            let problem = match may_begin {
                Ok(()) => return self.begin_queued(),
                // The coming drain keeps the queue.
                Err(Refusal::Draining) => return,
                Err(Refusal::PoolFull(..) | Refusal::Limit(_)) if restored && !self.is_old(created_at) => {
                    self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
                    return;
                }
                Err(Refusal::PoolFull(..) | Refusal::Limit(_)) if restored => expired(self),
                Err(refusal) => refusal.problem(),
            };
            if let Some(next) = self.queue.pop_front() {
                self.end_failed(next.record, problem);
            }
        }
    }

    /// Whether a restored prompt has expired. If the clock may be ahead, its time counts as correct: a client
    /// can send a failed prompt again, but cannot undo a prompt that ran a day late.
    fn is_old(&self, created_at: Timestamp) -> bool {
        created_at.after(self.context.limits.queued_prompt_max_age) <= self.context.log.expiry().latest_now()
    }

    fn begin_queued(&mut self) {
        let Some(mut queued) = self.queue.pop_front() else { return };
        if queued.record.unsent {
            // The commit of `session.attached` permits the send.
            return self.begin(queued, u64::MAX);
        }
        queued.record.status = StoredStatus::Running;
        let prompt = queued.record.prompt_id;
        let mut records = Records::default();
        queued.record.put(self.record.session_id, &mut records);
        let by = &queued.record.by;
        let event = EncodedEvent::from(&PromptStarted { prompt: None, by, idempotency_key: None });
        let seq = self.log.appended() + 1;
        self.begin(queued, seq);
        let records = self.with_session_records(records);
        self.append(Some(prompt), event, records);
    }

    /// Begins an unsent prompt at the head of the queue. It is sent when `session.attached`, the next event,
    /// is durable. Call this right before that event is appended.
    pub(super) fn begin_unsent(&mut self, records: &mut Records) {
        if self.turn.is_none() && self.queue.front().is_some_and(|queued| queued.record.unsent) {
            self.begin_queued();
        }
        let seq = self.log.appended() + 1;
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.record.unsent) {
            turn.record.unsent = false;
            turn.started_seq = seq;
            turn.record.put(self.record.session_id, records);
        }
    }

    /// Returns a turn whose prompt was not sent to the head of the queue. It gets no second `prompt.started`.
    pub(super) fn return_unsent(&mut self) {
        if let Some(turn) = self.turn.take_if(|turn| turn.call.is_none()) {
            let Turn { mut record, blocks, trace, .. } = turn;
            record.unsent = true;
            self.queue.push_front(Queued { record, blocks, trace, restored: false });
        }
    }

    /// Saves the mark of [`return_unsent`](Self::return_unsent) after all other commits of this actor.
    pub(super) async fn save_unsent(&self) {
        let Some(queued) = self.queue.front().filter(|queued| queued.record.unsent) else { return };
        let mut records = Records::default();
        queued.record.put(self.record.session_id, &mut records);
        if let Err(error) = self.context.log.write(records).await {
            tracing::warn!(session = %self.record.session_id, %error, "could not keep an unsent prompt for the next start");
        }
    }

    /// Puts every prompt without an end into the queue, in order, and returns the prompts that fail.
    /// `restore`: prompts that were not sent may run.
    pub(super) async fn restore_queue(&mut self, restore: bool) -> Result<Vec<(PromptId, Problem)>, Refusal> {
        let open: Vec<_> = self.record.prompt_id.iter().chain(&self.record.queued).copied().collect();
        let mut failed = Vec::new();
        for prompt in open {
            let key = record::prompt_key(self.record.session_id, prompt);
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
            self.queue.push_back(Queued { record, blocks, trace: None, restored: true });
        }
        let restored = self.queue.len() - failed.len();
        if restored > 0 {
            tracing::info!(session = %self.record.session_id, restored, "queued prompts were restored");
        }
        Ok(failed)
    }

    /// The blocks of a prompt that may still run, or the problem with which it fails.
    async fn restored_blocks(
        &self,
        record: &PromptRecord,
    ) -> Result<Result<Box<RawValue>, Problem>, Refusal> {
        if record.status != StoredStatus::Queued && !record.unsent {
            return Ok(Err(interrupted()));
        }
        if !self.context.may_prompt.allows(&self.record.tenant(), &record.by) {
            let detail = "the key that sent the prompt was revoked, or no longer has the scope prompt";
            return Ok(Err(Problem::new(ProblemCode::KeyRevoked, detail)));
        }
        if self.is_old(record.created_at) {
            return Ok(Err(expired(self)));
        }
        let runs = self.log.read(record.first_seq - 1, 1).await.map_err(|error| Refusal::internal(&error))?;
        let event = runs.iter().flat_map(Run::events).find(|event| event.seq() == record.first_seq);
        let blocks = event.and_then(|event| event.payload()?.prompt);
        Ok(blocks.map(ToOwned::to_owned).ok_or_else(|| {
            let detail = "the gateway was restarted, and the log no longer has the content of the prompt";
            Problem::new(ProblemCode::Interrupted, detail)
        }))
    }

    /// Fails prompts of the queue.
    pub(super) fn fail_queued(&mut self, failed: Vec<(PromptId, Problem)>) {
        for (prompt, problem) in failed {
            let at = self.queue.iter().position(|queued| queued.record.prompt_id == prompt);
            if let Some(queued) = at.and_then(|at| self.queue.remove(at)) {
                self.end_failed(queued.record, problem);
            }
        }
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
