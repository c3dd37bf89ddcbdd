use super::super::state::RESTORE_ATTEMPTS;
use super::*;
use events::event::LostReason;
use wire::acp::AgentCapabilities;

const ID: &str = "agent-1";

fn capabilities(load: bool, replay: bool, resume: bool) -> AgentCapabilities {
    let mut capabilities = AgentCapabilities {
        load_session: load,
        can_replay: replay,
        ..AgentCapabilities::default()
    };
    capabilities.session.resume = resume;
    capabilities
}

/// The method that the documentation of [`SetupMethod::choose`] requires.
fn expected_method(
    imported: bool,
    has: bool,
    replaces_empty: bool,
    agent: &AgentCapabilities,
) -> Option<SetupMethod> {
    let load = agent.load_session;
    let replay = agent.can_replay;
    let resume = agent.session.resume;
    let with_history = if replay {
        Some(SetupMethod::Load)
    } else {
        resume.then_some(SetupMethod::Resume)
    };
    let without_history = match (resume, load) {
        (true, _) => SetupMethod::Resume,
        (false, true) => SetupMethod::Load,
        (false, false) => SetupMethod::Fresh,
    };
    match (imported, has, replaces_empty) {
        (true, ..) => with_history,
        (false, false, _) => Some(SetupMethod::New),
        (false, true, true) => Some(SetupMethod::Fresh),
        (false, true, false) => Some(without_history),
    }
}

#[test]
fn the_method_of_the_setup_depends_on_the_session_and_the_agent() {
    for bits in 0_u8..64 {
        let bit = |at: u8| bits & (1 << at) != 0;
        let capabilities = capabilities(bit(3), bit(4), bit(5));
        assert_eq!(
            SetupMethod::choose(bit(0), bit(1), bit(2), &capabilities),
            expected_method(bit(0), bit(1), bit(2), &capabilities),
            "{bits:b}"
        );
    }
}

#[test]
fn agents_of_each_kind_restore_a_session_with_the_best_method() {
    // ((load, replay, resume), method of a session with a conversation, method of an imported session)
    for ((load, replay, resume), restored, imported) in [
        ((false, false, false), SetupMethod::Fresh, None),
        (
            (true, true, false),
            SetupMethod::Load,
            Some(SetupMethod::Load),
        ),
        (
            (true, true, true),
            SetupMethod::Resume,
            Some(SetupMethod::Load),
        ),
        (
            (false, false, true),
            SetupMethod::Resume,
            Some(SetupMethod::Resume),
        ),
        // ACP v2: resume replays.
        (
            (false, true, true),
            SetupMethod::Resume,
            Some(SetupMethod::Load),
        ),
    ] {
        let capabilities = capabilities(load, replay, resume);
        let choose = |imports| SetupMethod::choose(imports, true, false, &capabilities);
        assert_eq!(choose(false), Some(restored));
        assert_eq!(choose(true), imported);
    }
}

/// A kind of the agent's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    NotFound,
    Unsupported,
    InUse,
    Auth,
    Other,
}

use Kind::{Auth, InUse, NotFound, Other, Unsupported};

impl Kind {
    fn error(self) -> RpcError {
        match self {
            NotFound => error(error_code::RESOURCE_NOT_FOUND, "session not found"),
            Unsupported => error(error_code::METHOD_NOT_FOUND, "method not found"),
            InUse => error(-32600, "the session is in use"),
            Auth => auth_required(),
            Other => other_error(),
        }
    }
}

/// The step as text, with the code of its error.
fn named(step: RestoreStep) -> String {
    match step {
        RestoreStep::Load(error) => format!("load {}", error.code),
        RestoreStep::SignIn(error) => format!("sign in {}", error.code),
        RestoreStep::Reject(error) => format!("reject {}", error.code),
        RestoreStep::Begin(reason, error) => format!("begin {} {}", reason.into_str(), error.code),
        RestoreStep::Retry {
            error,
            in_use: true,
        } => format!("retry in use {}", error.code),
        RestoreStep::Retry {
            error,
            in_use: false,
        } => format!("retry {}", error.code),
    }
}

fn step(
    method: SetupMethod,
    can_load: bool,
    is_imported: bool,
    kind: Kind,
    resume: Option<Kind>,
) -> String {
    named(RestoreStep::after(
        method,
        ID,
        can_load,
        is_imported,
        kind.error(),
        resume.map(Kind::error),
    ))
}

#[test]
fn a_rejected_resume_has_one_next_step() {
    // (error, step if the agent can load, step if it cannot, step of an imported session)
    for (kind, with_load, without_load, imported) in [
        (
            NotFound,
            "load -32002",
            "begin not_found -32002",
            "reject -32002",
        ),
        (
            Unsupported,
            "load -32601",
            "begin unsupported -32601",
            "reject -32601",
        ),
        (
            InUse,
            "retry in use -32600",
            "retry in use -32600",
            "retry in use -32600",
        ),
        (Auth, "reject -32000", "reject -32000", "reject -32000"),
        (Other, "load -32603", "retry -32603", "reject -32603"),
    ] {
        let resume = SetupMethod::Resume;
        assert_eq!(step(resume, true, false, kind, None), with_load, "{kind:?}");
        assert_eq!(
            step(resume, false, false, kind, None),
            without_load,
            "{kind:?}"
        );
        assert_eq!(step(resume, false, true, kind, None), imported, "{kind:?}");
        assert_eq!(
            step(resume, true, true, kind, None),
            with_load,
            "{kind:?}: an import loads, too"
        );
    }
}

