//! Continues with a process that has outlived the previous gateway process (ADR 39).
//!
//! The log has the position in the output of the process, so the session reads on behind it. The running turn stays
//! open. Messages to the agent whose arrival is not known are sent again, each with its key, and the agent receives
//! each once.
//!
//! The record has the channel and the result of `initialize`, because a process accepts `initialize` once. A prompt
//! goes to a member only after the commit that names the channel. A prompt without a channel was therefore not sent.
//! Answers to the last requests are sent again.
//!
//! The key of a prompt is its call id, computed from the session and the prompt. The key of an answer contains the
//! position of its request in the output.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use super::turn::prompt_call;
use crate::acp::{InitializeResult, Outcome};
use crate::agent::FormerChannel;
use crate::fleet::ChannelId;
use crate::jsonrpc::IncomingId;
use crate::pool::Lease;
use crate::session::error::{ProcessError, SessionError};
use crate::session::process_link::Former;
use crate::session::record::{
    self, OutputPosition, PeerRequest, PromptRecord, RequestRecord, StoredChannel,
};
use crate::session::stored::{self, read_record};
use crate::session::turns::Queued;
use crate::store::Table;
use crate::types::{AppliedIsolation, PromptStatus, RequestId, SessionState};

/// The number of the last requests whose answers may not have arrived. An agent has no more open requests.
const RECENT_REQUESTS: u32 = 64;

impl Actor {
    /// Changes the record of a session that a process has.
    pub(super) fn record_attached(
        &mut self,
        (isolation, prompt_capabilities, models): (
            Option<AppliedIsolation>,
            Option<Box<RawValue>>,
            bool,
        ),
        channel: Option<ChannelId>,
        initialized: &InitializeResult,
    ) {
        let resent = self.turns.is_resent();
        self.journal.update(|record| {
            record.attached = true;
            (record.restore_failures, record.discards_context) = (0, false);
            let initialize = initialized.raw.clone();
            record.channel = channel.map(|id| StoredChannel {
                id,
                initialize,
                resent,
            });
            record.isolation = isolation;
            record.prompt_capabilities = prompt_capabilities;
            if record.is_closed() {
                record.state = SessionState::Idle;
            }
            record.models = models;
            record.unfinished = false;
        });
    }

    /// Prepares the session to continue with the process of its record. Returns false if that is not possible: the process
    /// then counts as ended.
    pub(super) async fn expect_former_process(&mut self) -> Result<bool, SessionError> {
        let record = self.journal.record().clone();
        let Some(StoredChannel {
            id,
            initialize,
            resent: false,
        }) = record.channel.clone()
        else {
            return Ok(false);
        };
        let key = record::session_key(record.session_id);
        let position =
            read_record::<OutputPosition>(&self.context, Table::OutputPosition, key).await?;
        let Some(position) = position.filter(|position| position.channel == id && record.attached)
        else {
            return Ok(false);
        };
        let running = match record.prompt_id {
            None => None,
            Some(prompt) => match self.sent_prompt(prompt.number()).await? {
                None => return Ok(false),
                running => running,
            },
        };
        let (requests, answers) = self.peer_requests(id).await?;
        let call = record
            .prompt_id
            .map(|prompt| prompt_call(record.session_id, prompt));
        // The running turn stays; the queue behind it is restored.
        self.journal.update(|record| record.prompt_id = None);
        let failed = self.restore_queue(true).await?;
        if let Some(queued) = running {
            let (prompt, first_seq) = (queued.record.prompt_id, queued.record.first_seq);
            self.journal
                .update(|record| record.prompt_id = Some(prompt));
            self.begin_turn(queued, first_seq);
        }
        for (prompt, problem) in failed {
            for queued in self.turns.remove_queued(Some(prompt)) {
                self.append_turn_end(queued.record, super::turn::TurnEnd::Failed(problem.clone()));
            }
        }
        let channel = FormerChannel {
            channel: id,
            offset: position.offset,
            initialize,
            call,
            requests,
        };
        self.link.expect_former(Former {
            channel: Arc::new(channel),
            answers,
        });
        if let Err(error) = self.reserve() {
            self.not_continued(&error);
        }
        Ok(true)
    }

    /// The running prompt, which may have been sent.
    async fn sent_prompt(&self, number: u32) -> Result<Option<Queued>, SessionError> {
        let key = record::numbered_key(self.journal.session(), number);
        let record = read_record::<PromptRecord>(&self.context, Table::Prompt, key).await?;
        let Some(record) =
            record.filter(|record| record.status == PromptStatus::Running && !record.unsent)
        else {
            return Ok(None);
        };
        let blocks = stored::prompt_blocks(self.journal.log(), &record).await?;
        Ok(blocks.map(|blocks| Queued {
            record,
            blocks,
            trace: None,
            restored: true,
            checked: None,
            serving: None,
        }))
    }

    /// The requests of the agent on this channel. Opens those that wait for an answer, and returns the answers that may not
    /// have arrived.
    async fn peer_requests(
        &mut self,
        channel: crate::fleet::ChannelId,
    ) -> Result<
        (
            Vec<(IncomingId, Box<serde_json::value::RawValue>)>,
            Vec<(IncomingId, Outcome)>,
        ),
        SessionError,
    > {
        let (mut requests, mut answers) = (Vec::new(), Vec::new());
        let record = self.journal.record();
        let (session, last) = (record.session_id, record.last_request);
        let recent = last.saturating_sub(RECENT_REQUESTS) + 1..=last;
        let numbers: BTreeSet<u32> = record
            .open_requests
            .iter()
            .map(|request| request.number())
            .chain(recent)
            .collect();
        let now = self.context.ids.now();
        for number in numbers {
            let key = record::numbered_key(session, number);
            let stored = read_record::<RequestRecord>(&self.context, Table::Request, key).await?;
            let Some(RequestRecord {
                pending,
                peer: Some(peer),
                ..
            }) = stored
            else {
                continue;
            };
            let PeerRequest {
                channel: of,
                number: incoming,
                id,
                result,
                error,
            } = peer;
            if of != channel {
                continue;
            }
            let incoming = IncomingId::new(incoming);
            match (pending, result, error) {
                (Some(pending), ..) => {
                    let id = RequestId::new(number);
                    self.agent_requests
                        .restore(id, pending.into(), incoming, now, Instant::now());
                }
                (None, Some(result), _) => answers.push((incoming, Ok(result))),
                (None, None, Some(error)) => answers.push((incoming, Err(error))),
                (None, None, None) => continue,
            }
            requests.push((incoming, id));
        }
        Ok((requests, answers))
    }

    /// Continues with the process: the turn, the requests and the output go on.
    pub(super) fn continue_with(&mut self, lease: Lease, Former { answers, .. }: Former) {
        if let Some(id) = &self.journal.record().agent_session_id {
            lease.record_session(id);
        }
        self.link.accept_former(lease);
        self.report_holder();
        self.attachment.continued(Instant::now());
        for (incoming, outcome) in answers {
            self.link.answer(incoming, &outcome);
        }
        self.next_queued();
    }

    /// The process is lost: its turn fails, and the next one starts a new process.
    pub(super) fn not_continued(&mut self, error: &ProcessError) {
        drop(self.link.take_former());
        self.stop_process(error);
        self.attach_failed(error);
    }
}
