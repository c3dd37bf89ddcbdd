//! The actor of a session: one task that owns all state of the session and blocks only in its event loop.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::attachment::{Attaching, Attachment};
use super::changes::Setting;
use super::command::{Command, Reply};
use super::committed;
use super::context::{Context, Live};
use super::creation::Creating;
use super::dropped::Dropped;
use super::foreground::Foreground;
use super::inputs::{Inputs, Listen, Wake};
use super::list;
use super::metadata::MetadataIndex;
use super::quota::Quota;
use super::record::{FoldRecord, SessionRecord, put_open};
use super::recovery::entry;
use super::refusal::Refusal;
use super::requests::{Answered, Pending, Resolved};
use super::restore::Restore;
use super::serve::Serving;
use super::subagents::Subagents;
use super::terminals::Terminals;
use super::turn::{Queued, Turn};
use super::written::Written;
use crate::agent::AgentSpec;
use crate::api::event::DetachedReason;
use crate::api::{Session, SessionState};
use crate::eventlog::{Event, Members, Records, Room, SessionLog};
use crate::jsonrpc::CallId;
use crate::pool::{Crashes, Standing};
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
    pub(super) indexed_at: Option<Vec<u8>>,
    /// The key of the agent's session id in the store, as last written.
    pub(super) named_as: Option<Vec<u8>>,
    /// The session's entries in the metadata index.
    pub(super) metadata_index: MetadataIndex,
    pub(super) quota: Quota,
    pub(super) fold: SessionFold,
    /// Whether the fold changed after its record was written.
    pub(super) fold_changed: bool,
    /// The number of events since the session's record was written.
    pub(super) unsaved: usize,
    pub(super) inputs: Inputs,
    pub(super) attachment: Attachment,
    pub(super) restore: Restore,
    pub(super) live: Option<Live>,
    /// Clients that wait for a process without a turn.
    pub(super) attaching: Vec<Attaching>,
    pub(super) creating: Option<Creating>,
    pub(super) turn: Option<Turn>,
    /// The last turn that ended on this process. Updates that arrive after its end belong to it.
    pub(super) late_of: Option<PromptId>,
    pub(super) foreground: Foreground,
    /// The child sessions that the agent runs on this process.
    pub(super) subagents: Subagents,
    /// Counts updates that cannot be shown to clients.
    pub(super) dropped: Dropped,
    pub(super) queue: VecDeque<Queued>,
    pub(super) requests: BTreeMap<RequestId, Pending>,
    /// The requests that were resolved last, for clients that answer too late.
    pub(super) resolved: VecDeque<Resolved>,
    /// Answers that wait for the commit of their event.
    pub(super) outbox: VecDeque<Answered>,
    /// The URLs that the agent asked a user to visit and has not reported as completed.
    pub(super) elicitations: VecDeque<String>,
    /// File and terminal requests that the gateway serves to the agent.
    pub(super) serving: Serving,
    pub(super) terminals: Terminals,
    /// Calls that wait for a process. `sent_calls` are the calls that wait for the agent's response.
    pub(super) wanted: Vec<Setting>,
    pub(super) settings: HashMap<CallId, Setting>,
    /// Notifies waiters of the end of a turn.
    pub(super) ended: watch::Sender<u64>,
    pub(super) drain_at: Option<Instant>,
    /// When the head of the queue is retried after a limit refused it.
    pub(super) retry_at: Option<Instant>,
    /// When the process was last needed.
    pub(super) idle_since: Instant,
    /// The number of processes that were dead when the session needed them, since it last used a process.
    pub(super) replaced: u32,
    /// Crashes of the agent during turns of this session.
    pub(super) crashes: Crashes,
    pub(super) asked_at: Instant,
    pub(super) over: bool,
    /// The activity of this lease that was last reported to the pool.
    pub(super) told: Standing,
    /// Whether the session was deleted. Commands that arrive later get no reply.
    pub(super) erased: bool,
}

