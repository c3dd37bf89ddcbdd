//! Tables of inputs and effects of the binding of a session, without a process or time.
//!
//! All times are seconds after one base time.

mod deadlines;
mod restore;
mod transitions;
mod updates;

use super::state::*;
use super::*;
use crate::limits::Limits;
use crate::session::fixtures::principal;
use base::types::UserId;
use wire::acp::{error_code, update};
use wire::jsonrpc::PendingTables;

/// The part under test in one state, and the ids of its calls.
struct Fixture {
    part: Binding,
    base: Instant,
    call: CallId,
    other_call: CallId,
}

/// A state of the binding, for the rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Detached,
    /// In the pool's queue since second 0.
    Queued,
    /// The next attempt is at second 7.
    Retrying,
    /// Setting up until second 60.
    SettingUp(SetupMethod),
    /// Signing in until second 60.
    SigningIn,
    Attached,
    /// Closing the session at the agent until second 5.
    Releasing,
}

const NEW: Phase = Phase::SettingUp(SetupMethod::New);
const RESUME: Phase = Phase::SettingUp(SetupMethod::Resume);
const LOAD: Phase = Phase::SettingUp(SetupMethod::Load);
const FRESH: Phase = Phase::SettingUp(SetupMethod::Fresh);
const PHASES: [Phase; 10] = [
    Phase::Detached,
    Phase::Queued,
    Phase::Retrying,
    NEW,
    RESUME,
    LOAD,
    FRESH,
    Phase::SigningIn,
    Phase::Attached,
    Phase::Releasing,
];

impl Fixture {
    fn new(phase: Phase) -> Self {
        let mut calls = PendingTables::default();
        let base = Instant::now();
        let call = calls.register_call();
        let other_call = calls.register_call();
        let spec = Arc::new(AgentSpec::removed("a".parse().unwrap()));
        let mut fixture = Self {
            part: Binding::new(spec, principal(UserId::owner()), base),
            base,
            call,
            other_call,
        };
        match phase {
            Phase::Detached => {}
            Phase::Queued => fixture.part.queued(base),
            Phase::Retrying => fixture.part.wait_until(fixture.at(7)),
            Phase::SettingUp(method) => fixture.set_up(SetUp::new(method)),
            Phase::SigningIn => fixture.sign_in(),
            Phase::Attached => fixture.attach(SetupMethod::New),
            Phase::Releasing => fixture.release(true),
        }
        fixture
    }

    fn attach(&mut self, method: SetupMethod) {
        self.part
            .enter_attached(method, false, false, &limits(), self.base);
    }

    fn set_up(&mut self, set_up: SetUp) {
        self.part
            .called(self.call, self.at(60), CallPurpose::SetUp(set_up));
    }

    fn sign_in(&mut self) {
        self.part.called(
            self.call,
            self.at(60),
            CallPurpose::SignIn {
                load_error: auth_required(),
            },
        );
    }

    fn release(&mut self, closes: bool) {
        self.part
            .called(self.call, self.at(5), CallPurpose::Release { closes });
    }

    /// Ends the setup with the agent's response.
    fn set_up_answered(&mut self) -> Option<SetUp> {
        match self.part.answered(self.call)? {
            CallPurpose::SetUp(set_up) => Some(set_up),
            other => panic!("not a setup: {other:?}"),
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.base + Duration::from_secs(seconds)
    }

    /// The seconds from the base time.
    fn seconds(&self, at: Option<Instant>) -> Option<u64> {
        at.map(|at| at.duration_since(self.base).as_secs())
    }

    /// The state, as clients of the part see it.
    fn phase(&self) -> Phase {
        match &self.part.state {
            State::Detached => Phase::Detached,
            State::Queued { .. } => Phase::Queued,
            State::Retrying { .. } => Phase::Retrying,
            State::Calling {
                purpose: CallPurpose::SetUp(setup),
                ..
            } => Phase::SettingUp(setup.method),
            State::Calling {
                purpose: CallPurpose::SignIn { .. },
                ..
            } => Phase::SigningIn,
            State::Calling {
                purpose: CallPurpose::Release { .. },
                ..
            } => Phase::Releasing,
            State::Attached => Phase::Attached,
        }
    }
}

fn limits() -> Limits {
    Limits {
        queue_timeout: Duration::from_secs(100),
        replay_quiet_interval: Duration::from_secs(2),
        replay_quiet_timeout: Duration::from_secs(10),
        max_pre_attach_updates: 3,
        max_pre_attach_bytes: 100,
        ..Limits::default()
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn error(code: i64, message: &str) -> RpcError {
    RpcError {
        code,
        message: message.to_owned(),
        data: None,
    }
}

fn auth_required() -> RpcError {
    error(error_code::AUTH_REQUIRED, "sign in")
}

fn other_error() -> RpcError {
    error(error_code::INTERNAL, "the model is overloaded")
}
