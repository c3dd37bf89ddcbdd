//! Prompts: admission, and the wait for the end of a turn.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{SessionHandle, attachments};
use crate::api::{Attachment, Prompt};
use crate::session::command::{Command, PromptChange, PromptRequest};
use crate::session::error::{NotFound, PartError, PromptError, QueueError};
use crate::session::idempotency::Claim;
use crate::session::record::IdempotencyRecord;
use crate::types::{LimitExceeded, Principal, PromptId};

/// A turn that was accepted and is durable.
#[derive(Debug)]
pub struct AdmittedPrompt {
    pub prompt: Prompt,
    pub first_seq: u64,
    /// The sequence number of the end of the turn, if it has ended.
    pub last_seq: Option<u64>,
    /// Whether the turn belongs to an earlier request with the same idempotency key.
    pub replayed: bool,
}

impl SessionHandle {
    /// Begins or queues a turn. The operation continues if the caller is dropped, because its idempotency key
    /// must not be released before the turn is durable. `count` counts a new turn, or rejects it. It is not called for a
    /// repeated request.
    pub async fn prompt(
        &self,
        by: &Principal,
        request: PromptRequest,
        count: impl FnOnce() -> Result<(), LimitExceeded> + Send + 'static,
    ) -> Result<AdmittedPrompt, PromptError> {
        let key = request.key.clone();
        let earlier = self.clone();
        let replay = async move |previous: IdempotencyRecord| match previous.prompt {
            Some(prompt) => earlier.earlier_prompt(prompt).await.map(Some),
            None => Ok(None),
        };
        let handle = self.clone();
        let owner = by.clone();
        let act = async move |claim| {
            count()?;
            handle.prompt_once(owner, request, claim).await
        };
        let admitted = self.context().once(by, key, replay, act).await?;
        Ok(admitted.response)
    }

    async fn earlier_prompt(&self, prompt: PromptId) -> Result<AdmittedPrompt, PromptError> {
        let committed = self.log().committed();
        let record = self
            .query()
            .prompt_record(prompt)
            .await?
            .ok_or(NotFound("turn"))?;
        let (prompt, _) = self.query().prompt_with_text(&record, committed).await?;
        Ok(AdmittedPrompt {
            prompt,
            first_seq: record.first_seq,
            last_seq: record.last_seq,
            replayed: true,
        })
    }

    async fn prompt_once(
        &self,
        by: Principal,
        mut request: PromptRequest,
        claim: Option<Claim>,
    ) -> Result<AdmittedPrompt, PromptError> {
        let attachments = std::mem::take(&mut request.attachments);
        request.blocks = attachments::append_attachments(
            self.context(),
            self.query(),
            request.blocks,
            attachments,
        )
        .await?;
        self.context().take_baseline(self.id()).await;
        let request = Box::new(request);
        let (prompt, first_seq) = self
            .request(|reply| Command::Prompt {
                by,
                request,
                claim,
                reply,
            })
            .await?;
        self.wait_durable(first_seq).await?;
        Ok(AdmittedPrompt {
            prompt,
            first_seq,
            last_seq: None,
            replayed: false,
        })
    }

    /// Changes the content and the place of a queued prompt. Returns its state when the change is durable.
    pub async fn change_prompt(
        &self,
        by: &Principal,
        prompt: PromptId,
        edit: Option<(Box<RawValue>, Vec<Attachment>)>,
        before: Option<Option<PromptId>>,
    ) -> Result<Prompt, QueueError> {
        let blocks = match edit {
            Some((blocks, files)) => Some(
                attachments::append_attachments(self.context(), self.query(), blocks, files)
                    .await?,
            ),
            None => None,
        };
        let change = Box::new(PromptChange {
            by: by.clone(),
            prompt,
            blocks,
            before,
        });
        let seq = self
            .request(|reply| Command::ChangePrompt { change, reply })
            .await?;
        self.wait_durable(seq).await?;
        Ok(self
            .query()
            .prompt_state(prompt)
            .await?
            .ok_or(NotFound("turn"))?)
    }

    /// Waits until the turn ends. `None` if it does not end within `limit`.
    pub async fn wait_ended(
        &self,
        prompt: PromptId,
        limit: Duration,
    ) -> Result<Option<Prompt>, PartError> {
        let deadline = Instant::now() + limit;
        let mut entry = Arc::clone(&self.entry);
        loop {
            let mut ends = entry.turn_ends.clone();
            let seq = *ends.borrow_and_update();
            self.wait_durable(seq.min(entry.log.appended())).await?;
            let record = self
                .query()
                .prompt_record(prompt)
                .await?
                .ok_or(NotFound("turn"))?;
            if record.status.has_ended() {
                return Ok(Some(
                    self.query()
                        .prompt_with_text(&record, self.log().committed())
                        .await?
                        .0,
                ));
            }
            match tokio::time::timeout_at(deadline, ends.changed()).await {
                Ok(Ok(())) => {}
                // A drain keeps the prompt for the next start.
                Ok(Err(_)) if self.context().shutdown.is_draining() => return Ok(None),
                Ok(Err(_)) => entry = self.entries.entry(self.id()).await?,
                Err(_) => return Ok(None),
            }
        }
    }
}
