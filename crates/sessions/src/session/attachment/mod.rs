//! The attachment of a session to a process: the state machine from the request for a process to its release (ACP,
//! Session Setup).
//!
//! This part holds no process. It decides which state follows an input, which method restores the session, and when a
//! state has lasted for too long. The actor calls one method for each transition, and sends to the pool and the agent.
//!
//! The gateway detects agents that lock sessions or send late history, and has no table of them. A table would be wrong
//! for unknown agents and for the next version of a known one. Instead, the next prompt waits for a quiet interval
//! after each load.
//!
//! Some agents reject the load of a session without the call `authenticate`, because no sign-in is selected in their
//! settings, although their key is in their environment. For such an agent, the call could replace a sign-in that a person
//! has selected, for example a sign-in that the provider rejects temporarily. Therefore the gateway first checks that the
//! same process opens a new session and still rejects the load. With a selected sign-in, both requests would succeed or
//! both would fail.
//!
//! A session that waits for a locked session holds no process. Otherwise two sessions could wait for the processes of
//! each other.
//!
//! Some agents answer a load of an unknown session with success and reject the first prompt. The gateway then begins a
//! new agent session on the same process, once for each process.
//!
//! After an error, a new agent session begins only if the previous one does not exist, or if the agent can neither load nor
//! resume. A missing sign-in and a failed import reject the attach. Every other error is transient.

#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};

use serde_json::value::RawValue;
use tokio::time::{Duration, Instant};

use base::types::Limits;
use base::types::limits::{
    KNOWN_SUBAGENTS, RESTORE_ATTEMPTS, RESTORE_BACKOFF_MAX, RESTORE_BACKOFF_MIN, SUBAGENT_ID_BYTES,
};
use events::event::{AttachedBy, LostReason};
use wire::acp::{self, AcpVersion, AgentCapabilities, RestoreFailure, update};
use wire::jsonrpc::{CallId, RpcError};

/// The maximum number of idle processes that die before the session reports the failure.
const MAX_REPLACED_PROCESSES: u32 = 2;

pub(super) struct Attachment {
    state: State,
    /// When the process was last needed.
    idle_since: Instant,
    /// The number of replaced processes since the session last used a process. Each was dead when it was needed.
    replaced_processes: u32,
    /// Failed attempts, while the agent has not restored the session yet.
    restoring: Option<Restoring>,
    /// The agent reported a successful restore, and has not accepted a prompt after it.
    unproven: bool,
    /// A replay after `session/load` that may still deliver history.
    replay: Option<Replay>,
    load_sign_in: LoadSignIn,
    /// The agent's ids of its child sessions, as announced by `subagent_update` on this process.
    subagents: HashSet<Box<str>>,
}

enum State {
    Detached,
    /// The session waits for a process in the pool's queue.
    Queued {
        since: Instant,
    },
    /// The session requests a process at the time `at`: an attempt to restore it failed, or its load is deferred.
    Retrying {
        at: Instant,
    },
    Calling {
        call: CallId,
        deadline: Instant,
        purpose: CallPurpose,
    },
    Attached,
}

#[derive(Debug)]
pub(super) enum CallPurpose {
    SetUp(SetUp),
    /// The agent did not load the session without a sign-in. The gateway has sent a step of the sign-in.
    SignIn {
        load_error: RpcError,
    },
    /// The agent is closing or deleting the session. A process that closed a session (`closes`) can serve another one.
    Release {
        closes: bool,
    },
}

