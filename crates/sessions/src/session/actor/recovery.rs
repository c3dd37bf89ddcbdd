//! Loads a session's actor from its records and log, and closes everything that a crash left open, or continues with a
//! process that has outlived the previous gateway process (ADR 39).
//!
//! The log contains the position in the output of the process, so the session reads on behind it. The running turn stays
//! open. Messages to the agent whose arrival is not known are sent again, each with its key, and the agent receives
//! each once.
//!
//! The record contains the channel and the result of `initialize`, because a process accepts `initialize` once. A prompt
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
use tracing::{Instrument, Span};

use crate::session::actor::turn::prompt_call;
use crate::session::actor::{Actor, ActorEntry};
use crate::session::binding::Binding;
use crate::session::context::{Context, FOLD_PAGE_BYTES, prompt_blocks};
use crate::session::error::SessionError;
use crate::session::journal::Journal;
use crate::session::record::{
    self, FoldRecord, OutputPosition, PromptRecord, RequestRecord, SessionRecord, StoredChannel,
    TerminalRecord,
};
use crate::session::requests::work::Work;
use crate::session::requests::{Requests, append_terminal_end};
use crate::session::turns::{Queued, Turns};
use crate::session::validation::Origin;
use agents::agent::EarlierChannel;
use agents::pool::CrashBackoff;
use base::telemetry::metrics;
use base::types::{GrantedFolders, Principal, Scope, SessionId, UserId};
use events::api::{PromptStatus, Resolution, SessionState};
use events::event::DetachedReason;
use log::eventlog::SessionLog;
use wire::acp::{Outcome, RequestKind};
use wire::fleet::ChannelId;
use wire::jsonrpc::IncomingId;
use workspace::AgentTerminals;

/// The number of commands that may wait for a session. Beyond it, requests fail with 503.
const MAX_QUEUED_COMMANDS: usize = 64;
/// The number of events of terminals that may wait for a session. Beyond it, the output of the terminals waits.
const MAX_QUEUED_TERMINAL_EVENTS: usize = 8;

fn owner(record: &SessionRecord) -> Principal {
    Principal {
        user: record.owner.clone(),
        scopes: Scope::ALL.iter().copied().collect(),
        folders: GrantedFolders::default(),
        is_local: false,
    }
}

impl Actor {
    pub(crate) fn new(
        context: &Context,
        log: SessionLog,
        record: SessionRecord,
        origin: Origin,
    ) -> (Self, ActorEntry) {
        let mut journal = Journal::new(log, context.ids.clone(), record, &context.quotas);
        journal.begin_title(origin);
        Self::with_journal(context, journal)
    }

    fn with_journal(context: &Context, journal: Journal) -> (Self, ActorEntry) {
        let (sender, commands) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let (ends, turn_ends) = watch::channel(0);
        let (completer, completions) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let (events, terminal_events) = mpsc::channel(MAX_QUEUED_TERMINAL_EVENTS);
        let terminals = AgentTerminals::new(events, context.scrollback_budget.clone());
        let now = Instant::now();
        let entry = ActorEntry {
            commands: sender,
            log: journal.log().clone(),
            turn_ends,
            stopped: CancellationToken::new(),
            visible: AtomicBool::new(true),
        };
        let binding = Binding::new(
            context.agent_spec(journal.record()),
            owner(journal.record()),
            now,
        );
        let session = journal.session();
        let agent = &journal.record().agent;
        let actor = Self {
            context: context.clone(),
            // The actor outlives the request that loads it.
            span: Arc::new(tracing::error_span!(parent: None, "session", %session, %agent)),
            turns: Turns::new(ends, now),
            binding,
            requests: Requests::new(
                Work::new(completer, &context.limits),
                terminals,
                context.audit.clone(),
            ),
            commands,
            has_handles: true,
            commits: journal.log().commits(),
            disk_space: context.log.disk_space(),
            completions,
            terminal_events,
            last_command_at: now,
            drain_at: None,
            stopping: false,
            crashes: CrashBackoff::default(),
            counted: metrics().sessions(journal.state().into()),
            journal,
        };
        (actor, entry)
    }