impl Actor {
    /// Runs until the session is unloaded. Returns the commands that arrived too late, for the next actor.
    pub(super) async fn run(mut self) -> Vec<Command> {
        // Loading found that an interrupted import never completed, and erased the session.
        if self.erased {
            return self.wind_up().await;
        }
        // Begin the prompts that an earlier actor left in the queue.
        self.next_queued();
        loop {
            let listen = Listen {
                batches: self.log.pending_bytes() < self.context.limits.pending_bytes && !self.saves_room(),
                commits: self.waits_for_commit(),
                draining: self.drain_at.is_none(),
                until: self.deadline(),
            };
            let wake = self.inputs.wake(listen).await;
            if let Some(turn) = self.turn.as_mut().filter(|_| !listen.batches) {
                // The agent's output is not read now, so its silence must not count against it.
                turn.active = Instant::now();
            }
            match wake {
                Wake::Command(Some(command)) => self.command(command),
                // Every handle is dropped. Running work continues to its end.
                Wake::Command(None) => {
                    self.inputs.open = false;
                    self.over = true;
                }
                Wake::Lease(lease) => self.leased(*lease),
                Wake::Batch(Some(batch)) => {
                    self.batch(batch);
                    // Yield, so that an agent that floods does not occupy a thread that other sessions need.
                    tokio::task::yield_now().await;
                }
                Wake::Batch(None) => self.process_over().await,
                Wake::Committed | Wake::Room => {}
                Wake::Served(served) => self.served(served),
                Wake::Terminal(news) => {
                    self.terminal_news(news);
                    // A terminal can flood as well.
                    tokio::task::yield_now().await;
                }
                Wake::Recalled => self.leave(DetachedReason::Recycled),
                Wake::Deadline => self.deadlines(),
                Wake::Draining => self.drain(),
            }
            self.keep_quota();
            self.flush();
            if self.over && self.inputs.lease.is_none() && self.attaching.is_empty() {
                break;
            }
        }
        self.wind_up().await
    }

    async fn wind_up(mut self) -> Vec<Command> {
        self.inputs.commands.close();
        if !self.erased {
            self.leave_quota();
        }
        let mut late = Vec::new();
        while let Some(command) = self.inputs.commands.recv().await {
            late.push(command);
        }
        // The next actor reads from the store, so everything that was appended must be committed.
        drop(self.log.wait(self.log.appended()).await);
        if !self.erased {
            self.note_unsent().await;
            return late;
        }
        if self.record.own_folder && !self.others_work_here().await {
            let (workspaces, id) = (self.context.workspaces.clone(), self.record.folder_id());
            let erased =
                self.context.shutdown.spawn_blocking(move || workspaces.erase(&id.to_string())).await;
            if !matches!(erased, Ok(Ok(()))) {
                tracing::warn!(session = %id, "could not remove the folder of a deleted session");
            }
        }
        Vec::new()
    }

    /// Whether a fork or its parent still uses the folder. Returns true if the lookup fails.
    async fn others_work_here(&self) -> bool {
        if !self.record.shared_folder {
            return false;
        }
        let others = list::works_in(&self.context, &self.record.tenant(), &self.record.cwd).await;
        others.unwrap_or(true)
    }

    fn command(&mut self, command: Command) {
        if self.erased {
            return;
        }
        self.asked_at = Instant::now();
        if self.inputs.lease.is_none() {
            self.spec = entry(&self.context, &self.record);
        }
        match command {
            Command::Create(creating) => self.create(creating),
            Command::Snapshot { reply } => answer(reply, Ok((self.snapshot(), self.log.appended()))),
            Command::Patch { by, patch, if_match, reply } => {
                let outcome = self.patch(&by, &patch, if_match.as_deref());
                answer(reply, outcome.map(|seq| (self.snapshot(), seq)));
            }
            Command::Attach { trace, reply } => {
                let deadline = Instant::now() + self.context.limits.settings_wait;
                self.attach(Attaching { trace, reply, deadline });
            }
            Command::Close { by, trace, reply } => {
                let seq = self.close(&by, trace.as_ref());
                answer(reply, Ok(seq));
            }
            Command::Delete { by, trace, reply } => {
                let seq = self.delete(&by, trace);
                answer(reply, Ok(seq));
            }
            Command::Prompt { by, blocks, queue, trace, key, reply } => {
                let outcome = self.prompt(&by, blocks, queue, trace, key.as_ref());
                answer(reply, outcome);
            }
            Command::Cancel { prompt, trace, reply } => {
                let outcome = self.cancel(prompt, trace.as_ref());
                answer(reply, outcome.map(|cancelled| (cancelled, self.log.appended())));
            }
            Command::Requests { reply } => {
                let pending = self.requests.values().map(|pending| (*pending.shown).clone()).collect();
                answer(reply, Ok((pending, self.log.appended())));
            }
            Command::Pending { request, reply } => answer(reply, self.pending(request)),
            Command::Answer { by, request, outcome, reply } => {
                let outcome = self.answer(&by, request, outcome);
                answer(reply, outcome);
            }
            Command::Set { by, wish, trace, reply } => self.set(by, wish, trace, reply),
            Command::KillTerminal { terminal, reply } => {
                let outcome = self.kill_terminal(terminal);
                answer(reply, outcome);
            }
            Command::Stderr { reply } => {
                let tail = self.inputs.lease.as_ref().map(|lease| lease.process().stderr());
                answer(reply, Ok(tail.unwrap_or_default()));
            }
        }
    }

    /// Appends an event. [`Actor::with_session_records`] saves the changed state in the same commit.
    pub(super) fn append(
        &mut self,
        prompt: Option<PromptId>,
        event: impl Into<Written>,
        records: Records,
    ) -> u64 {
        let Written { kind, members } = event.into();
        self.quota.count(1, members.len(), Instant::now());
        self.unsaved += 1;
        self.log.append(&Event { kind, prompt, members: Members::whole(&members) }, records)
    }

