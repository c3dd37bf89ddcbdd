//! Loads a session's actor from its records and log, and closes everything that a crash left open.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::actor::Actor;
use super::attachment::Attachment;
use super::background_work::BackgroundWork;
use super::client_methods::ClientMethods;
use super::command::Command;
use super::context::Context;
use super::discarded::DiscardCounter;
use super::event_loop::EventLoop;
use super::metadata::MetadataIndex;
use super::record::{self, FoldRecord, RequestRecord, SessionRecord, StoredState, TerminalRecord};
use super::refusal::Refusal;
use super::restore::Restore;
use super::subagents::Subagents;
use super::terminals::Terminals;
use crate::acp::RequestKind;
use crate::agent::AgentSpec;
use crate::api::Resolution;
use crate::event::{DetachedReason, RequestResolved};
use crate::eventlog::{Records, SessionLog};
use crate::pool::{CrashBackoff, LeaseActivity};
use crate::store::Table;
use crate::transcript::SessionFold;
use crate::types::{Principal, RequestId, Scope, SessionId};

/// The handles of an actor: its command channel, its log and its state.
#[derive(Debug)]
pub(super) struct ActorEntry {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) log: SessionLog,
    /// The sequence number of the last end of a turn.
    pub(super) turn_ends: watch::Receiver<u64>,
    /// Cancelled when the actor has stopped and all of its events are durable.
    pub(super) stopped: CancellationToken,
    /// Whether clients can find the session.
    pub(super) visible: AtomicBool,
}

/// The principal on whose behalf the session leases processes.
fn owner(record: &SessionRecord) -> Principal {
    Principal {
        id: record.owner.as_str().into(),
        tenant: record.tenant(),
        scopes: Scope::ALL.into_iter().collect(),
    }
}

impl Actor {
    /// Creates an actor without a process, and its entry.
    pub(super) fn new(context: &Context, log: SessionLog, record: SessionRecord) -> (Self, ActorEntry) {
        let (sender, commands) = mpsc::channel(context.limits.max_queued_commands);
        let (ended, ends) = watch::channel(0);
        let (done, served) = mpsc::channel(context.limits.max_queued_commands);
        let (news, terminals) = mpsc::channel(context.limits.max_queued_batches);
        let inputs = EventLoop {
            commands,
            has_handles: true,
            commits: log.commits(),
            room: context.log.disk_space(),
            completions: served,
            terminal_events: terminals,
            pending_lease: None,
            lease: None,
            recall: None,
            shutdown: context.shutdown.clone(),
        };
        let slot = ActorEntry {
            commands: sender,
            log: log.clone(),
            turn_ends: ends,
            stopped: CancellationToken::new(),
            visible: AtomicBool::new(true),
        };
        let session = record.session_id;
        let actor = Self {
            context: context.clone(),
            spec: agent_spec(context, &record),
            owner: owner(&record),
            log,
            record,
            stored_index_key: None,
            stored_agent_session_key: None,
            metadata_index: MetadataIndex::empty(),
            quota: context.quotas.take(session),
            fold: SessionFold::default(),
            fold_changed: true,
            unsaved_events: 0,
            event_loop: inputs,
            attachment: Attachment::Detached,
            restore: Restore::default(),
            live_guard: None,
            attach_waiters: Vec::new(),
            create_waiter: None,
            turn: None,
            last_turn: None,
            background_work: BackgroundWork::new(),
            subagents: Subagents::default(),
            discarded: DiscardCounter::default(),
            queue: VecDeque::new(),
            requests: BTreeMap::new(),
            resolved: VecDeque::new(),
            outbox: VecDeque::new(),
            elicitations: VecDeque::new(),
            client_methods: ClientMethods::new(done, &context.limits),
            terminals: Terminals::new(news),
            queued_calls: Vec::new(),
            sent_calls: HashMap::new(),
            turn_ends: ended,
            drain_at: None,
            retry_at: None,
            idle_since: Instant::now(),
            replaced_processes: 0,
            crashes: CrashBackoff::default(),
            last_command_at: Instant::now(),
            stopping: false,
            reported_activity: LeaseActivity::Busy,
            erased: false,
        };
        (actor, slot)
    }