    /// Loads a session. `None` if it does not exist, or does not belong to this user. `restore`: queued prompts may run.
    pub(crate) async fn load(
        context: &Context,
        user: Option<&UserId>,
        id: SessionId,
        restore: bool,
    ) -> Result<Option<(Self, ActorEntry)>, SessionError> {
        let Some(record) = context.read_session(id).await? else {
            return Ok(None);
        };
        // Loading writes to the log, which a client of a user without access must not cause.
        if user.is_some_and(|user| context.log.access(&record.owner, id, user).is_none()) {
            return Ok(None);
        }
        let log = context.log.session(&record.owner, id).await?;
        let folded = context.read::<FoldRecord>(record::session_key(id)).await?;
        let (mut journal, mut seq) =
            Journal::load(log, context.ids.clone(), record, folded, &context.quotas);
        loop {
            let runs = journal.log().read(seq, FOLD_PAGE_BYTES).await;
            let runs = runs?;
            let Some(last) = runs.last() else { break };
            seq = last.last_seq;
            journal.refold(&runs);
        }
        let (mut actor, entry) = Self::with_journal(context, journal);
        let span = Span::clone(&actor.span);
        actor.close_open_state(restore).instrument(span).await?;
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
            self.erase(record.owner.name());
            return Ok(());
        }
        if restore && self.expect_previous_process().await? {
            return Ok(());
        }
        let failed = self.restore_queue(restore).await?;
        if record.state == SessionState::Waiting {
            for request in record.open_requests {
                let stored = self
                    .context
                    .read_numbered::<RequestRecord>(id, request.number())
                    .await?;
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
            let stored = self
                .context
                .read_numbered::<TerminalRecord>(id, terminal.number())
                .await?;
            if let Some(terminal) = stored.filter(|terminal| terminal.last_seq.is_none()) {
                append_terminal_end(&mut self.journal, None, terminal, None, None);
            }
        }
        self.journal.update(|record| {
            record.open_requests.clear();
            record.open_terminals.clear();
        });
        self.turns.fail_queued(&mut self.journal, failed);
        self.append_detached(DetachedReason::Exited);
        Ok(())
    }
}

/// The ids of requests, as the agent knows them.
type RawRequests = Vec<(IncomingId, Box<RawValue>)>;

/// The number of the last requests whose answers may not have arrived. An agent has no more open requests.
const RECENT_REQUESTS: u32 = 64;

impl Actor {
    /// Prepares the session to continue with the process of its record. Returns false if that is not possible: the process
    /// then counts as ended.
    pub(super) async fn expect_previous_process(&mut self) -> Result<bool, SessionError> {
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
        let position = self.context.read::<OutputPosition>(key).await?;
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
            let prompt = queued.record.prompt_id;
            let first_seq = queued.record.first_seq;
            self.journal
                .update(|record| record.prompt_id = Some(prompt));
            self.turns.begin(queued, first_seq, Instant::now());
        }
        self.turns.fail_queued(&mut self.journal, failed);
        let channel = EarlierChannel {
            channel: id,
            offset: position.offset,
            initialize,
            call,
            requests,
        };
        self.binding.expect_previous(channel, answers);
        if let Err(error) = self.reserve() {
            self.not_continued(&error);
        }
        Ok(true)
    }

    async fn sent_prompt(&self, number: u32) -> Result<Option<Queued>, SessionError> {
        let session = self.journal.session();
        let record = self
            .context
            .read_numbered::<PromptRecord>(session, number)
            .await?;
        let Some(record) =
            record.filter(|record| record.status == PromptStatus::Running && !record.unsent)
        else {
            return Ok(None);
        };
        let blocks = prompt_blocks(self.journal.log(), record.content_seq()).await?;
        Ok(blocks.map(|blocks| Queued::restored(&self.journal, record, blocks)))
    }

    /// The requests of the agent on this channel. Opens those that wait for an answer, and returns the answers that may not
    /// have arrived.
    async fn peer_requests(
        &mut self,
        channel: ChannelId,
    ) -> Result<(RawRequests, Vec<(IncomingId, Outcome)>), SessionError> {
        let mut requests = Vec::new();
        let mut answers = Vec::new();
        let record = self.journal.record();
        let session = record.session_id;
        let last = record.last_request;
        let recent = last.saturating_sub(RECENT_REQUESTS) + 1..=last;
        let numbers: BTreeSet<u32> = record
            .open_requests
            .iter()
            .map(|request| request.number())
            .chain(recent)
            .collect();
        for number in numbers {
            let stored = self
                .context
                .read_numbered::<RequestRecord>(session, number)
                .await?;
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
}
