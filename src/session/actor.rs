//! The actor of a session: one task that owns all state of the session and blocks only in its event loop.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::attachment::{AttachWaiter, Attachment};
use super::background_work::BackgroundWork;
use super::changes::PendingCall;
use super::client_methods::ClientMethods;
use super::command::{Command, Reply};
use super::committed;
use super::context::{Context, LiveGuard};
use super::creation::CreateWaiter;
use super::discarded::DiscardCounter;
use super::event_loop::{EventLoop, WakeConditions, Wakeup};
use super::list;
use super::metadata::MetadataIndex;
use super::quota::Quota;
use super::record::{FoldRecord, SessionRecord, put_open};
use super::recovery::agent_spec;
use super::refusal::Refusal;
use super::requests::{Pending, QueuedAnswer, Resolved};
use super::restore::Restore;
use super::subagents::Subagents;
use super::terminals::Terminals;
use super::turn::{Queued, Turn};
use crate::agent::AgentSpec;
use crate::api::{Session, SessionState};
use crate::event::{DetachedReason, EncodedEvent};
use crate::eventlog::{DiskSpace, Records, SessionLog};
use crate::jsonrpc::CallId;
use crate::pool::{CrashBackoff, LeaseActivity};
use crate::transcript::SessionFold;
use crate::types::{Principal, PromptId, RequestId};

pub(super) struct Actor {
    pub(super) context: Context,
    /// The agent's configuration: that of the attached process, otherwise the current one in the catalogue.
    pub(super) spec: Arc<AgentSpec>,
    /// The principal on whose behalf the session leases processes.
    pub(super) owner: Principal,
    pub(super) log: SessionLog,
    pub(super) record: SessionRecord,
    /// The session's key in the list index, as last written.
    pub(super) stored_index_key: Option<Vec<u8>>,
    /// The key of the agent's session id in the store, as last written.
    pub(super) stored_agent_session_key: Option<Vec<u8>>,
    /// The session's entries in the metadata index.
    pub(super) metadata_index: MetadataIndex,
    pub(super) quota: Quota,
    pub(super) fold: SessionFold,
    /// Whether the fold changed after its record was written.
    pub(super) fold_changed: bool,
    /// The number of events since the session's record was written.
    pub(super) unsaved_events: usize,
    pub(super) event_loop: EventLoop,
    pub(super) attachment: Attachment,
    pub(super) restore: Restore,
    pub(super) live_guard: Option<LiveGuard>,
    /// Clients that wait for a process without a turn.
    pub(super) attach_waiters: Vec<AttachWaiter>,
    pub(super) create_waiter: Option<CreateWaiter>,
    pub(super) turn: Option<Turn>,
    /// The last turn that ended on this process. Updates that arrive after its end belong to it.
    pub(super) last_turn: Option<PromptId>,
    pub(super) background_work: BackgroundWork,
    /// The child sessions that the agent runs on this process.
    pub(super) subagents: Subagents,
    /// Counts updates that cannot be shown to clients.
    pub(super) discarded: DiscardCounter,
    pub(super) queue: VecDeque<Queued>,
    pub(super) requests: BTreeMap<RequestId, Pending>,
    /// The requests that were resolved last, for clients that answer too late.
    pub(super) resolved: VecDeque<Resolved>,
    /// Answers that wait for the commit of their event.
    pub(super) outbox: VecDeque<QueuedAnswer>,
    /// The URLs that the agent asked a user to visit and has not reported as completed.
    pub(super) elicitations: VecDeque<String>,
    /// File and terminal requests that the gateway serves to the agent.
    pub(super) client_methods: ClientMethods,
    pub(super) terminals: Terminals,
    /// Calls that wait for a process. `sent_calls` are the calls that wait for the agent's response.
    pub(super) queued_calls: Vec<PendingCall>,
    pub(super) sent_calls: HashMap<CallId, PendingCall>,
    /// Notifies waiters of the end of a turn.
    pub(super) turn_ends: watch::Sender<u64>,
    pub(super) drain_at: Option<Instant>,
    /// When the head of the queue is retried after a limit refused it.
    pub(super) retry_at: Option<Instant>,
    /// When the process was last needed.
    pub(super) idle_since: Instant,
    /// The number of processes that were dead when the session needed them, since it last used a process.
    pub(super) replaced_processes: u32,
    /// Crashes of the agent during turns of this session.
    pub(super) crashes: CrashBackoff,
    pub(super) last_command_at: Instant,
    pub(super) stopping: bool,
    /// The activity of this lease that was last reported to the pool.
    pub(super) reported_activity: LeaseActivity,
    /// Whether the session was deleted. Commands that arrive later get no reply.
    pub(super) erased: bool,
}

