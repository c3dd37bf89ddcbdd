use super::*;
use crate::session::requests::answers::{allows, answer_wait};
use agents::agent::{AgentSpec, Permissions};
use events::api::{OnTimeout, PermissionPolicy, SessionPolicy};

fn spec(on_timeout: OnTimeout, timeout: u64, allow: &[&str]) -> AgentSpec {
    let mut spec = AgentSpec::removed("a".parse().unwrap());
    spec.settings.permissions = Permissions {
        on_timeout,
        timeout: seconds(timeout),
        allow: owned(allow),
    };
    spec
}

fn owned(kinds: &[&str]) -> Vec<String> {
    kinds.iter().map(|kind| (*kind).to_owned()).collect()
}

fn narrowed(permissions: PermissionPolicy) -> SessionPolicy {
    SessionPolicy {
        permissions: Some(permissions),
        ..SessionPolicy::default()
    }
}

#[test]
fn the_policy_of_the_session_only_shortens_the_wait() {
    let reject = OnTimeout::Reject;
    let wait = OnTimeout::Wait;
    // (setting of the agent with a timeout of 60 s, policy of the session, its timeout, wait)
    for (agent, on_timeout, timeout_seconds, expected) in [
        (reject, None, None, Wait::AtMost(seconds(60))),
        (reject, None, Some(20), Wait::AtMost(seconds(20))),
        (reject, None, Some(90), Wait::AtMost(seconds(60))),
        (reject, Some(wait), None, Wait::AtMost(seconds(60))),
        (reject, Some(wait), Some(20), Wait::AtMost(seconds(20))),
        (reject, Some(reject), Some(20), Wait::AtMost(seconds(20))),
        (wait, None, None, Wait::Turn),
        (wait, Some(wait), None, Wait::Turn),
        (wait, Some(reject), None, Wait::AtMost(seconds(60))),
        (wait, Some(reject), Some(20), Wait::AtMost(seconds(20))),
        (wait, Some(reject), Some(90), Wait::AtMost(seconds(60))),
        // A timeout without a rejection does not limit the wait.
        (wait, None, Some(20), Wait::Turn),
    ] {
        let policy = narrowed(PermissionPolicy {
            on_timeout,
            timeout_seconds,
            allow: None,
        });
        let found = answer_wait(&spec(agent, 60, &[]), &policy);
        assert_eq!(
            found, expected,
            "{agent:?} {on_timeout:?} {timeout_seconds:?}"
        );
    }
    let none = SessionPolicy::default();
    assert_eq!(
        answer_wait(&spec(reject, 60, &[]), &none),
        Wait::AtMost(seconds(60))
    );
    assert_eq!(answer_wait(&spec(wait, 60, &[]), &none), Wait::Turn);
}

#[test]
fn a_tool_needs_no_question_only_if_both_policies_allow_it() {
    type Kinds = &'static [&'static str];
    // (list of the agent, list of the session, kind of the tool, allowed)
    let rows: [(Kinds, Option<Kinds>, Option<&str>, bool); 8] = [
        (&["read"], None, Some("read"), true),
        (&["read"], None, Some("edit"), false),
        (&["read"], None, None, false),
        (&[], None, Some("read"), false),
        (&["read", "edit"], Some(&["read"]), Some("read"), true),
        (&["read", "edit"], Some(&["read"]), Some("edit"), false),
        (&["read"], Some(&["read", "edit"]), Some("edit"), false),
        (&["read"], Some(&[]), Some("read"), false),
    ];
    for (agent, session, kind, expected) in rows {
        let policy = narrowed(PermissionPolicy {
            allow: session.map(owned),
            ..PermissionPolicy::default()
        });
        let allowed = allows(&spec(OnTimeout::Reject, 60, agent), &policy, kind);
        assert_eq!(allowed, expected, "{agent:?} {session:?} {kind:?}");
    }
}