    /// Loads a session. `None` if it does not exist. `restore`: queued prompts may run.
    pub(super) async fn load(
        context: &Context,
        id: SessionId,
        restore: bool,
    ) -> Result<Option<(Self, ActorEntry)>, Refusal> {
        let key = record::session_key(id);
        let Some(record) = read_record::<SessionRecord>(context, Table::Session, key.clone()).await? else {
            return Ok(None);
        };
        let log =
            context.log.session(&record.tenant(), id).await.map_err(|error| Refusal::internal(&error))?;
        let folded = read_record::<FoldRecord>(context, Table::Fold, key).await?;
        let (mut actor, slot) = Self::new(context, log, record);
        actor.stored_index_key = Some(actor.record.index_key());
        actor.stored_agent_session_key = actor.record.agent_session_key();
        actor.metadata_index = MetadataIndex::of(&actor.record);
        let mut seq = 0;
        if let Some(folded) = folded {
            (actor.fold, actor.fold_changed) = (folded.fold, false);
            // Up to the position in the session's record, no event has changed the fold.
            seq = folded.seq.max(actor.record.seq);
        }
        actor.fold_from(seq).await?;
        actor.close_open_state(restore).await?;
        Ok(Some((actor, slot)))
    }

    /// Folds the events that were appended after the record was written.
    async fn fold_from(&mut self, mut seq: u64) -> Result<(), Refusal> {
        loop {
            let page = self.context.limits.store_page_bytes;
            let runs = self.log.read(seq, page).await.map_err(|error| Refusal::internal(&error))?;
            let Some(last) = runs.last() else { return Ok(()) };
            seq = last.last_seq;
            for run in &runs {
                for event in run.events() {
                    self.fold_changed |= self.fold.event(&event);
                }
            }
        }
    }

    /// Closes the turn, the requests and the process that a crash left open. Each gets exactly one end.
    /// Prompts that were not sent to the agent return to the queue.
    ///
    /// Another crash can interrupt this between any two commits. The session's record lists each open item
    /// until its end is committed, and items that have an end are skipped.
    async fn close_open_state(&mut self, restore: bool) -> Result<(), Refusal> {
        let id = self.record.session_id;
        if self.record.unfinished {
            self.erase(&self.record.owner.clone());
            return Ok(());
        }
        let failed = self.restore_queue(restore).await?;
        if self.record.state == StoredState::Waiting {
            for (number, record) in self.open_requests().await? {
                self.expire_request(number, record);
            }
        }
        for terminal in self.record.open_terminals.clone() {
            let key = record::terminal_key(id, terminal);
            match read_record::<TerminalRecord>(&self.context, Table::Terminal, key).await? {
                Some(record) if record.last_seq.is_none() => self.close_lost_terminal(record),
                Some(_) | None => {}
            }
        }
        self.fail_queued(failed);
        if self.record.attached {
            self.append_detached(DetachedReason::Exited);
        }
        Ok(())
    }

    /// Expires a request, because its process is gone.
    fn expire_request(&mut self, number: RequestId, record: RequestRecord) {
        let Some(pending) = record.pending else { return };
        let record = RequestRecord::resolved(Resolution::Expired, record.by);
        let mut records = Records::default();
        record.put(self.record.session_id, number, &mut records);
        let outcome = RequestKind::from_method(&pending.method).cancelled_reply();
        let event = RequestResolved {
            request_id: number,
            method: &pending.method,
            resolution: Resolution::Expired,
            by: None,
            result: outcome.as_deref().ok(),
            error: outcome.as_deref().err().map(|error| &**error),
        };
        self.append(pending.prompt_id, &event, records);
    }

    async fn open_requests(&self) -> Result<Vec<(RequestId, RequestRecord)>, Refusal> {
        let mut open = Vec::new();
        for request in self.record.open_requests.iter().copied() {
            let key = record::request_key(self.record.session_id, request);
            match read_record::<RequestRecord>(&self.context, Table::Request, key).await? {
                Some(record) if record.resolution.is_none() => open.push((request, record)),
                Some(_) | None => {}
            }
        }
        Ok(open)
    }
}

/// The current configuration of the session's agent.
pub(super) fn agent_spec(context: &Context, record: &SessionRecord) -> Arc<AgentSpec> {
    let spec = context.catalogue.agent(&record.agent);
    spec.unwrap_or_else(|| Arc::new(AgentSpec::removed(record.agent.clone())))
}

/// Reads and decodes a record.
pub(super) async fn read_record<T: serde::de::DeserializeOwned>(
    context: &Context,
    table: Table,
    key: Vec<u8>,
) -> Result<Option<T>, Refusal> {
    let stored = context.log.get(table, key).await.map_err(|error| Refusal::internal(&error))?;
    stored.map(|bytes| record::decode(&bytes).map_err(|error| Refusal::internal(&error))).transpose()
}
