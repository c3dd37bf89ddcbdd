//! The attachment of a session to a process: the state machine from the request for a process to its release (ACP,
//! Session Setup).
//!
//! This part holds no process. It decides which state follows an input, which method restores the session, and when a
//! state has lasted for too long. The actor calls one method for each transition, and sends to the pool and the agent.
//!
//! Reading order: this file, `setup` and `restore` (the setup on a process, and attempts to restore), `replay` (history
//! after a load), `sign_in` (a load that needs a sign-in).
//!
//! The gateway detects agents that lock sessions or send late history, and has no table of them. A table would be wrong
//! for unknown agents and for the next version of a known one. Instead, the next prompt waits for a quiet interval
//! after each load.
//!
//! A session that waits for a locked session holds no process. Otherwise two sessions could wait for the processes of
//! each other.
//!
//! Some agents answer a load of an unknown session with success and reject the first prompt. The gateway then begins a
//! new agent session on the same process, once for each process.

mod replay;
mod restore;
mod setup;
mod sign_in;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::value::RawValue;
use tokio::time::{Duration, Instant};

pub(super) use self::replay::History;
use self::replay::Replay;
use self::restore::Restoring;
pub(super) use self::restore::{RestoreAttempt, RestoreStep, Retry, Setup};
pub(super) use self::setup::{AttachMethod, DiscardCounter, LostContext, SetUp};
pub(super) use self::sign_in::LoadSignIn;
use crate::acp::update;
use crate::jsonrpc::{CallId, RpcError};
use crate::types::Limits;
use crate::types::limits::{KNOWN_SUBAGENTS, SUBAGENT_ID_BYTES};

/// The maximum number of idle processes that die before the session reports the failure.
const MAX_REPLACED_PROCESSES: u32 = 2;

#[derive(Debug)]
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

/// The state of the session's process.
#[derive(Debug)]
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
    /// A call of the attachment waits for the agent's response.
    Calling {
        call: CallId,
        deadline: Instant,
        purpose: CallPurpose,
    },
    Attached,
}

/// The purpose of a call of the attachment.
#[derive(Debug)]
pub(super) enum CallPurpose {
    /// The agent is creating or restoring the session.
    SetUp(SetUp),
    /// The agent did not load the session without a sign-in. The gateway has sent a step of the sign-in.
    SignIn { load_error: RpcError },
    /// The agent is closing or deleting the session. A process that closed a session (`closes`) can serve another one.
    Release { closes: bool },
}

/// The effect of a deadline of the attachment.
#[derive(Debug)]
pub(super) enum Overdue {
    /// No process became available. The error is that of the last attempt to restore the session.
    Queue {
        restore_error: Option<RpcError>,
    },
    /// The time of the next request for a process has come.
    Retry,
    /// The agent did not respond.
    Call(CallId, CallPurpose),
    Idle,
}

/// The owner of an agent's session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionOwner {
    /// The session itself.
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

    /// Notes that the session needed its process.
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

    /// Waits until `at` before the session asks for a process.
    pub(super) fn wait_until(&mut self, at: Instant) {
        self.state = State::Retrying { at };
    }

    /// The gateway has sent a call to the agent.
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

    /// Any state to Detached.
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

    /// Whether another process used the session at the last attempt to restore it.
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

    /// The progress of the sign-in that the process needs to load the session.
    pub(super) fn load_sign_in(&self) -> LoadSignIn {
        self.load_sign_in
    }

    /// Notes that the agent accepted a step of the sign-in.
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

    /// The session used its process, or reported the failure.
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

    /// When a replay that follows the response to the load may have ended.
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

    /// The owner of an agent's session id. `own`: the agent's id of this session.
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