#[test]
fn a_rejected_load_has_one_next_step() {
    // (error, step, step of an imported session)
    for (kind, restored, imported) in [
        (NotFound, "begin not_found -32002", "reject -32002"),
        (Unsupported, "begin unsupported -32601", "reject -32601"),
        (InUse, "retry in use -32600", "retry in use -32600"),
        (Auth, "sign in -32000", "sign in -32000"),
        (Other, "retry -32603", "reject -32603"),
    ] {
        for can_load in [true, false] {
            let step = |imported, resume| step(SetupMethod::Load, can_load, imported, kind, resume);
            assert_eq!(step(false, None), restored, "{kind:?}");
            assert_eq!(step(true, None), imported, "{kind:?}");
            // The error of the resume counts only if the agent does not implement the load.
            if kind != Unsupported {
                for resume in [NotFound, Unsupported, Other] {
                    assert_eq!(
                        step(false, Some(resume)),
                        restored,
                        "{kind:?} after {resume:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_error_of_the_resume_counts_if_the_agent_does_not_implement_the_load() {
    // (error of the resume, step, step of an imported session)
    for (resume, restored, imported) in [
        (NotFound, "begin not_found -32002", "reject -32002"),
        (Unsupported, "begin unsupported -32601", "reject -32601"),
        (InUse, "retry in use -32600", "retry in use -32600"),
        (Auth, "sign in -32000", "sign in -32000"),
        (Other, "retry -32603", "reject -32603"),
    ] {
        let step = |imported| step(SetupMethod::Load, true, imported, Unsupported, Some(resume));
        assert_eq!(
            (step(false).as_str(), step(true).as_str()),
            (restored, imported),
            "{resume:?}"
        );
    }
}

/// Fails attempts at the given seconds. Returns the milliseconds until the next attempt, and whether the process is
/// healthy.
fn attempts(in_use: bool, timeout: u64, at: &[u64]) -> Vec<(Option<u128>, bool)> {
    let mut fixture = Fixture::new(Phase::Attached);
    let timeout = Duration::from_secs(timeout);
    let fail = |seconds: &u64| {
        let now = fixture.at(*seconds);
        let Retry { is_healthy, at } =
            fixture
                .part
                .retry_restore(other_error(), in_use, timeout, now);
        (at.map(|at| at.duration_since(now).as_millis()), is_healthy)
    };
    at.iter().map(fail).collect()
}

#[test]
fn the_back_off_doubles_until_the_attempts_are_exhausted() {
    assert_eq!(RESTORE_ATTEMPTS, 4);
    assert_eq!(
        attempts(false, 60, &[0, 1, 2, 3]),
        [
            (Some(250), true),
            (Some(500), false),
            (Some(1000), false),
            (None, false)
        ]
    );
}

#[test]
fn a_session_in_use_is_retried_until_the_time_is_over() {
    assert_eq!(
        attempts(true, 60, &[0, 1, 2, 4, 8, 12, 55, 56, 57]),
        [
            (Some(250), true),
            (Some(500), true),
            (Some(1000), true),
            (Some(2000), true),
            (Some(4000), true),
            (Some(4000), true),
            (Some(4000), true),
            // The next attempt would be at second 60.
            (None, true),
            (None, true),
        ]
    );
}

#[test]
fn deadline_of_all_attempts_starts_at_the_first() {
    for in_use in [true, false] {
        assert_eq!(attempts(in_use, 1, &[0])[0].0, Some(250));
        assert_eq!(attempts(in_use, 1, &[0, 1])[1].0, None);
        assert_eq!(attempts(in_use, 0, &[0])[0].0, None);
    }
}

#[test]
fn lost_context_belongs_to_one_fresh_session() {
    let mut fixture = Fixture::new(Phase::Attached);
    fixture.set_up(SetUp::fresh(
        LostReason::NotFound,
        Some("detail".to_owned()),
    ));
    let response = fixture.set_up_answered().unwrap();
    let lost = LostContext {
        reason: LostReason::NotFound,
        detail: Some("detail".to_owned()),
    };
    assert_eq!(
        (response.method, response.lost_context),
        (SetupMethod::Fresh, Some(lost))
    );
    for method in [SetupMethod::New, SetupMethod::Resume, SetupMethod::Load] {
        fixture.set_up(SetUp::new(method));
        assert_eq!(
            fixture.set_up_answered().unwrap().lost_context,
            None,
            "{method:?}"
        );
    }
}

#[test]
fn a_restore_is_unproven_until_the_agent_accepts_a_prompt() {
    // (method of the setup, the agent does not know the session in each response, doubted after each response)
    for (method, rejected, doubted) in [
        (SetupMethod::Resume, [true, true], [true, true]),
        (SetupMethod::Load, [true, false], [true, false]),
        (SetupMethod::Resume, [false, true], [false, false]),
        (SetupMethod::New, [true, true], [false, false]),
        (SetupMethod::Fresh, [true, true], [false, false]),
    ] {
        let mut fixture = Fixture::new(Phase::Detached);
        fixture.attach(method);
        assert_eq!(
            rejected.map(|rejected| fixture.part.prompt_answered(rejected)),
            doubted,
            "{method:?}"
        );
    }
}