#[derive(Debug)]
pub(super) enum Overdue {
    /// No process became available. The error is that of the last attempt to restore the session.
    Queue {
        restore_error: Option<RpcError>,
    },
    Retry,
    Call(CallId, CallPurpose),
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionOwner {
    ThisSession,
    /// A child session, at any depth.
    Subagent,
    Unknown,
}

impl Attachment {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: State::Detached,
            idle_since: now,
            replaced_processes: 0,
            restoring: None,
            unproven: false,
            replay: None,
            load_sign_in: LoadSignIn::default(),
            subagents: HashSet::new(),
        }
    }

    pub(super) fn is_detached(&self) -> bool {
        matches!(self.state, State::Detached)
    }

    pub(super) fn is_attached(&self) -> bool {
        matches!(self.state, State::Attached)
    }

    pub(super) fn is_releasing(&self) -> bool {
        matches!(
            self.state,
            State::Calling {
                purpose: CallPurpose::Release { .. },
                ..
            }
        )
    }

    /// Whether the session can send a prompt: it is attached, and no replay is under way.
    pub(super) fn is_ready(&self) -> bool {
        self.is_attached() && self.replay.is_none()
    }

    /// Whether the session must not request a process now: it has a process, or a retry is scheduled.
    pub(super) fn needs_no_request(&self) -> bool {
        !self.waits_for_process() || matches!(self.state, State::Retrying { .. })
    }

    /// Whether the session has no usable process. Clients with open calls then wait for a process. During the setup
    /// they wait for the agent instead.
    pub(super) fn waits_for_process(&self) -> bool {
        !self.is_attached() && self.open_call().is_none()
    }

    pub(super) fn touch(&mut self, now: Instant) {
        self.idle_since = now;
    }

    pub(super) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    // Transitions.

    /// Detached to Queued: the pool's queue holds a place for the session.
    pub(super) fn enqueue(&mut self, now: Instant) {
        if self.is_detached() {
            self.state = State::Queued { since: now };
        }
    }

    pub(super) fn wait_until(&mut self, at: Instant) {
        self.state = State::Retrying { at };
    }

    pub(super) fn called(&mut self, call: CallId, deadline: Instant, purpose: CallPurpose) {
        self.state = State::Calling {
            call,
            deadline,
            purpose,
        };
    }

    /// Ends the call with this id, because the agent has responded. Returns its purpose.
    pub(super) fn answered(&mut self, id: CallId) -> Option<CallPurpose> {
        match std::mem::replace(&mut self.state, State::Attached) {
            State::Calling { call, purpose, .. } if call == id => return Some(purpose),
            other => self.state = other,
        }
        None
    }

    /// The agent has the session. `imports`: its history is new to the log. `has_turn`: a turn waits for the process.
    pub(super) fn attached(
        &mut self,
        method: AttachMethod,
        imports: bool,
        has_turn: bool,
        limits: &Limits,
        now: Instant,
    ) {
        self.state = State::Attached;
        if !has_turn {
            self.replaced_processes = 0;
        }
        self.idle_since = now;
        self.restoring = None;
        self.unproven = matches!(method, AttachMethod::Resume | AttachMethod::Load);
        if method == AttachMethod::Load {
            self.replay = Some(Replay::new(imports, limits, now));
        }
    }

    /// The session has the process of an earlier gateway process again.
    pub(super) fn continued(&mut self, now: Instant) {
        self.state = State::Attached;
        self.idle_since = now;
    }

    pub(super) fn detach(&mut self) {
        self.state = State::Detached;
    }

    /// Ends all attempts to attach: the attach failed, or the gateway drains.
    pub(super) fn abandon(&mut self) {
        self.state = State::Detached;
        self.restoring = None;
    }

    /// The session withdrew its request for a process.
    pub(super) fn withdraw_request(&mut self) {
        if matches!(self.state, State::Queued { .. } | State::Retrying { .. }) {
            self.state = State::Detached;
            self.restoring = None;
        }
    }

    /// Clears the state of the process, which the session releases. The next process reuses request ids.
    pub(super) fn process_released(&mut self) {
        (self.replay, self.unproven) = (None, false);
        self.load_sign_in = LoadSignIn::default();
        self.subagents.clear();
    }

    // Calls and deadlines.

    /// The open call of a setup or a sign-in.
    pub(super) fn open_call(&self) -> Option<CallId> {
        match &self.state {
            State::Calling { call, .. } if !self.is_releasing() => Some(*call),
            _ => None,
        }
    }

    /// When the current state has lasted for too long. `idle_timeout`: how long the session keeps the process that it does
    /// not need, or `None` if it needs the process.
    pub(super) fn deadline(
        &self,
        limits: &Limits,
        idle_timeout: Option<Duration>,
    ) -> Option<Instant> {
        match &self.state {
            State::Detached => None,
            State::Queued { since } => {
                let end = *since + limits.queue_timeout;
                Some(
                    self.restoring
                        .as_ref()
                        .map_or(end, |restoring| restoring.deadline.min(end)),
                )
            }
            State::Retrying { at } => Some(*at),
            State::Calling { deadline, .. } => Some(*deadline),
            State::Attached => idle_timeout.map(|timeout| self.idle_since + timeout),
        }
    }

    /// The effect of the deadline, if it has passed. Ends an overdue call.
    pub(super) fn overdue(
        &mut self,
        limits: &Limits,
        idle_timeout: Option<Duration>,
        now: Instant,
    ) -> Option<Overdue> {
        self.deadline(limits, idle_timeout)
            .filter(|deadline| now >= *deadline)?;
        Some(match self.state {
            State::Detached => return None,
            State::Queued { .. } => {
                let restore_error = self
                    .restoring
                    .as_ref()
                    .map(|restoring| restoring.error.clone());
                Overdue::Queue { restore_error }
            }
            State::Retrying { .. } => Overdue::Retry,
            State::Calling { call, .. } => Overdue::Call(call, self.answered(call)?),
            State::Attached => Overdue::Idle,
        })
    }

    // Restore.

    /// Counts a failed attempt to restore the session, and schedules the next one. `timeout`: how long attempts may take
    /// together.
    pub(super) fn retry_restore(
        &mut self,
        error: RpcError,
        in_use: bool,
        timeout: Duration,
        now: Instant,
    ) -> Retry {
        let former = self.restoring.take();
        let restoring =
            self.restoring
                .insert(Restoring::after(former, error, in_use, now + timeout));
        restoring.retry(now)
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.restoring
            .as_ref()
            .is_some_and(|restoring| restoring.in_use)
    }

    /// Handles the first response to a prompt after a restore. `rejected`: the agent does not know the session. Returns
    /// true if the restore did not work.
    pub(super) fn prompt_answered(&mut self, rejected: bool) -> bool {
        self.unproven &= rejected;
        self.unproven
    }

    pub(super) fn load_sign_in(&self) -> LoadSignIn {
        self.load_sign_in
    }

    pub(super) fn sign_in_advanced(&mut self) {
        self.load_sign_in = self.load_sign_in.next();
    }

    // Processes that died while they were idle.

    /// Whether the session needs its process and has not used it yet. During the setup, any update counts as use. After
    /// the setup, a sent prompt counts. `is_turn_unsent`: the prompt of the running turn was not sent.
    pub(super) fn is_process_unused(&self, is_turn_unsent: bool) -> bool {
        match &self.state {
            State::Calling {
                purpose: CallPurpose::SetUp(setup),
                ..
            } => setup.has_no_updates(),
            State::Attached => is_turn_unsent,
            // The process closed its stdin before the setup, or received only a sign-in.
            State::Queued { .. }
            | State::Calling {
                purpose: CallPurpose::SignIn { .. },
                ..
            } => true,
            State::Detached | State::Retrying { .. } | State::Calling { .. } => false,
        }
    }

    /// Counts a process that was dead when it was acquired. Returns whether the session may replace it.
    pub(super) fn may_replace(&mut self) -> bool {
        self.replaced_processes += 1;
        self.replaced_processes <= MAX_REPLACED_PROCESSES
    }

    pub(super) fn reset_replaced(&mut self) {
        self.replaced_processes = 0;
    }

    // Updates.

    /// Keeps an update that arrives before the agent's session id is known. Returns all other updates.
    pub(super) fn buffer_update(
        &mut self,
        params: Box<RawValue>,
        limits: &Limits,
    ) -> Option<Box<RawValue>> {
        match &mut self.state {
            State::Calling {
                purpose: CallPurpose::SetUp(setup),
                ..
            } if setup.method.is_new() => {
                setup.buffer(params, limits);
                None
            }
            _ => Some(params),
        }
    }

    /// Decides whether an update is history that the agent replays. `imports`: the history is new to the log.
    pub(super) fn classify_update(
        &mut self,
        kind: &str,
        imports: bool,
        limits: &Limits,
        now: Instant,
    ) -> History {
        if !update::is_history(kind) {
            return History::Live;
        }
        if let State::Calling {
            purpose: CallPurpose::SetUp(setup),
            ..
        } = &mut self.state
            && setup.method == AttachMethod::Load
        {
            setup.replayed_updates += 1;
            return if imports {
                History::New
            } else {
                History::Known
            };
        }
        match &mut self.replay {
            Some(replay) => replay.note_update(limits, now),
            None => History::Live,
        }
    }

    pub(super) fn replay_deadline(&self) -> Option<Instant> {
        self.replay.as_ref().map(Replay::next_check)
    }

    /// Ends a replay that is quiet. `has_unread`: output of the agent has not been read yet.
    pub(super) fn check_replay(&mut self, has_unread: bool, limits: &Limits, now: Instant) {
        if self
            .replay
            .as_mut()
            .is_some_and(|replay| replay.is_over(has_unread, limits, now))
        {
            self.replay = None;
        }
    }

    pub(super) fn owner_of(&self, id: &str, own: Option<&str>) -> SessionOwner {
        if own == Some(id) {
            SessionOwner::ThisSession
        } else if self.subagents.contains(id) {
            SessionOwner::Subagent
        } else {
            SessionOwner::Unknown
        }
    }

    /// Accepts updates of the child session that a `subagent_update` announces. Returns false if there are too many, or if
    /// its id is too long.
    pub(super) fn announce_subagent(&mut self, announced: &RawValue) -> bool {
        let Some(id) = update::subagent_of(announced) else {
            return true;
        };
        self.subagents.contains(&*id)
            || (self.subagents.len() < KNOWN_SUBAGENTS
                && id.len() <= SUBAGENT_ID_BYTES
                && self.subagents.insert((&*id).into()))
    }
}

