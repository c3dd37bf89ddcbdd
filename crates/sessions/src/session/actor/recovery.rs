//! Loads a session's actor from its records and log, and closes everything that a crash left open, or continues with a
//! process that has outlived the previous gateway process (ADR 39).
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
use std::sync::atomic::AtomicBool;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::session::actor::turn::prompt_call;
use crate::session::actor::{Actor, ActorEntry, EventLoop, Lifecycle};
use crate::session::attachment::{Attachment, DiscardCounter};
use crate::session::client_calls::ClientCalls;
use crate::session::command::PromptRequest;
use crate::session::context::Context;
use crate::session::error::{ProcessError, SessionError};
use crate::session::journal::Journal;
use crate::session::process_link::{Former, ProcessLink};
use crate::session::record::{
    self, FoldRecord, OutputPosition, PromptRecord, RequestRecord, SessionRecord, StoredChannel,
    TerminalRecord,
};
use crate::session::requests::work::Work;
use crate::session::requests::{Requests, append_terminal_end};
use crate::session::stored::{self, agent_spec, read_record};
use crate::session::turns::{Queued, TurnEnd, Turns};
use crate::session::validation::Origin;
use agents::agent::FormerChannel;
use agents::pool::{CrashBackoff, Lease};
use base::types::{
    AppliedIsolation, GrantedFolders, Principal, PromptStatus, Scope, SessionId, SessionState,
    Tenant,
};
use events::api::Resolution;
use events::event::DetachedReason;
use log::eventlog::SessionLog;
use log::store::Table;
use wire::acp::{InitializeResult, Outcome, RequestKind};
use wire::fleet::ChannelId;
use wire::jsonrpc::IncomingId;
use workspace::AgentTerminals;

fn owner(record: &SessionRecord) -> Principal {
    Principal {
        id: record.owner.as_str().into(),
        tenant: record.tenant(),
        scopes: Scope::ALL.iter().copied().collect(),
        folders: GrantedFolders::default(),
    }
}

impl Actor {
    pub(crate) fn new(
        context: &Context,
        log: SessionLog,
        record: SessionRecord,
        origin: Origin,
    ) -> (Self, ActorEntry) {
        let mut journal = Journal::new(log, context.ids.clone(), record, &context.bounds.quotas);
        journal.begin_title(origin);
        Self::with_journal(context, journal)
    }

    fn with_journal(context: &Context, journal: Journal) -> (Self, ActorEntry) {
        let (sender, commands) = mpsc::channel(context.limits.max_queued_commands);
        let (ends, turn_ends) = watch::channel(0);
        let (completer, completions) = mpsc::channel(context.limits.max_queued_commands);
        let (events, terminal_events) = mpsc::channel(context.limits.max_queued_batches);
        let terminals = AgentTerminals::new(events, context.bounds.scrollback_budget.clone());
        let now = Instant::now();
        let entry = ActorEntry {
            commands: sender,
            log: journal.log().clone(),
            turn_ends,
            stopped: CancellationToken::new(),
            visible: AtomicBool::new(true),
        };
        let event_loop = EventLoop {
            commands,
            has_handles: true,
            commits: journal.log().commits(),
            disk_space: context.log.disk_space(),
            completions,
            terminal_events,
            shutdown: context.shutdown.clone(),
        };
        let lifecycle = Lifecycle {
            last_command_at: now,
            drain_at: None,
            stopping: false,
            crashes: CrashBackoff::default(),
            discarded: DiscardCounter::default(),
        };
        let actor = Self {
            context: context.clone(),
            link: ProcessLink::new(
                agent_spec(context, journal.record()),
                owner(journal.record()),
            ),
            journal,
            attachment: Attachment::new(now),
            turns: Turns::new(ends, now),
            requests: Requests::new(
                Work::new(completer, &context.limits),
                terminals,
                context.audit.clone(),
            ),
            client_calls: ClientCalls::default(),
            brought_servers: Vec::new(),
            event_loop,
            lifecycle,
        };
        (actor, entry)
    }

