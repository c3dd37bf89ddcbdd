//! A session's owner: one task that holds all of its state, and never waits for anything but its inputs.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::attachment::{AttachWaiter, Attachment};
use super::changes::PendingCall;
use super::command::{Command, Reply};
use super::committed;
use super::context::{Context, LiveGuard};
use super::creation::CreateWaiter;
use super::discarded::DiscardCounter;
use super::background_work::BackgroundWork;
use super::event_loop::{EventLoop, WakeConditions, Wakeup};
use super::list;
use super::metadata::MetadataIndex;
use super::quota::Quota;
use super::record::{FoldRecord, SessionRecord, put_open};
use super::recovery::agent_spec;
use super::refusal::Refusal;
use super::requests::{QueuedAnswer, Pending, Resolved};
use super::restore::Restore;
use super::client_methods::ClientMethods;
use super::subagents::Subagents;
use super::terminals::Terminals;
use super::turn::{Queued, Turn};
use super::encode::EncodedEvent;
use crate::agent::AgentSpec;
use crate::api::event::DetachedReason;
use crate::api::{Session, SessionState};
use crate::eventlog::{Event, Members, Records, DiskSpace, SessionLog};
use crate::jsonrpc::CallId;
use crate::pool::{CrashBackoff, LeaseActivity};
use crate::transcript::SessionFold;
use crate::types::{Principal, PromptId, RequestId};

pub(super) struct Actor {
    pub(super) context: Context,
    /// The agent's entry: that of the process while there is one, else what the catalogue has.
    pub(super) spec: Arc<AgentSpec>,
    /// On whose behalf processes are leased.
    pub(super) owner: Principal,
    pub(super) log: SessionLog,
    pub(super) record: SessionRecord,
    /// Where the session stands in the list, as last written.
    pub(super) stored_index_key: Option<Vec<u8>>,
    /// Under which key the agent's own id of the session is noted, as last written.
    pub(super) stored_agent_session_key: Option<Vec<u8>>,
    /// The entries of its metadata in the index.
    pub(super) metadata_index: MetadataIndex,
    pub(super) quota: Quota,
    pub(super) fold: SessionFold,
    /// Since its record was written.
    pub(super) fold_changed: bool,
    /// Events since the session's record was written.
    pub(super) unsaved_events: usize,
    pub(super) event_loop: EventLoop,
    pub(super) attachment: Attachment,
    pub(super) restore: Restore,
    pub(super) live_guard: Option<LiveGuard>,
    /// Those who wait for a process without a turn.
    pub(super) attach_waiters: Vec<AttachWaiter>,
    pub(super) create_waiter: Option<CreateWaiter>,
    pub(super) turn: Option<Turn>,
    /// The turn that ended on this process: what still comes belongs to it.
    pub(super) last_turn: Option<PromptId>,
    pub(super) background_work: BackgroundWork,
    /// The child sessions that the agent runs on this process.
    pub(super) subagents: Subagents,
    /// Updates that nobody can be shown.
    pub(super) discarded: DiscardCounter,
    pub(super) queue: VecDeque<Queued>,
    pub(super) requests: BTreeMap<RequestId, Pending>,
    /// The last that were resolved, for those who come second.
    pub(super) resolved: VecDeque<Resolved>,
    /// Answers that wait for their commit.
    pub(super) outbox: VecDeque<QueuedAnswer>,
    /// Pages that the agent sent somebody to and has not told the end of.
    pub(super) elicitations: VecDeque<String>,
    /// Files and terminals that the gateway serves to the agent.
    pub(super) client_methods: ClientMethods,
    pub(super) terminals: Terminals,
    /// Settings that wait for a process, and those that wait for the agent's answer.
    pub(super) queued_calls: Vec<PendingCall>,
    pub(super) sent_calls: HashMap<CallId, PendingCall>,
    /// Tells that a turn has ended.
    pub(super) turn_ends: watch::Sender<u64>,
    pub(super) drain_at: Option<Instant>,
    /// When the head of the queue is tried again, which a limit refused.
    pub(super) retry_at: Option<Instant>,
    /// When the process was last needed, and when anybody last asked for anything.
    pub(super) idle_since: Instant,
    /// Processes that were dead when the session needed them, since it last used one.
    pub(super) replaced_processes: u32,
    /// Crashes of the agent in turns of this session.
    pub(super) crashes: CrashBackoff,
    pub(super) last_command_at: Instant,
    pub(super) stopping: bool,
    /// What the pool was told of this lease.
    pub(super) reported_activity: LeaseActivity,
    /// Nothing of it is left; whoever still asks finds nobody.
    pub(super) erased: bool,
}

