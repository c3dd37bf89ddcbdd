//! The actor of a session: one task that holds the three owners of the session's state. It waits in its event loop, and
//! briefly for the exit status of a process.
//!
//! The actor passes each wakeup to the responsible owner: `Turns`, `Binding` or `Requests`. The owners append their events to
//! the journal themselves. Operations that concern several owners, such as the end of a turn or the release of a process, are
//! methods of the actor. A prompt or an answer reaches the agent only after its event is durable.
//!
//! Reading order:
//!
//! - this file: the loop
//! - `commands`, `inbound`: inputs of clients and of the agent, and the end of a session
//! - `turn`: prompts and the queue
//! - `process`: acquires and releases the process
//! - `requests`: requests of the agent
//! - `calls`: calls of clients
//! - `modes`: modes that clients cannot select
//! - `recovery`: the start from stored records, also with a process that outlived the previous gateway process

mod calls;
mod commands;
mod inbound;
mod modes;
mod process;
mod recovery;
mod requests;
mod turn;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::binding::{Binding, BindingEvent, or_never};
use super::command::Reply;
use super::context::Context;
use super::error::{AdmitError, ProcessError, PromptError};
use super::folders::has_session_in;
use super::journal::Journal;
use super::requests::Requests;
use super::requests::work::Completion;
use super::turns::{TurnClock, Turns};
use agents::agent::AgentExit;
use agents::pool::{CrashBackoff, Holder};
use base::telemetry::metrics;
use base::telemetry::metrics::Level;
use events::api::Session;
use events::event::DetachedReason;
use log::eventlog::{DiskSpace, SessionLog};
use workspace::TerminalEvent;

/// The number of bytes of a session that may wait for their commit. Beyond it, the session accepts no batches.
const MAX_UNCOMMITTED_BYTES: usize = 1 << 20;

/// How long an idle session with MCP servers of a client stays loaded. They are in memory only.
const CLIENT_SERVERS_TIMEOUT: Duration = Duration::from_hours(24);

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
    /// The span of the log lines that belong to no turn. An `Arc`, because a clone of a span costs more than entering it.
    span: Arc<Span>,
    pub(super) journal: Journal,
    turns: Turns,
    binding: Binding,
    pub(super) requests: Requests,
    commands: mpsc::Receiver<Command>,
    has_handles: bool,
    commits: watch::Receiver<u64>,
    disk_space: watch::Receiver<DiskSpace>,
    /// Never closed, because the actor keeps a sender.
    completions: mpsc::Receiver<Completion>,
    /// Never closed, because the actor keeps a sender.
    terminal_events: mpsc::Receiver<TerminalEvent>,
    last_command_at: Instant,
    /// When a drain cancels the running turn.
    drain_at: Option<Instant>,
    /// Whether the actor stops when it has no process.
    stopping: bool,
    crashes: CrashBackoff,
    /// Counts the session in its state.
    counted: Level,
}

impl Actor {
    /// Runs until the session is unloaded. Returns the commands that arrived too late, for the next actor.
    pub(super) async fn run(mut self) -> Vec<Command> {
        let span = Span::clone(&self.span);
        // Loading found that an interrupted import never completed, and erased the session.
        if self.journal.is_erased() {
            return self.shut_down().instrument(span).await;
        }
        // Begin the prompts that are in the queue from an earlier actor.
        span.in_scope(|| self.next_queued());
        loop {
            // Whether to read output of the agent and its terminals. False while many bytes wait for a commit.
            let reads_output = !self.is_log_behind() && !self.pauses_output();
            let wakeup = self.next_wakeup(reads_output).await;
            if !reads_output {
                // The agent's output is not read now, so the idle time of the turn must not count.
                self.turns.note_activity(Instant::now());
            }
            let floods = matches!(
                wakeup,
                Wakeup::Binding(BindingEvent::Batch(_)) | Wakeup::Terminal(_)
            );
            self.span().in_scope(|| {
                self.handle(wakeup);
                self.enforce_quota();
                self.flush();
                self.count_state();
            });
            if floods {
                // An agent or a terminal that floods must not occupy a thread that other sessions need.
                tokio::task::yield_now().await;
            }
            if self.stopping
                && self.binding.process().is_none()
                && !self.binding.calls.is_attaching()
            {
                break;
            }
        }
        self.shut_down().instrument(span).await
    }

    /// The span of the running turn or the session. A command enters the span of its request.
    fn span(&self) -> Arc<Span> {
        Arc::clone(self.turns.span().unwrap_or(&self.span))
    }

    fn count_state(&mut self) {
        let state: &'static str = self.journal.state().into();
        if self.counted.label() != state {
            self.counted = metrics().sessions(state);
        }
    }

