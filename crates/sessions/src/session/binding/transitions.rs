//! The transitions between the states of a binding. They send and append nothing.

use serde_json::value::RawValue;
use tokio::time::{Duration, Instant};

use super::state::{
    CallPurpose, History, LoadSignIn, RESTORE_ATTEMPTS, RESTORE_BACKOFF_MAX, RESTORE_BACKOFF_MIN,
    Replay, Restoring, Retry, SessionOwner, SetupMethod, State,
};
use super::{Binding, MAX_REPLACED_PROCESSES};
use crate::limits::Limits;
use crate::transcript::SUBAGENT_ID_BYTES;
use wire::acp::update;
use wire::jsonrpc::{CallId, RpcError};

/// The number of subagents that a session's process may have. Updates of later subagents are discarded.
pub(super) const KNOWN_SUBAGENTS: usize = 1024;

impl Binding {
    pub(crate) fn is_detached(&self) -> bool {
        matches!(self.state, State::Detached)
    }

    pub(crate) fn is_attached(&self) -> bool {
        matches!(self.state, State::Attached)
    }

    pub(crate) fn is_releasing(&self) -> bool {
        matches!(
            self.state,
            State::Calling {
                purpose: CallPurpose::Release { .. },
                ..
            }
        )
    }

    /// Whether the session can send a prompt: it is attached, and no replay is under way.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_attached() && self.replay.is_none()
    }

    pub(crate) fn is_retrying(&self) -> bool {
        matches!(self.state, State::Retrying { .. })
    }

    /// Whether the session must not request a process now: it has a process, or a retry is scheduled.
    pub(super) fn needs_no_request(&self) -> bool {
        !self.waits_for_process() || self.is_retrying()
    }

    /// Whether the session has no usable process. Clients with open calls then wait for a process. During the setup
    /// they wait for the agent instead.
    pub(crate) fn waits_for_process(&self) -> bool {
        !self.is_attached() && self.open_call().is_none()
    }

    pub(crate) fn touch(&mut self, now: Instant) {
        self.idle_since = now;
    }

    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    // Transitions.

    /// Detached to Queued: the session is in the pool's queue.
    pub(super) fn queued(&mut self, now: Instant) {
        if self.is_detached() {
            self.state = State::Queued { since: now };
        }
    }

    pub(crate) fn wait_until(&mut self, at: Instant) {
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
    pub(crate) fn answered(&mut self, id: CallId) -> Option<CallPurpose> {
        match std::mem::replace(&mut self.state, State::Attached) {
            State::Calling { call, purpose, .. } if call == id => return Some(purpose),
            other => self.state = other,
        }
        None
    }

    /// The agent has the session. `imports`: its history is new to the log. `has_turn`: a turn waits for the process.
    pub(super) fn enter_attached(
        &mut self,
        method: SetupMethod,
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
        self.unproven = matches!(method, SetupMethod::Resume | SetupMethod::Load);
        if method == SetupMethod::Load {
            self.replay = Some(Replay::new(imports, limits, now));
        }
    }

    pub(crate) fn detach(&mut self) {
        self.state = State::Detached;
    }

    /// Detached, or Queued if the session waits for its next process.
    pub(crate) fn enter_detached(&mut self, now: Instant) {
        self.detach();
        if self.pending.is_some() {
            self.queued(now);
        }
        self.touch(now);
    }

    /// Ends all attempts to attach: the attach failed, or the gateway drains.
    pub(crate) fn abandon(&mut self) {
        self.state = State::Detached;
        self.restoring = None;
    }

    /// Clears the state of the process, which the session releases. The next process reuses request ids.
    pub(super) fn process_released(&mut self) {
        self.replay = None;
        self.unproven = false;
        self.load_sign_in = LoadSignIn::default();
        self.subagents.clear();
    }

    // Calls and deadlines.

    /// The open call of a setup or a sign-in.
    pub(crate) fn open_call(&self) -> Option<CallId> {
        match &self.state {
            State::Calling { call, .. } if !self.is_releasing() => Some(*call),
            _ => None,
        }
    }

    /// When the current state has lasted for too long. `idle_timeout`: how long the session keeps the process that it does
    /// not need, or `None` if it needs the process.
    pub(crate) fn deadline(
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

    /// Ends the open call without a response. Returns its id and its purpose.
    pub(crate) fn take_call(&mut self) -> Option<(CallId, CallPurpose)> {
        let State::Calling { call, .. } = self.state else {
            return None;
        };
        Some((call, self.answered(call)?))
    }

    // Restore.

    /// Counts a failed attempt to restore the session, and schedules the next one. `timeout`: how long attempts may take
    /// together.
    pub(crate) fn retry_restore(
        &mut self,
        error: RpcError,
        in_use: bool,
        timeout: Duration,
        now: Instant,
    ) -> Retry {
        let (deadline, attempts) = match self.restoring.take() {
            Some(previous) => (previous.deadline, previous.attempts + 1),
            None => (now + timeout, 1),
        };
        let doubled = RESTORE_BACKOFF_MIN * 2_u32.saturating_pow((attempts - 1).min(16));
        let at = now + doubled.min(RESTORE_BACKOFF_MAX);
        let exhausted = at >= deadline || (!in_use && attempts >= RESTORE_ATTEMPTS);
        self.restoring = Some(Restoring {
            deadline,
            attempts,
            in_use,
            error,
        });
        Retry {
            is_healthy: in_use || attempts < 2,
            at: (!exhausted).then_some(at),
        }
    }

    /// The error of the last attempt to restore the session.
    pub(crate) fn restore_error(&self) -> Option<RpcError> {
        let restoring = self.restoring.as_ref()?;
        Some(restoring.error.clone())
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.restoring
            .as_ref()
            .is_some_and(|restoring| restoring.in_use)
    }

    /// Handles the first response to a prompt after a restore. `rejected`: the agent does not know the session. Returns
    /// true if the restore did not work.
    pub(crate) fn prompt_answered(&mut self, rejected: bool) -> bool {
        self.unproven &= rejected;
        self.unproven
    }

    pub(super) fn load_sign_in(&self) -> LoadSignIn {
        self.load_sign_in
    }

    pub(crate) fn sign_in_advanced(&mut self) {
        self.load_sign_in = self.load_sign_in.next();
    }

    // Processes that died while they were idle.

    /// Whether the session needs its process and has not used it yet. During the setup, any update counts as use. After
    /// the setup, a sent prompt counts. `is_turn_unsent`: the prompt of the running turn was not sent.
    pub(crate) fn is_process_unused(&self, is_turn_unsent: bool) -> bool {
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
    pub(crate) fn may_replace(&mut self) -> bool {
        self.replaced_processes += 1;
        self.replaced_processes <= MAX_REPLACED_PROCESSES
    }

    pub(crate) fn reset_replaced(&mut self) {
        self.replaced_processes = 0;
    }

    // Updates.

    /// Keeps an update that arrives before the agent's session id is known. Returns all other updates.
    pub(crate) fn buffer_update(
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
    pub(crate) fn classify_update(
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
            && setup.method == SetupMethod::Load
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

    pub(crate) fn replay_deadline(&self) -> Option<Instant> {
        self.replay.as_ref().map(Replay::next_check)
    }

    /// Ends a replay that is quiet. `has_unread`: output of the agent has not been read yet.
    pub(crate) fn check_replay(&mut self, has_unread: bool, limits: &Limits, now: Instant) {
        if self
            .replay
            .as_mut()
            .is_some_and(|replay| replay.is_over(has_unread, limits, now))
        {
            self.replay = None;
        }
    }

    pub(crate) fn owner_of(&self, id: &str, own: Option<&str>) -> SessionOwner {
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
    pub(crate) fn announce_subagent(&mut self, announced: &RawValue) -> bool {
        let Some(id) = update::subagent_of(announced) else {
            return true;
        };
        self.subagents.contains(&*id)
            || (self.subagents.len() < KNOWN_SUBAGENTS
                && id.len() <= SUBAGENT_ID_BYTES
                && self.subagents.insert((&*id).into()))
    }
}