impl Actor {
    /// Runs to the session's end in memory. What was asked too late is given back, for the next owner.
    pub(super) async fn run(mut self) -> Vec<Command> {
        // A restart has found that it never became whole.
        if self.erased {
            return self.shut_down().await;
        }
        // Prompts that an earlier owner left in the queue.
        self.next_queued();
        loop {
            let listen = WakeConditions {
                batches: self.log.pending_bytes() < self.context.limits.pending_bytes && !self.pauses_output(),
                commits: self.waits_for_commit(),
                draining: self.drain_at.is_none(),
                deadline: self.next_deadline(),
            };
            let wake = self.event_loop.next_wakeup(listen).await;
            if let Some(turn) = self.turn.as_mut().filter(|_| !listen.batches) {
                // Nobody listens to the agent: its silence is ours.
                turn.last_activity = Instant::now();
            }
            match wake {
                Wakeup::Command(Some(command)) => self.handle_command(command),
                // Every handle is gone; what runs goes on to its end.
                Wakeup::Command(None) => {
                    self.event_loop.has_handles = false;
                    self.stopping = true;
                }
                Wakeup::Lease(lease) => self.leased(*lease),
                Wakeup::Batch(Some(batch)) => {
                    self.handle_batch(batch);
                    // An agent that floods must not keep a thread that other sessions wait for.
                    tokio::task::yield_now().await;
                }
                Wakeup::Batch(None) => self.stdout_closed().await,
                Wakeup::Committed | Wakeup::StorageRoom => {}
                Wakeup::Completion(served) => self.request_completed(served),
                Wakeup::Terminal(news) => {
                    self.handle_terminal_event(news);
                    // Nor one that writes without end.
                    tokio::task::yield_now().await;
                }
                Wakeup::Recalled => self.detach_if_idle(DetachedReason::Recycled),
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
        // What was appended is committed before the next owner reads it.
        drop(self.log.wait(self.log.appended()).await);
        if !self.erased {
            self.save_unsent().await;
            return unanswered;
        }
        if self.record.own_folder && !self.folder_in_use().await {
            let (workspaces, id) = (self.context.workspaces.clone(), self.record.folder_id());
            let erased =
                self.context.shutdown.spawn_blocking(move || workspaces.remove_directory(&id.to_string())).await;
            if !matches!(erased, Ok(Ok(()))) {
                tracing::warn!(session = %id, "a deleted session's folder could not be removed");
            }
        }
        Vec::new()
    }

    /// A fork or its parent is still there, or that cannot be told.
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
                let deadline = Instant::now() + self.context.limits.settings_wait;
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
            Command::Call { by, call: wish, trace, reply } => self.queue_call(by, wish, trace, reply),
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

    /// Appends an event. Whatever it changed is saved in the same commit with [`Actor::saved`].
    pub(super) fn append(
        &mut self,
        prompt: Option<PromptId>,
        event: impl Into<EncodedEvent>,
        records: Records,
    ) -> u64 {
        let EncodedEvent { kind, members } = event.into();
        self.quota.count(1, members.len(), Instant::now());
        self.unsaved_events += 1;
        self.log.append(&Event { kind, prompt, members: Members::whole(&members) }, records)
    }

    /// The session's records as they are with the next event. To be called right before it is appended.
    pub(super) fn with_session_records(&mut self, mut records: Records) -> Records {
        let id = self.record.session_id;
        self.unsaved_events = 0;
        self.record.state = self.state();
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
        // An older one is still exact: the session's record says up to where.
        if std::mem::take(&mut self.fold_changed) {
            FoldRecord { seq: self.record.seq, fold: self.fold.clone() }.put(id, &mut records);
        }
        put_open(id, self.is_open(), &mut records);
        records
    }

    /// A restart has to close what is open now.
    pub(super) fn is_open(&self) -> bool {
        let works = self.turn.is_some() || !self.queue.is_empty() || !self.requests.is_empty();
        works || self.record.attached || self.record.unfinished
    }

    fn state(&self) -> SessionState {
        if self.record.state == SessionState::Closed {
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

    /// A full disk has room for the ends of turns only. The output of a turn stays in the agent's pipe until there is room
    /// again, or the turn is cancelled.
    fn pauses_output(&self) -> bool {
        let runs = |turn: &Turn| turn.call.is_some() && turn.cancelled_at.is_none();
        *self.event_loop.room.borrow() != DiskSpace::Available && self.turn.as_ref().is_some_and(runs)
    }

    fn waits_for_commit(&self) -> bool {
        !self.outbox.is_empty()
            || self.turn.as_ref().is_some_and(|turn| turn.call.is_none())
            || self.log.pending_bytes() >= self.context.limits.pending_bytes
    }

    /// Sends what has become durable.
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

    /// Something of this session needs its process now.
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

    /// Begins the drain: turns have a limited time to end, then they are cancelled. Prompts that were not sent to the agent wait
    /// for the next start.
    pub(super) fn drain(&mut self) {
        self.drain_at = Some(Instant::now() + self.context.limits.drain);
        self.return_unsent();
        if self.turn.is_none() {
            self.detach_for_drain();
        }
    }
}

/// Whoever asked may be gone; then nobody needs the answer.
pub(super) fn send_reply<T>(reply: Reply<T>, outcome: Result<T, Refusal>) {
    drop(reply.send(outcome));
}