    /// Adds the session's records as of the next event. Call it right before that event is appended.
    pub(super) fn saved(&mut self, mut records: Records) -> Records {
        let id = self.record.session_id;
        self.unsaved = 0;
        self.record.state = self.state();
        self.record.updated_at = self.context.ids.now();
        self.record.title = self.fold.title().map(str::to_owned);
        self.record.prompt_id = self.turn.as_ref().map(|turn| turn.record.prompt_id);
        self.record.queued = self.queue.iter().map(|queued| queued.record.prompt_id).collect();
        self.record.open_terminals = self.terminals.running().collect();
        self.record.open_requests = self.requests.keys().copied().collect();
        self.record.seq = self.log.appended() + 1;
        self.record.put(self.indexed_at.as_deref(), &mut records);
        self.record.put_agent_session(&mut self.named_as, &mut records);
        self.indexed_at = Some(self.record.index_key());
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
        if self.record.state == SessionState::Closed {
            SessionState::Closed
        } else if !self.requests.is_empty() {
            SessionState::Waiting
        } else if self.turn.is_some() || !self.queue.is_empty() || self.works_alone() {
            SessionState::Running
        } else {
            SessionState::Idle
        }
    }

    pub(super) fn snapshot(&self) -> Session {
        let requests = self.requests.values().map(|pending| (*pending.shown).clone()).collect();
        let last_event_id = self.log.id(self.log.appended());
        Session {
            state: self.state(),
            prompt_id: self.turn.as_ref().map(|turn| turn.record.prompt_id),
            queued: self.queue.iter().map(|queued| queued.record.prompt_id).collect(),
            ..committed::shown(&self.record, &self.fold, requests, last_event_id)
        }
    }

    /// Whether to pause the agent's output because the disk is full: the remaining space is for the ends of
    /// turns. The output stays in the agent's pipe until there is space again or the turn is cancelled.
    fn saves_room(&self) -> bool {
        let runs = |turn: &Turn| turn.call.is_some() && turn.cancelled_at.is_none();
        *self.inputs.room.borrow() != Room::Free && self.turn.as_ref().is_some_and(runs)
    }

    fn waits_for_commit(&self) -> bool {
        !self.outbox.is_empty()
            || self.turn.as_ref().is_some_and(|turn| turn.call.is_none())
            || self.log.pending_bytes() >= self.context.limits.pending_bytes
    }

    /// Sends the data that has become durable.
    fn flush(&mut self) {
        self.send_answers();
        self.send_settings();
        self.send_prompt();
        let standing = match self.attachment {
            Attachment::Leaving { .. } => Standing::Leaving,
            Attachment::Attached if !self.is_busy() => Standing::Idle,
            _ => Standing::Busy,
        };
        if let Some(lease) = self.inputs.lease.as_ref().filter(|_| self.told != standing) {
            self.told = standing;
            lease.tell(standing);
        }
    }

    /// Whether the session needs its process now.
    pub(super) fn is_busy(&self) -> bool {
        self.turn.is_some()
            || !self.requests.is_empty()
            || !self.settings.is_empty()
            || !self.wanted.is_empty()
            || self.serving.is_busy()
            || self.terminals.is_busy()
            || self.works_alone()
    }

    fn deadline(&self) -> Option<Instant> {
        [
            self.turn_deadline(),
            self.attach_deadline(),
            self.replay_deadline(),
            self.request_deadline(),
            self.setting_deadline(),
            self.foreground_deadline(),
            self.work_deadline(),
            self.terminal_deadline(),
            self.unload_at(),
            self.retry_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn deadlines(&mut self) {
        let now = Instant::now();
        self.turn_overdue(now);
        self.attach_overdue(now);
        self.replay_overdue(now);
        self.requests_overdue(now);
        self.settings_overdue(now);
        self.foreground_overdue(now);
        self.terminals_overdue(now);
        if self.retry_at.is_some_and(|at| now >= at) {
            self.next_queued();
        }
        if self.unload_at().is_some_and(|at| now >= at) {
            self.over = true;
        }
    }

    /// Begins the drain. A running turn has a limited time to end before it is cancelled. Prompts that were
    /// not sent to the agent wait for the next start.
    pub(super) fn drain(&mut self) {
        self.drain_at = Some(Instant::now() + self.context.limits.drain);
        self.return_unsent();
        if self.turn.is_none() {
            self.leave_for_good();
        }
    }
}

/// Sends a reply. The receiver may be gone; then nothing needs the reply.
pub(super) fn answer<T>(reply: Reply<T>, outcome: Result<T, Refusal>) {
    drop(reply.send(outcome));
}
