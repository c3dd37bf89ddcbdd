//! A session's owner: one task that holds all of its state, and never waits for anything but its inputs.

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
    /// The agent's entry: that of the process while there is one, else what the catalogue has.
    pub(super) spec: Arc<AgentSpec>,
    /// On whose behalf processes are leased.
    pub(super) owner: Principal,
    pub(super) log: SessionLog,
    pub(super) record: SessionRecord,
    /// Where the session stands in the list, as last written.
    pub(super) indexed_at: Option<Vec<u8>>,
    /// Under which key the agent's own id of the session is noted, as last written.
    pub(super) named_as: Option<Vec<u8>>,
    /// The entries of its metadata in the index.
    pub(super) metadata_index: MetadataIndex,
    pub(super) quota: Quota,
    pub(super) fold: SessionFold,
    /// Since its record was written.
    pub(super) fold_changed: bool,
    /// Events since the session's record was written.
    pub(super) unsaved: usize,
    pub(super) inputs: Inputs,
    pub(super) attachment: Attachment,
    pub(super) restore: Restore,
    pub(super) live: Option<Live>,
    /// Those who wait for a process without a turn.
    pub(super) attaching: Vec<Attaching>,
    pub(super) creating: Option<Creating>,
    pub(super) turn: Option<Turn>,
    /// The turn that ended on this process: what still comes belongs to it.
    pub(super) late_of: Option<PromptId>,
    pub(super) foreground: Foreground,
    /// The child sessions that the agent runs on this process.
    pub(super) subagents: Subagents,
    /// Updates that nobody can be shown.
    pub(super) dropped: Dropped,
    pub(super) queue: VecDeque<Queued>,
    pub(super) requests: BTreeMap<RequestId, Pending>,
    /// The last that were resolved, for those who come second.
    pub(super) resolved: VecDeque<Resolved>,
    /// Answers that wait for their commit.
    pub(super) outbox: VecDeque<Answered>,
    /// Pages that the agent sent somebody to and has not told the end of.
    pub(super) elicitations: VecDeque<String>,
    /// Files and terminals that the gateway serves to the agent.
    pub(super) serving: Serving,
    pub(super) terminals: Terminals,
    /// Settings that wait for a process, and those that wait for the agent's answer.
    pub(super) wanted: Vec<Setting>,
    pub(super) settings: HashMap<CallId, Setting>,
    /// Tells that a turn has ended.
    pub(super) ended: watch::Sender<u64>,
    pub(super) drain_at: Option<Instant>,
    /// When the head of the queue is tried again, which a limit refused.
    pub(super) retry_at: Option<Instant>,
    /// When the process was last needed, and when anybody last asked for anything.
    pub(super) idle_since: Instant,
    /// Processes that were dead when the session needed them, since it last used one.
    pub(super) replaced: u32,
    /// Crashes of the agent in turns of this session.
    pub(super) crashes: Crashes,
    pub(super) asked_at: Instant,
    pub(super) over: bool,
    /// What the pool was told of this lease.
    pub(super) told: Standing,
    /// Nothing of it is left; whoever still asks finds nobody.
    pub(super) erased: bool,
}

impl Actor {
    /// Runs to the session's end in memory. What was asked too late is given back, for the next owner.
    pub(super) async fn run(mut self) -> Vec<Command> {
        // A restart has found that it never became whole.
        if self.erased {
            return self.wind_up().await;
        }
        // Prompts that an earlier owner left in the queue.
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
                // Nobody listens to the agent: its silence is ours.
                turn.active = Instant::now();
            }
            match wake {
                Wake::Command(Some(command)) => self.command(command),
                // Every handle is gone; what runs goes on to its end.
                Wake::Command(None) => {
                    self.inputs.open = false;
                    self.over = true;
                }
                Wake::Lease(lease) => self.leased(*lease),
                Wake::Batch(Some(batch)) => {
                    self.batch(batch);
                    // An agent that floods must not keep a thread that other sessions wait for.
                    tokio::task::yield_now().await;
                }
                Wake::Batch(None) => self.process_over().await,
                Wake::Committed | Wake::Room => {}
                Wake::Served(served) => self.served(served),
                Wake::Terminal(news) => {
                    self.terminal_news(news);
                    // Nor one that writes without end.
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
        // What was appended is committed before the next owner reads it.
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
                tracing::warn!(session = %id, "a deleted session's folder could not be removed");
            }
        }
        Vec::new()
    }

    /// A fork or its parent is still there, or that cannot be told.
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

    /// Appends an event. Whatever it changed is saved in the same commit with [`Actor::saved`].
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

    /// The session's records as they are with the next event. To be called right before it is appended.
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

    /// A full disk has room for the ends of turns only. The output of a turn stays in the agent's pipe until there is room
    /// again, or the turn is cancelled.
    fn saves_room(&self) -> bool {
        let runs = |turn: &Turn| turn.call.is_some() && turn.cancelled_at.is_none();
        *self.inputs.room.borrow() != Room::Free && self.turn.as_ref().is_some_and(runs)
    }

    fn waits_for_commit(&self) -> bool {
        !self.outbox.is_empty()
            || self.turn.as_ref().is_some_and(|turn| turn.call.is_none())
            || self.log.pending_bytes() >= self.context.limits.pending_bytes
    }

    /// Sends what has become durable.
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

    /// Something of this session needs its process now.
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

    /// Begins the drain: turns have a limited time to end, then they are cancelled. Prompts that were not sent to the agent wait
    /// for the next start.
    pub(super) fn drain(&mut self) {
        self.drain_at = Some(Instant::now() + self.context.limits.drain);
        self.return_unsent();
        if self.turn.is_none() {
            self.leave_for_good();
        }
    }
}

/// Whoever asked may be gone; then nobody needs the answer.
pub(super) fn answer<T>(reply: Reply<T>, outcome: Result<T, Refusal>) {
    drop(reply.send(outcome));
}
