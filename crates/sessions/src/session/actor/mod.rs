//! The actor of a session: one task that owns all state of the session. It waits in its event loop, and briefly for the
//! exit status of a process.
//!
//! The actor passes each wakeup to the responsible owner. `turns` and `requests` append their events to the journal
//! themselves. The actor connects them with the process: it sends to the agent and answers clients. A prompt or an answer
//! reaches the agent only after its event is durable.
//!
//! Reading order:
//!
//! - this file: the loop
//! - `commands`, `inbound`: inputs of clients and of the agent, and the end of a session
//! - `turn`, `queue`: prompts
//! - `attach`, `release`: the process
//! - `requests`: requests of the agent
//! - `calls`: calls of clients
//! - `modes`: modes that clients cannot select
//! - `recovery`: the start from stored records, also with a process that outlived the previous gateway process

mod attach;
mod calls;
mod commands;
mod inbound;
mod modes;
mod queue;
mod recovery;
mod release;
mod requests;
mod turn;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::attachment::{Attachment, DiscardCounter};
use super::client_calls::ClientCalls;
use super::command::Reply;
use super::context::Context;
use super::error::{AdmitError, ProcessError, PromptError};
use super::folders::has_session_in;
use super::journal::Journal;
use super::process_link::{LinkEvent, ProcessLink, or_never};
use super::requests::Requests;
use super::requests::work::Completion;
use super::turns::{TurnClock, Turns};
use agents::pool::{CrashBackoff, Holder, LeaseActivity};
use base::shutdown::Shutdown;
use base::types::ServedBy;
use events::api::Session;
use events::event::DetachedReason;
use log::eventlog::{DiskSpace, SessionLog};
use wire::acp::{ClientCapabilities, McpServer};
use workspace::TerminalEvent;

/// How long an idle session with MCP servers of a client stays loaded. They are in memory only.
const BROUGHT_SERVERS_TIMEOUT: Duration = Duration::from_hours(24);

/// A command of a client. It sends its own reply.
pub(super) type Command = Box<dyn FnOnce(&mut Actor) + Send>;

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

pub(super) struct Actor {
    context: Context,
    pub(super) journal: Journal,
    link: ProcessLink,
    attachment: Attachment,
    turns: Turns,
    pub(super) requests: Requests,
    client_calls: ClientCalls,
    /// The MCP servers that clients bring for the session. They contain secrets.
    brought_servers: Vec<McpServer>,
    event_loop: EventLoop,
    lifecycle: Lifecycle,
}

struct Lifecycle {
    last_command_at: Instant,
    /// When a drain cancels the running turn.
    drain_at: Option<Instant>,
    /// Whether the actor stops when it has no process.
    stopping: bool,
    crashes: CrashBackoff,
    discarded: DiscardCounter,
}

impl Actor {
    /// Runs until the session is unloaded. Returns the commands that arrived too late, for the next actor.
    pub(super) async fn run(mut self) -> Vec<Command> {
        // Loading found that an interrupted import never completed, and erased the session.
        if self.journal.is_erased() {
            return self.shut_down().await;
        }
        // Begin the prompts that are in the queue from an earlier actor.
        self.next_queued();
        loop {
            let conditions = WakeConditions {
                batches: !self.is_log_behind() && !self.pauses_output(),
                commits: self.waits_for_commit(),
                draining: self.lifecycle.drain_at.is_none(),
                deadline: self.next_deadline(),
            };
            let wakeup = self
                .event_loop
                .next_wakeup(
                    &mut self.link,
                    self.requests.serving.presence_changed(),
                    conditions,
                )
                .await;
            if !conditions.batches {
                // The agent's output is not read now, so the idle time of the turn must not count.
                self.turns.note_activity(Instant::now());
            }
            self.handle(wakeup).await;
            self.enforce_quota();
            self.flush();
            if self.lifecycle.stopping
                && !self.link.is_leased()
                && !self.client_calls.is_attaching()
            {
                break;
            }
        }
        self.shut_down().await
    }