/// A request to create or restore the session.
#[derive(Debug)]
pub(super) struct SetUp {
    pub(super) method: AttachMethod,
    /// The agent's error to `session/resume`, if `session/load` follows it.
    pub(super) resume: Option<RpcError>,
    pub(super) lost_context: Option<LostContext>,
    pub(super) replayed_updates: u64,
    /// Updates that arrived before the agent's session id was known.
    pub(super) updates: VecDeque<Box<RawValue>>,
    bytes: usize,
    discarded: DiscardCounter,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct LostContext {
    pub(super) reason: LostReason,
    pub(super) detail: Option<String>,
}

/// Counts input of the agent that the gateway discards. Limits the rate of the log messages about it.
#[derive(Debug, Default)]
pub(super) struct DiscardCounter(u64);

impl DiscardCounter {
    /// Increments the counter. Returns the count if it should be logged: at every power of two.
    pub(super) fn increment(&mut self) -> Option<u64> {
        self.0 += 1;
        self.0.is_power_of_two().then_some(self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttachMethod {
    New,
    Resume,
    Load,
    /// A new agent session without the conversation, because the earlier agent session cannot be restored.
    Fresh,
}

impl SetUp {
    pub(super) fn new(method: AttachMethod) -> Self {
        Self {
            method,
            resume: None,
            lost_context: None,
            replayed_updates: 0,
            updates: VecDeque::new(),
            bytes: 0,
            discarded: DiscardCounter::default(),
        }
    }

    pub(super) fn load_after(resume: RpcError) -> Self {
        Self {
            resume: Some(resume),
            ..Self::new(AttachMethod::Load)
        }
    }

    pub(super) fn fresh(reason: LostReason, detail: Option<String>) -> Self {
        Self {
            lost_context: Some(LostContext { reason, detail }),
            ..Self::new(AttachMethod::Fresh)
        }
    }

    pub(super) fn has_no_updates(&self) -> bool {
        self.replayed_updates == 0 && self.updates.is_empty()
    }

    /// Buffers an update. Discards the oldest updates above the limits.
    pub(super) fn buffer(&mut self, params: Box<RawValue>, limits: &Limits) {
        self.bytes += params.get().len();
        self.updates.push_back(params);
        while self.updates.len() > limits.max_pre_attach_updates
            || self.bytes > limits.max_batch_bytes
        {
            let Some(oldest) = self.updates.pop_front() else {
                return;
            };
            self.bytes -= oldest.get().len();
            if let Some(discarded) = self.discarded.increment() {
                tracing::warn!(
                    discarded,
                    "discarded an update that arrived before its session was known; the buffer is full"
                );
            }
        }
    }
}

impl AttachMethod {
    pub(super) const fn is_new(self) -> bool {
        matches!(self, Self::New | Self::Fresh)
    }

    pub(super) const fn attached_by(self) -> AttachedBy {
        match self {
            Self::New => AttachedBy::New,
            Self::Resume => AttachedBy::Resume,
            Self::Load => AttachedBy::Load,
            Self::Fresh => AttachedBy::Fresh,
        }
    }

    pub(super) fn method(self, version: AcpVersion) -> &'static str {
        match self {
            Self::New | Self::Fresh => acp::method::SESSION_NEW,
            Self::Resume => acp::method::SESSION_RESUME,
            Self::Load => version.replay_method(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    Live,
    /// The update is history that is new to the log.
    New,
    /// The log already contains this history.
    Known,
}

pub(super) struct Replay {
    /// The replay ends at this time if no update arrives before.
    quiet_at: Instant,
    /// The replay ends at this time even if updates still arrive.
    deadline: Instant,
    is_new: bool,
}

impl Replay {
    pub(super) fn new(is_new: bool, limits: &Limits, now: Instant) -> Self {
        Self {
            quiet_at: now + limits.replay_quiet_interval,
            deadline: now + limits.replay_quiet_timeout,
            is_new,
        }
    }

    pub(super) fn note_update(&mut self, limits: &Limits, now: Instant) -> History {
        self.quiet_at = now + limits.replay_quiet_interval;
        if self.is_new {
            History::New
        } else {
            History::Known
        }
    }

    pub(super) fn next_check(&self) -> Instant {
        self.quiet_at.min(self.deadline)
    }

    /// Whether the replay has ended. Output that the agent has already written (`has_unread`) extends it.
    pub(super) fn is_over(&mut self, has_unread: bool, limits: &Limits, now: Instant) -> bool {
        if now < self.next_check() {
            return false;
        }
        if has_unread && now < self.deadline {
            self.quiet_at = now + limits.replay_quiet_interval;
            return false;
        }
        true
    }
}

/// How far a process is with the sign-in that it needs to load the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LoadSignIn {
    #[default]
    NotTried,
    /// The process opened a new session, so its key works or the error was transient.
    KeyChecked,
    SignedIn,
}

impl LoadSignIn {
    pub(super) fn next(self) -> Self {
        match self {
            Self::NotTried => Self::KeyChecked,
            Self::KeyChecked | Self::SignedIn => Self::SignedIn,
        }
    }
}

/// The failed attempts to restore the session since a process was first requested for it.
pub(super) struct Restoring {
    /// No attempt happens after this time.
    pub(super) deadline: Instant,
    attempts: u32,
    pub(super) in_use: bool,
    pub(super) error: RpcError,
}

/// The facts that decide how a process gets the session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup<'a> {
    /// Whether the session was adopted or forked, so the agent already has it.
    pub(crate) is_imported: bool,
    /// Whether the agent has a session for this one.
    pub(crate) has_agent_session: bool,
    /// Whether a new agent session may replace an empty one. Some agents cannot restore empty sessions.
    pub(crate) replaces_empty: bool,
    pub(crate) capabilities: &'a AgentCapabilities,
}

impl Setup<'_> {
    /// The method that creates or restores the session. `None` if the agent cannot move its own sessions.
    pub(crate) fn method(self) -> Option<AttachMethod> {
        let capabilities = self.capabilities;
        if self.is_imported {
            // With its history, if the agent can replay it.
            return match (capabilities.can_replay, capabilities.session.resume) {
                (true, _) => Some(AttachMethod::Load),
                (false, true) => Some(AttachMethod::Resume),
                (false, false) => None,
            };
        }
        Some(match self.has_agent_session {
            false => AttachMethod::New,
            true if self.replaces_empty => AttachMethod::Fresh,
            true if capabilities.session.resume => AttachMethod::Resume,
            true if capabilities.load_session => AttachMethod::Load,
            true => AttachMethod::Fresh,
        })
    }
}

/// The step after the agent did not resume or load the session.
#[derive(Debug)]
pub(crate) enum RestoreStep {
    /// The agent did not resume the session, and may be able to load it. The error is that of the resume.
    Load(RpcError),
    SignIn(RpcError),
    Reject(RpcError),
    Begin(LostReason, RpcError),
    /// Another attempt may succeed. `in_use`: another process uses the session.
    Retry {
        error: RpcError,
        in_use: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RestoreAttempt<'a> {
    pub(crate) method: AttachMethod,
    pub(crate) agent_session: &'a str,
    pub(crate) can_load: bool,
    /// Whether the session is being adopted or forked.
    pub(crate) is_imported: bool,
}

impl RestoreStep {
    /// Decides the step after `error`. `resume` is the agent's error to the `session/resume` that preceded a
    /// `session/load`.
    pub(crate) fn after(
        attempt: RestoreAttempt<'_>,
        error: RpcError,
        resume: Option<RpcError>,
    ) -> Self {
        let failure = RestoreFailure::classify(&error, attempt.agent_session);
        let may_load = !matches!(
            failure,
            RestoreFailure::InUse | RestoreFailure::AuthRequired
        );
        if attempt.method == AttachMethod::Resume && attempt.can_load && may_load {
            return Self::Load(error);
        }
        // Some agents advertise both methods and implement one. The error of the implemented method counts.
        let (failure, error) = match (failure, resume) {
            (RestoreFailure::Unsupported, Some(resume)) => (
                RestoreFailure::classify(&resume, attempt.agent_session),
                resume,
            ),
            (failure, _) => (failure, error),
        };
        match failure {
            RestoreFailure::AuthRequired if attempt.method == AttachMethod::Load => {
                Self::SignIn(error)
            }
            RestoreFailure::AuthRequired => Self::Reject(error),
            RestoreFailure::InUse => Self::Retry {
                error,
                in_use: true,
            },
            _ if attempt.is_imported => Self::Reject(error),
            RestoreFailure::NotFound => Self::Begin(LostReason::NotFound, error),
            RestoreFailure::Unsupported => Self::Begin(LostReason::Unsupported, error),
            RestoreFailure::Other => Self::Retry {
                error,
                in_use: false,
            },
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// Whether other sessions may use the process. False if at least two attempts failed and the last error is
    /// not "session in use". The process is then stopped.
    pub(crate) is_healthy: bool,
    /// When the next attempt happens. `None`: the attempts are exhausted.
    pub(crate) at: Option<Instant>,
}

impl Restoring {
    /// Counts another failed attempt. `deadline`: that of all attempts, if this is the first one.
    pub(super) fn after(
        former: Option<Self>,
        error: RpcError,
        in_use: bool,
        deadline: Instant,
    ) -> Self {
        let (deadline, attempts) =
            former.map_or((deadline, 0), |former| (former.deadline, former.attempts));
        Self {
            deadline,
            attempts: attempts + 1,
            in_use,
            error,
        }
    }

    pub(super) fn retry(&self, now: Instant) -> Retry {
        let doubled =
            RESTORE_BACKOFF_MIN * 2_u32.saturating_pow(self.attempts.saturating_sub(1).min(16));
        let at = now + doubled.min(RESTORE_BACKOFF_MAX);
        let exhausted = at >= self.deadline || (!self.in_use && self.attempts >= RESTORE_ATTEMPTS);
        Retry {
            is_healthy: self.in_use || self.attempts < 2,
            at: (!exhausted).then_some(at),
        }
    }
}
