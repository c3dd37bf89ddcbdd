//! The states of the binding of a session to a process, and the decisions that need no process: which method restores the
//! session, and what follows an error of the agent (ACP, Session Setup).
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

use std::collections::VecDeque;

use serde_json::value::RawValue;
use tokio::time::{Duration, Instant};

use crate::limits::Limits;
use events::event::{AttachedBy, LostReason};
use wire::acp::{self, AcpVersion, AgentCapabilities, RestoreFailure};
use wire::jsonrpc::{CallId, RpcError};

/// The number of attempts to restore a session, unless another client uses the session. After the last
/// attempt, the turn fails.
pub(super) const RESTORE_ATTEMPTS: u32 = 4;
/// The back-off between two attempts to restore a session. It doubles from the minimum to the maximum.
pub(super) const RESTORE_BACKOFF_MIN: Duration = Duration::from_millis(250);
pub(super) const RESTORE_BACKOFF_MAX: Duration = Duration::from_secs(4);

pub(crate) enum State {
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
pub(crate) enum CallPurpose {
    SetUp(SetUp),
    /// The agent rejected `session/load` without a sign-in. The gateway has sent a step of the sign-in.
    SignIn {
        load_error: RpcError,
    },
    /// The agent is closing or deleting the session. A process that closed a session (`closes`) can serve another one.
    Release {
        closes: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionOwner {
    ThisSession,
    /// A child session, at any depth.
    Subagent,
    Unknown,
}

/// A request to create or restore the session.
#[derive(Debug)]
pub(crate) struct SetUp {
    pub(crate) method: SetupMethod,
    /// The agent's error to `session/resume`, if `session/load` follows it.
    pub(crate) resume: Option<RpcError>,
    pub(crate) lost_context: Option<LostContext>,
    pub(crate) replayed_updates: u64,
    /// Updates that arrived before the agent's session id was known.
    pub(crate) updates: VecDeque<Box<RawValue>>,
    bytes: usize,
    discarded: DiscardCounter,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LostContext {
    pub(crate) reason: LostReason,
    pub(crate) detail: Option<String>,
}

/// Counts input of the agent that the gateway discards. Limits the rate of the log messages about it.
#[derive(Debug, Default)]
pub(crate) struct DiscardCounter(u64);

impl DiscardCounter {
    /// Increments the counter. Returns the count if it should be logged: at every power of two.
    pub(crate) fn increment(&mut self) -> Option<u64> {
        self.0 += 1;
        self.0.is_power_of_two().then_some(self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetupMethod {
    New,
    Resume,
    Load,
    /// A new agent session without the conversation, because the earlier agent session cannot be restored or is elsewhere.
    Fresh,
}

impl SetUp {
    pub(crate) fn new(method: SetupMethod) -> Self {
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

    pub(crate) fn load_after(resume: RpcError) -> Self {
        Self {
            resume: Some(resume),
            ..Self::new(SetupMethod::Load)
        }
    }

    pub(crate) fn fresh(reason: LostReason, detail: Option<String>) -> Self {
        Self {
            lost_context: Some(LostContext { reason, detail }),
            ..Self::new(SetupMethod::Fresh)
        }
    }

    pub(crate) fn has_no_updates(&self) -> bool {
        self.replayed_updates == 0 && self.updates.is_empty()
    }

    /// Buffers an update. Discards the oldest updates above the limits.
    pub(crate) fn buffer(&mut self, params: Box<RawValue>, limits: &Limits) {
        self.bytes += params.get().len();
        self.updates.push_back(params);
        while self.updates.len() > limits.max_pre_attach_updates
            || self.bytes > limits.max_pre_attach_bytes
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

impl SetupMethod {
    /// The method that creates or restores the session. `None` if the agent cannot move its own sessions. `is_imported`: the
    /// session was adopted or forked, so the agent already has it. `has_session`: the agent has a session for this one.
    /// `replaces_empty`: a new agent session may replace an empty one. Some agents cannot restore empty sessions.
    pub(crate) fn choose(
        is_imported: bool,
        has_session: bool,
        replaces_empty: bool,
        capabilities: &AgentCapabilities,
    ) -> Option<Self> {
        if is_imported {
            // With its history, if the agent can replay it.
            return match (capabilities.can_replay, capabilities.session.resume) {
                (true, _) => Some(Self::Load),
                (false, true) => Some(Self::Resume),
                (false, false) => None,
            };
        }
        Some(match has_session {
            false => Self::New,
            true if replaces_empty => Self::Fresh,
            true if capabilities.session.resume => Self::Resume,
            true if capabilities.load_session => Self::Load,
            true => Self::Fresh,
        })
    }

    pub(crate) const fn is_new(self) -> bool {
        matches!(self, Self::New | Self::Fresh)
    }

    pub(crate) const fn attached_by(self) -> AttachedBy {
        match self {
            Self::New => AttachedBy::New,
            Self::Resume => AttachedBy::Resume,
            Self::Load => AttachedBy::Load,
            Self::Fresh => AttachedBy::Fresh,
        }
    }

    pub(crate) fn method(self, version: AcpVersion) -> &'static str {
        match self {
            Self::New | Self::Fresh => acp::method::SESSION_NEW,
            Self::Resume => acp::method::SESSION_RESUME,
            Self::Load => version.replay_method(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum History {
    Live,
    /// The update is history that is new to the log.
    New,
    /// The log already contains this history.
    Known,
}

pub(crate) struct Replay {
    /// The replay ends at this time if no update arrives before.
    quiet_at: Instant,
    /// The replay ends at this time even if updates still arrive.
    deadline: Instant,
    is_new: bool,
}

impl Replay {
    pub(crate) fn new(is_new: bool, limits: &Limits, now: Instant) -> Self {
        Self {
            quiet_at: now + limits.replay_quiet_interval,
            deadline: now + limits.replay_quiet_timeout,
            is_new,
        }
    }

    pub(crate) fn note_update(&mut self, limits: &Limits, now: Instant) -> History {
        self.quiet_at = now + limits.replay_quiet_interval;
        if self.is_new {
            History::New
        } else {
            History::Known
        }
    }

    pub(crate) fn next_check(&self) -> Instant {
        self.quiet_at.min(self.deadline)
    }

    /// Whether the replay has ended. Output that the agent has already written (`has_unread`) extends it.
    pub(crate) fn is_over(&mut self, has_unread: bool, limits: &Limits, now: Instant) -> bool {
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
pub(crate) enum LoadSignIn {
    #[default]
    NotTried,
    /// The process opened a new session, so its key works or the error was transient.
    KeyChecked,
    SignedIn,
}

impl LoadSignIn {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::NotTried => Self::KeyChecked,
            Self::KeyChecked | Self::SignedIn => Self::SignedIn,
        }
    }
}

/// The failed attempts to restore the session since a process was first requested for it.
pub(crate) struct Restoring {
    /// No attempt happens after this time.
    pub(crate) deadline: Instant,
    pub(crate) attempts: u32,
    pub(crate) in_use: bool,
    pub(crate) error: RpcError,
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

impl RestoreStep {
    /// Decides the step after `error` to `method`. `resume` is the agent's error to the `session/resume` that preceded a
    /// `session/load`. `is_imported`: the session is being adopted or forked.
    pub(crate) fn after(
        method: SetupMethod,
        agent_session: &str,
        can_load: bool,
        is_imported: bool,
        error: RpcError,
        resume: Option<RpcError>,
    ) -> Self {
        let failure = RestoreFailure::classify(&error, agent_session);
        let may_load = !matches!(
            failure,
            RestoreFailure::InUse | RestoreFailure::AuthRequired
        );
        if method == SetupMethod::Resume && can_load && may_load {
            return Self::Load(error);
        }
        // Some agents advertise both methods and implement one. The error of the implemented method counts.
        let (failure, error) = match (failure, resume) {
            (RestoreFailure::Unsupported, Some(resume)) => {
                (RestoreFailure::classify(&resume, agent_session), resume)
            }
            (failure, _) => (failure, error),
        };
        match failure {
            RestoreFailure::AuthRequired if method == SetupMethod::Load => Self::SignIn(error),
            RestoreFailure::AuthRequired => Self::Reject(error),
            RestoreFailure::InUse => Self::Retry {
                error,
                in_use: true,
            },
            _ if is_imported => Self::Reject(error),
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