impl Actor {
    /// Runs until the session is unloaded. Returns the commands that arrived too late, for the next actor.
    pub(super) async fn run(mut self) -> Vec<Command> {
        // Loading found that an interrupted import never completed, and erased the session.
        if self.erased {
            return self.shut_down().await;
        }
        // Begin the prompts that an earlier actor left in the queue.
        self.next_queued();
        loop {
            let listen = WakeConditions {
                batches: self.log.pending_bytes() < self.context.limits.max_uncommitted_bytes
                    && !self.pauses_output(),
                commits: self.waits_for_commit(),
                draining: self.drain_at.is_none(),
                deadline: self.next_deadline(),
            };
            let wake = self.event_loop.next_wakeup(listen).await;
            if let Some(turn) = self.turn.as_mut().filter(|_| !listen.batches) {
                // The agent's output is not read now, so its silence must not count against it.
                turn.last_activity = Instant::now();
            }
            match wake {
                Wakeup::Command(Some(command)) => self.handle_command(command),
                // Every handle is dropped. Running work continues to its end.
                Wakeup::Command(None) => {
                    self.event_loop.has_handles = false;
                    self.stopping = true;
                }
                Wakeup::Lease(lease) => self.leased(*lease),
                Wakeup::Batch(Some(batch)) => {
                    self.handle_batch(batch);
                    // Yield, so that an agent that floods does not occupy a thread that other sessions need.
                    tokio::task::yield_now().await;
                }
                Wakeup::Batch(None) => self.stdout_closed().await,
                Wakeup::Committed | Wakeup::StorageRoom => {}
                Wakeup::Completion(served) => self.request_completed(served),
                Wakeup::Terminal(news) => {
                    self.handle_terminal_event(news);
                    // A terminal can flood as well.
                    tokio::task::yield_now().await;
                }
                Wakeup::Recalled => self.detach_if_idle(DetachedReason::Reclaimed),
                Wakeup::Deadline => self.check_deadlines(),
                Wakeup::Draining => self.drain(),
            }
            self.enforce_quota();
            self.flush();
            if self.stopping && self.event_loop.lease.is_none() && self.attach_waiters.is_empty() {
                break;
            }
        }
        self.shut_down().await
    }

    async fn shut_down(mut self) -> Vec<Command> {
        self.event_loop.commands.close();
        if !self.erased {
            self.store_quota();
        }
        let mut unanswered = Vec::new();
        while let Some(command) = self.event_loop.commands.recv().await {
            unanswered.push(command);
        }
        // The next actor reads from the store, so everything that was appended must be committed.
        drop(self.log.wait(self.log.appended()).await);
        if !self.erased {
            self.save_unsent().await;
            return unanswered;
        }
        if self.record.own_folder && !self.folder_in_use().await {
            let (workspaces, id) = (self.context.workspaces.clone(), self.record.folder_id());
            let erased = self
                .context
                .shutdown
                .spawn_blocking(move || workspaces.remove_directory(&id.to_string()))
                .await;
            if !matches!(erased, Ok(Ok(()))) {
                tracing::warn!(session = %id, "could not remove the folder of a deleted session");
            }
        }
        Vec::new()
    }

    /// Whether a fork or its parent still uses the folder. Returns true if the lookup fails.
    async fn folder_in_use(&self) -> bool {
        if !self.record.shared_folder {
            return false;
        }
        let others = list::has_session_in(&self.context, &self.record.tenant(), &self.record.cwd).await;
        others.unwrap_or(true)
    }