    async fn next_wakeup(&mut self, reads_output: bool) -> Wakeup {
        // While the output is not read, only a commit or free space lets the session continue. `reads_output` itself decides,
        // because the writer can commit between two looks at the log, and then neither event would wake the session.
        let waits_for_commit = !reads_output || self.waits_for_commit();
        let deadline = self.next_deadline();
        let wakeup = tokio::select! {
            biased;
            command = self.commands.recv(), if self.has_handles => Wakeup::Command(command),
            () = self.context.shutdown.drain_started(), if self.drain_at.is_none() => Wakeup::Draining,
            () = or_never(deadline.map(sleep_until)) => Wakeup::Deadline,
            () = self.requests.tool_clients.presence_changed() => Wakeup::Presence,
            Ok(()) = self.commits.changed(), if waits_for_commit => Wakeup::StorageChanged,
            Ok(()) = self.disk_space.changed() => Wakeup::StorageChanged,
            Some(completion) = self.completions.recv() => Wakeup::Completion(completion),
            event = self.binding.next_event(reads_output) => Wakeup::Binding(event),
            // Terminals come after the agent, so that the agent can always stop a command that floods.
            Some(event) = self.terminal_events.recv(), if reads_output => Wakeup::Terminal(event),
        };
        let is_closed = matches!(wakeup, Wakeup::Binding(BindingEvent::Batch(None)));
        match self.binding.process() {
            // This wait is limited to a fraction of a second, so a zombie process does not delay the turn's end.
            Some(process) if is_closed => Wakeup::Exited(process.exit().await),
            _ => wakeup,
        }
    }