    /// Loads a session. `None` if it does not exist, or does not belong to this tenant. `restore`: queued prompts may run.
    pub(crate) async fn load(
        context: &Context,
        tenant: Option<&Tenant>,
        id: SessionId,
        restore: bool,
    ) -> Result<Option<(Self, ActorEntry)>, SessionError> {
        let key = record::session_key(id);
        let Some(record) =
            read_record::<SessionRecord>(context, Table::Session, key.clone()).await?
        else {
            return Ok(None);
        };
        // Loading writes to the log, which a client of another tenant must not cause.
        if tenant.is_some_and(|tenant| *tenant != record.tenant()) {
            return Ok(None);
        }
        let log = context.log.session(&record.tenant(), id).await?;
        let folded = read_record::<FoldRecord>(context, Table::Fold, key).await?;
        let (mut journal, mut seq) = Journal::load(
            log,
            context.ids.clone(),
            record,
            folded,
            &context.bounds.quotas,
        );
        loop {
            let runs = journal
                .log()
                .read(seq, context.limits.store_page_bytes)
                .await;
            let runs = runs?;
            let Some(last) = runs.last() else { break };
            seq = last.last_seq;
            journal.refold(&runs);
        }
        let (mut actor, entry) = Self::with_journal(context, journal);
        actor.close_open_state(restore).await?;
        Ok(Some((actor, entry)))
    }

    /// Closes the turn, the requests and the process that a crash left open. Each gets exactly one end.
    /// Prompts that were not sent to the agent return to the queue.
    ///
    /// Another crash can interrupt this between any two commits. The session's record lists each open item
    /// until its end is committed, and items that have an end are skipped.
    async fn close_open_state(&mut self, restore: bool) -> Result<(), SessionError> {
        let id = self.journal.session();
        let record = self.journal.record().clone();
        if record.unfinished {
            self.erase(&record.owner);
            return Ok(());
        }
        if restore && self.expect_former_process().await? {
            return Ok(());
        }
        let failed = self.restore_queue(restore).await?;
        if record.state == SessionState::Waiting {
            for request in record.open_requests {
                let key = record::numbered_key(id, request.number());
                let stored =
                    read_record::<RequestRecord>(&self.context, Table::Request, key).await?;
                if let Some(RequestRecord {
                    pending: Some(pending),
                    resolution: None,
                    ..
                }) = stored
                {
                    // The process is gone.
                    let outcome = RequestKind::from_method(&pending.method).cancelled_reply();
                    let resolution = Resolution::Expired;
                    self.requests.append_end(
                        &mut self.journal,
                        &pending,
                        resolution,
                        None,
                        &outcome,
                        None,
                    );
                }
            }
        }
        for terminal in record.open_terminals {
            let key = record::numbered_key(id, terminal.number());
            let stored = read_record::<TerminalRecord>(&self.context, Table::Terminal, key).await?;
            if let Some(terminal) = stored.filter(|terminal| terminal.last_seq.is_none()) {
                append_terminal_end(&mut self.journal, None, terminal, (None, None));
            }
        }
        self.journal.update(|record| {
            record.open_requests.clear();
            record.open_terminals.clear();
        });
        for (prompt, problem) in failed {
            for queued in self.turns.remove_queued(Some(prompt)) {
                self.turns.append_end(
                    &mut self.journal,
                    queued.record,
                    TurnEnd::Failed(problem.clone()),
                );
            }
        }
        self.append_detached(DetachedReason::Exited);
        Ok(())
    }
}

/// The number of the last requests whose answers may not have arrived. An agent has no more open requests.
const RECENT_REQUESTS: u32 = 64;

impl Actor {
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
                self.turns.append_end(
                    &mut self.journal,
                    queued.record,
                    TurnEnd::Failed(problem.clone()),
                );
            }
        }
        let channel = FormerChannel {
            channel: id,
            offset: position.offset,
            initialize,
            call,
            requests,
        };
        self.link.former = Some(Former {
            channel: Arc::new(channel),
            answers,
        });
        if let Err(error) = self.reserve() {
            self.not_continued(&error);
        }
        Ok(true)
    }

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
            request: PromptRequest::new(blocks),
            restored: true,
            checked: None,
        }))
    }

    /// The requests of the agent on this channel. Opens those that wait for an answer, and returns the answers that may not
    /// have arrived.
    async fn peer_requests(
        &mut self,
        channel: wire::fleet::ChannelId,
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
            if peer.channel != channel {
                continue;
            }
            let incoming = IncomingId::new(peer.number);
            let id = peer.id.clone();
            match (pending, peer.result.clone(), peer.error.clone()) {
                (Some(pending), ..) => {
                    let now = Instant::now();
                    self.requests
                        .restore(&self.journal, pending, incoming, peer, now);
                }
                (None, Some(result), _) => answers.push((incoming, Ok(result))),
                (None, None, Some(error)) => answers.push((incoming, Err(error))),
                (None, None, None) => continue,
            }
            requests.push((incoming, id));
        }
        Ok((requests, answers))
    }

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
        drop(self.link.former.take());
        self.stop_process(error);
        self.attach_failed(error);
    }
}