    fn handle_command(&mut self, command: Command) {
        if self.erased {
            return;
        }
        self.last_command_at = Instant::now();
        if self.event_loop.lease.is_none() {
            self.spec = agent_spec(&self.context, &self.record);
        }
        match command {
            Command::Create(creating) => self.create(creating),
            Command::Snapshot { reply } => send_reply(reply, Ok((self.snapshot(), self.log.appended()))),
            Command::Patch { by, patch, if_match, reply } => {
                let outcome = self.patch(&by, &patch, if_match.as_deref());
                send_reply(reply, outcome.map(|seq| (self.snapshot(), seq)));
            }
            Command::Attach { trace, reply } => {
                let deadline = Instant::now() + self.context.limits.settings_queue_timeout;
                self.attach(AttachWaiter { trace, reply, deadline });
            }
            Command::Close { by, trace, reply } => {
                let seq = self.close(&by, trace.as_ref());
                send_reply(reply, Ok(seq));
            }
            Command::Delete { by, trace, reply } => {
                let seq = self.delete(&by, trace);
                send_reply(reply, Ok(seq));
            }
            Command::Prompt { by, blocks, queue, trace, key, reply } => {
                let outcome = self.prompt(&by, blocks, queue, trace, key.as_ref());
                send_reply(reply, outcome);
            }
            Command::Cancel { prompt, trace, reply } => {
                let outcome = self.cancel(prompt, trace.as_ref());
                send_reply(reply, outcome.map(|cancelled| (cancelled, self.log.appended())));
            }
            Command::Requests { reply } => {
                let pending = self.requests.values().map(|pending| (*pending.request).clone()).collect();
                send_reply(reply, Ok((pending, self.log.appended())));
            }
            Command::Pending { request, reply } => send_reply(reply, self.pending(request)),
            Command::Answer { by, request, outcome, reply } => {
                let outcome = self.answer(&by, request, outcome);
                send_reply(reply, outcome);
            }
            Command::Call { by, call: client_call, trace, reply } => {
                self.queue_call(by, client_call, trace, reply);
            }
            Command::KillTerminal { terminal, reply } => {
                let outcome = self.kill_terminal(terminal);
                send_reply(reply, outcome);
            }
            Command::Stderr { reply } => {
                let tail = self.event_loop.lease.as_ref().map(|lease| lease.process().stderr());
                send_reply(reply, Ok(tail.unwrap_or_default()));
            }
        }
    }

    /// Appends an event. [`Actor::with_session_records`] saves the changed state in the same commit.
    pub(super) fn append(
        &mut self,
        prompt: Option<PromptId>,
        event: impl Into<EncodedEvent>,
        records: Records,
    ) -> u64 {
        let event = event.into();
        let event = event.in_turn(prompt);
        self.quota.count(1, event.members.len(), Instant::now());
        self.unsaved_events += 1;
        self.log.append(&event, records)
    }

    /// Adds the session's records as of the next event. Call it right before that event is appended.
    pub(super) fn with_session_records(&mut self, mut records: Records) -> Records {
        let id = self.record.session_id;
        self.unsaved_events = 0;
        self.record.state = self.state().into();
        self.record.updated_at = self.context.ids.now();
        self.record.title = self.fold.title().map(str::to_owned);
        self.record.prompt_id = self.turn.as_ref().map(|turn| turn.record.prompt_id);
        self.record.queued = self.queue.iter().map(|queued| queued.record.prompt_id).collect();
        self.record.open_terminals = self.terminals.running().collect();
        self.record.open_requests = self.requests.keys().copied().collect();
        self.record.seq = self.log.appended() + 1;
        self.record.put(self.stored_index_key.as_deref(), &mut records);
        self.record.put_agent_session(&mut self.stored_agent_session_key, &mut records);
        self.stored_index_key = Some(self.record.index_key());
        self.metadata_index.put(&self.record, &mut records);
        // An older fold record stays exact: `SessionRecord::seq` is the position up to which it is valid.
        if std::mem::take(&mut self.fold_changed) {
            FoldRecord { seq: self.record.seq, fold: self.fold.clone() }.put(id, &mut records);
        }
        put_open(id, self.is_open(), &mut records);
        records
    }