    fn handle(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Command(Some(command)) => self.handle_command(command),
            // Every handle is dropped. Running work continues to its end.
            Wakeup::Command(None) => {
                self.has_handles = false;
                self.stopping = true;
            }
            Wakeup::Binding(BindingEvent::Leased(lease)) => self.leased(*lease),
            Wakeup::Binding(BindingEvent::Batch(Some(batch))) => self.handle_batch(batch),
            Wakeup::Exited(exit) => self.process_exited(exit),
            Wakeup::Binding(BindingEvent::Recalled) => {
                self.detach_if_idle(DetachedReason::Reclaimed);
            }
            Wakeup::StorageChanged | Wakeup::Binding(BindingEvent::Batch(None)) => {}
            Wakeup::Completion(completion) => self.request_completed(completion),
            Wakeup::Terminal(event) => self.handle_terminal_event(event),
            Wakeup::Presence => self.requests.tool_clients.note_presence(),
            Wakeup::Deadline => self.check_deadlines(),
            Wakeup::Draining => self.drain(),
        }
    }

    async fn shut_down(mut self) -> Vec<Command> {
        self.commands.close();
        if !self.journal.is_erased() {
            self.journal.store_quota(&self.context.quotas);
        }
        let mut unanswered = Vec::new();
        while let Some(command) = self.commands.recv().await {
            unanswered.push(command);
        }
        // The next actor reads from the store, so everything that was appended must be committed.
        let _ = self.journal.log().wait(self.journal.appended()).await;
        if !self.journal.is_erased() {
            self.save_unsent().await;
            return unanswered;
        }
        let record = self.journal.record();
        if record.own_folder && !self.folder_in_use().await {
            let workspaces = self.context.workspaces.clone();
            let id = record.folder_id();
            let erased = self
                .context
                .shutdown
                .spawn_blocking(move || workspaces.remove_directory(&id.to_string()))
                .await;
            if !matches!(erased, Ok(Ok(()))) {
                tracing::warn!("could not remove the folder of a deleted session");
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
        let others = has_session_in(&self.context, &record.owner.tenant(), &record.cwd).await;
        others.unwrap_or(true)
    }

    /// The snapshot, and the sequence number that must be committed before a client sees it.
    pub(super) fn snapshot(&self) -> (Session, u64) {
        let rules = self.client_rules();
        let session = Session {
            denied_modes: self.journal.mode_policy(&rules).offered(),
            ..self.journal.snapshot(self.requests.shown())
        };
        (session, self.journal.appended())
    }

    pub(super) fn stderr(&self) -> String {
        self.binding
            .process()
            .map(agents::agent::Process::stderr)
            .unwrap_or_default()
    }

    fn is_log_behind(&self) -> bool {
        self.journal.log().pending_bytes() >= MAX_UNCOMMITTED_BYTES
    }

    /// Whether to pause the agent's output because the disk is full: the remaining space is for the ends of
    /// turns. The output stays in the agent's pipe until there is space again or the turn is cancelled.
    fn pauses_output(&self) -> bool {
        *self.disk_space.borrow() != DiskSpace::Available && self.turns.produces_output()
    }

    fn waits_for_commit(&self) -> bool {
        self.binding.waits_for_commit()
            || self.requests.waits_for_commit()
            || self.turns.is_unsent()
    }

    /// Sends answers, calls and the prompt whose events are durable, and reports the activity to the pool.
    fn flush(&mut self) {
        self.binding.acknowledge(self.journal.log().committed());
        self.send_responses();
        self.send_queued_calls();
        self.start_prompt();
        self.send_prompt();
        let busy = self.is_busy();
        self.binding.report_activity(busy);
    }

    fn report_holder(&self) {
        let turn = self.turns.running();
        self.binding.report_holder(Holder {
            session: self.journal.session(),
            turn: turn.map(|prompt| (prompt, self.context.ids.now())),
        });
    }

    fn is_busy(&self) -> bool {
        self.turns.running().is_some()
            || self.requests.is_busy()
            || self.binding.calls.is_busy()
            || self.turns.works_in_background()
    }

    /// How long the session keeps an idle process. `None`: the session needs the process now.
    fn idle_timeout(&self) -> Option<Duration> {
        (!self.is_busy()).then(|| self.binding.idle_timeout())
    }

    fn turn_clock(&self) -> TurnClock {
        TurnClock {
            idle_timeout: self.binding.spec().settings.turn_idle_timeout,
            agent_waits: self.requests.is_busy(),
            drain_at: self.drain_at,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let limits = &self.context.limits;
        [
            self.turns.deadline(limits, self.turn_clock()),
            self.binding.deadline(limits, self.idle_timeout()),
            self.binding.replay_deadline(),
            self.requests.deadline(),
            self.binding
                .calls
                .deadline(self.binding.waits_for_process()),
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
            .binding
            .process()
            .is_some_and(agents::agent::Process::has_unread);
        self.binding
            .check_replay(has_unread, &self.context.limits, now);
        self.expire_requests(now);
        self.check_call_deadlines(now);
        self.check_background_deadlines(now);
        self.check_terminal_deadline(now);
        if self.turns.retry_at.is_some_and(|at| now >= at) {
            self.next_queued();
        }
        if self.unload_at().is_some_and(|at| now >= at) {
            self.stopping = true;
        }
    }

    /// Begins the drain. A running turn has a limited time to end before it is cancelled. Prompts that were not
    /// sent stay in the queue until the gateway starts again.
    fn drain(&mut self) {
        self.drain_at = Some(Instant::now() + self.context.limits.drain_timeout);
        if self.binding.has_previous() {
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
        self.drain_at.is_some() || self.context.shutdown.is_draining()
    }

    fn unload_at(&self) -> Option<Instant> {
        if self.journal.record().is_open() || !self.binding.is_detached() {
            return None;
        }
        let mut timeout = self.context.limits.session_idle_timeout;
        if self.binding.has_client_servers() {
            timeout = timeout.max(CLIENT_SERVERS_TIMEOUT);
        }
        // The back-off after crashes is stored in memory only, so the session stays loaded until the back-off ends.
        let idle_until = self.last_command_at + timeout;
        Some(
            self.crashes
                .not_before
                .map_or(idle_until, |until| until.max(idle_until)),
        )
    }

    /// Rejects operations that make an agent write while the hourly quota is exceeded.
    fn check_quota(&self) -> Result<(), ProcessError> {
        let wait = self
            .journal
            .quota_wait(&self.context.limits, Instant::now());
        wait.map_or(Ok(()), |retry_after| {
            metrics().rejections("session_quota", 1);
            Err(ProcessError::Quota { retry_after })
        })
    }

    /// Rejects turns while the quota is exceeded, or while the breaker of this session is open. Other sessions are not affected.
    fn check_turn(&mut self) -> Result<(), PromptError> {
        self.check_quota()?;
        let wait = self
            .crashes
            .breaker_open_for(Instant::now(), self.context.pool.limits());
        wait.map_or(Ok(()), |retry_after| {
            Err(AdmitError::CrashLoop(retry_after).into())
        })
    }

    /// Stops the agent of a session that exceeds its quota, and fails the turn. This does not wait for a
    /// cancel, because the agent could keep writing meanwhile.
    fn enforce_quota(&mut self) {
        if self.binding.process().is_none() {
            return;
        }
        let Err(error) = self.check_quota() else {
            return;
        };
        tracing::warn!("a session exceeded its hourly write quota; stopping its agent");
        self.stop_process(&error);
        self.attach_failed(&error);
    }
}

pub(super) fn send_reply<T, E>(reply: Reply<T, E>, outcome: Result<T, E>) {
    let _ = reply.send(outcome);
}

enum Wakeup {
    /// `None`: every handle was dropped.
    Command(Option<Command>),
    Binding(BindingEvent),
    Exited(AgentExit),
    /// Events became durable, or the disk accepts commits again or no longer.
    StorageChanged,
    Completion(Completion),
    Terminal(TerminalEvent),
    Deadline,
    /// A client that must answer a request has disconnected or returned.
    Presence,
    Draining,
}