    async fn handle(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Command(Some(command)) => self.handle_command(command),
            // Every handle is dropped. Running work continues to its end.
            Wakeup::Command(None) => {
                self.event_loop.has_handles = false;
                self.lifecycle.stopping = true;
            }
            Wakeup::Link(LinkEvent::Leased(lease)) => self.leased(*lease),
            Wakeup::Link(LinkEvent::Batch(Some(batch))) => {
                self.handle_batch(batch);
                // Yield, so that an agent that floods does not occupy a thread that other sessions need.
                tokio::task::yield_now().await;
            }
            Wakeup::Link(LinkEvent::Batch(None)) => self.stdout_closed().await,
            Wakeup::Link(LinkEvent::Recalled) => self.detach_if_idle(DetachedReason::Reclaimed),
            Wakeup::StorageChanged => {}
            Wakeup::Completion(completion) => self.request_completed(completion),
            Wakeup::Terminal(event) => {
                self.handle_terminal_event(event);
                // A terminal can flood as well.
                tokio::task::yield_now().await;
            }
            Wakeup::Presence => self.requests.serving.note_presence(),
            Wakeup::Deadline => self.check_deadlines(),
            Wakeup::Draining => self.drain(),
        }
    }

    async fn shut_down(mut self) -> Vec<Command> {
        self.event_loop.commands.close();
        if !self.journal.is_erased() {
            self.journal.store_quota(&self.context.bounds.quotas);
        }
        let mut unanswered = Vec::new();
        while let Some(command) = self.event_loop.commands.recv().await {
            unanswered.push(command);
        }
        // The next actor reads from the store, so everything that was appended must be committed.
        drop(self.journal.log().wait(self.journal.appended()).await);
        if !self.journal.is_erased() {
            self.save_unsent().await;
            return unanswered;
        }
        let record = self.journal.record();
        if record.own_folder && !self.folder_in_use().await {
            let (workspaces, id) = (self.context.workspaces.clone(), record.folder_id());
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
        let record = self.journal.record();
        if !record.shared_folder {
            return false;
        }
        let others = has_session_in(&self.context, &record.tenant(), &record.cwd).await;
        others.unwrap_or(true)
    }

    /// The snapshot, and the sequence number that must be committed before a client sees it.
    pub(super) fn snapshot(&self) -> (Session, u64) {
        let session = self.journal.snapshot(self.requests.shown());
        let session = Session {
            denied_modes: self.denied_modes(),
            ..session
        };
        (session, self.journal.appended())
    }

    pub(super) fn stderr(&self) -> String {
        self.link
            .process()
            .map(agents::agent::Process::stderr)
            .unwrap_or_default()
    }

    fn is_log_behind(&self) -> bool {
        self.journal.log().pending_bytes() >= self.context.limits.max_uncommitted_bytes
    }

    /// Whether to pause the agent's output because the disk is full: the remaining space is for the ends of
    /// turns. The output stays in the agent's pipe until there is space again or the turn is cancelled.
    fn pauses_output(&self) -> bool {
        *self.event_loop.disk_space.borrow() != DiskSpace::Available && self.turns.produces_output()
    }

    fn waits_for_commit(&self) -> bool {
        self.link.waits_for_commit()
            || self.requests.waits_for_commit()
            || self.turns.is_unsent()
            || self.is_log_behind()
    }

    /// Sends answers, calls and the prompt whose events are durable, and reports the activity to the pool.
    fn flush(&mut self) {
        self.link.acknowledge(self.journal.log().committed());
        self.send_responses();
        self.send_queued_calls();
        self.start_prompt();
        self.send_prompt();
        let activity = if self.attachment.is_releasing() {
            LeaseActivity::Releasing
        } else if self.attachment.is_attached() && !self.is_busy() {
            LeaseActivity::Idle
        } else {
            LeaseActivity::Busy
        };
        self.link.report(activity);
    }

    fn report_holder(&self) {
        let turn = self.turns.running();
        self.link.report_holder(Holder {
            session: self.journal.session(),
            turn: turn.map(|prompt| (prompt, self.context.ids.now())),
        });
    }

    fn is_busy(&self) -> bool {
        self.turns.running().is_some()
            || self.requests.is_busy()
            || self.client_calls.is_busy()
            || self.turns.works_in_background()
    }

    /// How long the session keeps an idle process. The time depends on whether the agent can restore the session.
    /// `None`: the session needs the process now.
    fn idle_timeout(&self) -> Option<std::time::Duration> {
        if self.is_busy() {
            return None;
        }
        let pool = &self.link.spec().settings.pool;
        let restores = self
            .link
            .initialized()
            .is_none_or(|known| known.capabilities.can_restore());
        Some(if restores {
            pool.idle_timeout
        } else {
            pool.no_load_idle_timeout
        })
    }

    fn turn_clock(&self) -> TurnClock {
        TurnClock {
            idle_timeout: self.link.spec().settings.turn_idle_timeout,
            agent_waits: self.requests.is_busy(),
            drain_at: self.lifecycle.drain_at,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let limits = &self.context.limits;
        [
            self.turns.deadline(limits, self.turn_clock()),
            self.attachment.deadline(limits, self.idle_timeout()),
            self.attachment.replay_deadline(),
            self.requests.deadline(),
            self.client_calls
                .deadline(self.attachment.waits_for_process()),
            self.background_deadline(),
            self.turns.work_deadline(limits),
            self.terminal_deadline(),
            self.unload_at(),
            self.turns.retry_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        self.check_turn_deadline(now);
        self.check_attach_deadline(now);
        let has_unread = self
            .link
            .process()
            .is_some_and(agents::agent::Process::has_unread);
        self.attachment
            .check_replay(has_unread, &self.context.limits, now);
        self.expire_requests(now);
        self.check_call_deadlines(now);
        self.check_background_deadlines(now);
        self.check_terminal_deadline(now);
        if self.turns.retry_at.is_some_and(|at| now >= at) {
            self.next_queued();
        }
        if self.unload_at().is_some_and(|at| now >= at) {
            self.lifecycle.stopping = true;
        }
    }

    /// Begins the drain. A running turn has a limited time to end before it is cancelled. Prompts that were not
    /// sent stay in the queue until the gateway starts again.
    fn drain(&mut self) {
        self.lifecycle.drain_at = Some(Instant::now() + self.context.limits.drain_timeout);
        if self.link.former().is_some() {
            // The next gateway process continues with the turn.
            return self.stop_for_drain();
        }
        if self.turns.return_unsent() {
            self.journal
                .update(super::record::SessionRecord::requeue_prompt);
            self.report_holder();
        }
        if self.turns.running().is_none() {
            self.detach_for_drain();
        }
    }

    /// Whether the gateway drains. A command can arrive before the event loop has seen the start of the drain, for example at an
    /// actor that was loaded during the drain.
    fn is_draining(&self) -> bool {
        self.lifecycle.drain_at.is_some() || self.context.shutdown.is_draining()
    }

    fn unload_at(&self) -> Option<Instant> {
        let idle = !self.journal.is_open() && self.attachment.is_detached();
        // The back-off after crashes is stored in memory only, so the session stays loaded until the back-off ends.
        let mut timeout = self.context.limits.session_idle_timeout;
        if !self.brought_servers.is_empty() {
            timeout = timeout.max(BROUGHT_SERVERS_TIMEOUT);
        }
        let idle_until = self.lifecycle.last_command_at + timeout;
        idle.then(|| {
            self.lifecycle
                .crashes
                .backoff_until()
                .map_or(idle_until, |until| until.max(idle_until))
        })
    }

    /// Rejects operations that make an agent write while the hourly quota is exceeded.
    fn check_quota(&self) -> Result<(), ProcessError> {
        let wait = self
            .journal
            .quota_wait(&self.context.limits, Instant::now());
        wait.map_or(Ok(()), |retry_after| {
            Err(ProcessError::Quota { retry_after })
        })
    }

    /// Rejects turns while the quota is exceeded, or while the breaker of this session is open. Other sessions are not affected.
    fn check_turn(&mut self) -> Result<(), PromptError> {
        self.check_quota()?;
        let wait = self
            .lifecycle
            .crashes
            .breaker_open_for(Instant::now(), &self.context.limits);
        wait.map_or(Ok(()), |retry_after| {
            Err(AdmitError::CrashLoop(retry_after).into())
        })
    }

    /// Stops the agent of a session that exceeds its quota, and fails the turn. This does not wait for a
    /// cancel, because the agent could keep writing meanwhile.
    fn enforce_quota(&mut self) {
        if !self.link.is_leased() {
            return;
        }
        let Err(error) = self.check_quota() else {
            return;
        };
        tracing::warn!(session = %self.journal.session(), "a session exceeded its hourly write quota; stopping its agent");
        self.stop_process(&error);
        self.attach_failed(&error);
    }

    /// The servers of the agent's files and terminals: the settings of the agent, restricted by the policy of the client.
    fn served_by(&self) -> (ServedBy, ServedBy) {
        self.journal
            .record()
            .policy
            .served_by(&self.link.spec().settings)
    }

    /// The capabilities that the gateway sends in `initialize`.
    fn offered_capabilities(&self) -> ClientCapabilities {
        let (files, terminals) = self.served_by();
        ClientCapabilities::new(files, terminals)
    }
}

pub(super) fn send_reply<T, E>(reply: Reply<T, E>, outcome: Result<T, E>) {
    let _ = reply.send(outcome);
}

enum Wakeup {
    /// `None`: every handle was dropped.
    Command(Option<Command>),
    Link(LinkEvent),
    /// Events became durable, or the disk accepts commits again or no longer.
    StorageChanged,
    Completion(Completion),
    Terminal(TerminalEvent),
    Deadline,
    /// A client that must answer a request has disconnected or returned.
    Presence,
    Draining,
}

struct EventLoop {
    commands: mpsc::Receiver<Command>,
    has_handles: bool,
    commits: watch::Receiver<u64>,
    disk_space: watch::Receiver<DiskSpace>,
    /// Never closed, because the actor keeps a sender.
    completions: mpsc::Receiver<Completion>,
    /// Never closed, because the actor keeps a sender.
    terminal_events: mpsc::Receiver<TerminalEvent>,
    shutdown: Shutdown,
}

#[derive(Debug, Clone, Copy)]
struct WakeConditions {
    /// Whether to read output of the agent and its terminals. False while many bytes wait for a commit.
    batches: bool,
    /// Whether to wake on commits. True only while something waits for a commit.
    commits: bool,
    draining: bool,
    deadline: Option<Instant>,
}

impl EventLoop {
    async fn next_wakeup(
        &mut self,
        link: &mut ProcessLink,
        presence: impl Future<Output = ()>,
        conditions: WakeConditions,
    ) -> Wakeup {
        tokio::select! {
            biased;
            command = self.commands.recv(), if self.has_handles => Wakeup::Command(command),
            () = self.shutdown.drain_started(), if conditions.draining => Wakeup::Draining,
            () = or_never(conditions.deadline.map(sleep_until)) => Wakeup::Deadline,
            () = presence => Wakeup::Presence,
            Ok(()) = self.commits.changed(), if conditions.commits => Wakeup::StorageChanged,
            Ok(()) = self.disk_space.changed() => Wakeup::StorageChanged,
            Some(completion) = self.completions.recv() => Wakeup::Completion(completion),
            event = link.next_event(conditions.batches) => Wakeup::Link(event),
            // Terminals come after the agent, so that the agent can always stop a command that floods.
            Some(event) = self.terminal_events.recv(), if conditions.batches => Wakeup::Terminal(event),
        }
    }
}