    /// Whether a restart has to close anything of this session.
    pub(super) fn is_open(&self) -> bool {
        let works = self.turn.is_some() || !self.queue.is_empty() || !self.requests.is_empty();
        works || self.record.attached || self.record.unfinished
    }

    fn state(&self) -> SessionState {
        if self.record.is_closed() {
            SessionState::Closed
        } else if !self.requests.is_empty() {
            SessionState::Waiting
        } else if self.turn.is_some() || !self.queue.is_empty() || self.works_in_background() {
            SessionState::Running
        } else {
            SessionState::Idle
        }
    }

    pub(super) fn snapshot(&self) -> Session {
        let requests = self.requests.values().map(|pending| (*pending.request).clone()).collect();
        let last_event_id = self.log.id(self.log.appended());
        Session {
            state: self.state(),
            prompt_id: self.turn.as_ref().map(|turn| turn.record.prompt_id),
            queued: self.queue.iter().map(|queued| queued.record.prompt_id).collect(),
            ..committed::build_snapshot(&self.record, &self.fold, requests, last_event_id)
        }
    }

    /// Whether to pause the agent's output because the disk is full: the remaining space is for the ends of
    /// turns. The output stays in the agent's pipe until there is space again or the turn is cancelled.
    fn pauses_output(&self) -> bool {
        let runs = |turn: &Turn| turn.call.is_some() && turn.cancelled_at.is_none();
        *self.event_loop.room.borrow() != DiskSpace::Available && self.turn.as_ref().is_some_and(runs)
    }

    fn waits_for_commit(&self) -> bool {
        !self.outbox.is_empty()
            || self.turn.as_ref().is_some_and(|turn| turn.call.is_none())
            || self.log.pending_bytes() >= self.context.limits.max_uncommitted_bytes
    }

    /// Sends the data that has become durable.
    fn flush(&mut self) {
        self.send_answers();
        self.send_queued_calls();
        self.send_prompt();
        let standing = match self.attachment {
            Attachment::Releasing { .. } => LeaseActivity::Releasing,
            Attachment::Attached if !self.is_busy() => LeaseActivity::Idle,
            _ => LeaseActivity::Busy,
        };
        if let Some(lease) = self.event_loop.lease.as_ref().filter(|_| self.reported_activity != standing) {
            self.reported_activity = standing;
            lease.report_activity(standing);
        }
    }

    /// Whether the session needs its process now.
    pub(super) fn is_busy(&self) -> bool {
        self.turn.is_some()
            || !self.requests.is_empty()
            || !self.sent_calls.is_empty()
            || !self.queued_calls.is_empty()
            || self.client_methods.is_busy()
            || self.terminals.is_busy()
            || self.works_in_background()
    }

    fn next_deadline(&self) -> Option<Instant> {
        [
            self.turn_deadline(),
            self.attach_deadline(),
            self.replay_deadline(),
            self.request_deadline(),
            self.call_deadline(),
            self.background_deadline(),
            self.work_deadline(),
            self.terminal_deadline(),
            self.unload_at(),
            self.retry_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        self.check_turn_deadline(now);
        self.check_attach_deadline(now);
        self.check_replay_deadline(now);
        self.expire_requests(now);
        self.check_call_deadlines(now);
        self.check_background_deadlines(now);
        self.check_terminal_deadline(now);
        if self.retry_at.is_some_and(|at| now >= at) {
            self.next_queued();
        }
        if self.unload_at().is_some_and(|at| now >= at) {
            self.stopping = true;
        }
    }

    /// Begins the drain. A running turn has a limited time to end before it is cancelled. Prompts that were
    /// not sent to the agent wait for the next start.
    pub(super) fn drain(&mut self) {
        self.drain_at = Some(Instant::now() + self.context.limits.drain_timeout);
        self.return_unsent();
        if self.turn.is_none() {
            self.detach_for_drain();
        }
    }
}

/// Sends a reply. The receiver may be gone; then nothing needs the reply.
pub(super) fn send_reply<T>(reply: Reply<T>, outcome: Result<T, Refusal>) {
    drop(reply.send(outcome));
}
