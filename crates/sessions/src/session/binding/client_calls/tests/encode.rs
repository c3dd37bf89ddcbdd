use super::*;
use crate::session::error::{CallError, InputError, ProcessError, SessionError, TurnRunning};
use crate::session::validation::can_fork;
use agents::agent::{AgentFailure, AgentSpec};
use base::types::PromptId;
use wire::acp::{self, AcpVersion, AgentCapabilities, ConfigValue, ModePolicy, SessionSetup};

const ID: &str = "agent-1";
const OPTIONS: &str =
    r#"[{"configId":"model","category":"model"},{"configId":"how","category":"mode"}]"#;

/// An agent that supports everything.
fn capable() -> AgentCapabilities {
    let mut capabilities = AgentCapabilities {
        load_session: true,
        ..AgentCapabilities::default()
    };
    capabilities.session.fork = true;
    capabilities
}

/// The method and the params for the agent, or the error for the client.
fn encoded(
    version: AcpVersion,
    options: Option<&str>,
    call: &ClientCall,
    trace: Option<&TraceContext>,
) -> String {
    let capabilities = capable();
    let options = options.map(raw);
    let setup = SessionSetup {
        cwd: "/w",
        mcp_servers: &[],
        additional_directories: &[],
        meta: None,
    };
    let options = options.as_deref();
    match encode_call(call, ID, version, &capabilities, options, setup, trace) {
        Ok((method, params)) => format!("{method} {params}"),
        Err(error) => named(&error),
    }
}

fn named(error: &CallError) -> String {
    match error {
        CallError::Process(ProcessError::Agent(AgentFailure::Unsupported { method })) => {
            format!("unsupported {method}")
        }
        CallError::Input(InputError::Invalid(errors)) => format!("invalid {}", errors[0].pointer),
        CallError::Input(InputError::Forbidden(_)) => "forbidden".to_owned(),
        CallError::TurnRunning(TurnRunning(prompt)) => format!("{prompt} runs"),
        CallError::Session(SessionError::Internal) => "internal".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn each_call_is_encoded_for_the_agent() {
    let expected = [
        r#"session/set_mode {"sessionId":"agent-1","modeId":"ask"}"#,
        r#"session/set_config_option {"sessionId":"agent-1","configId":"web","type":"boolean","value":true}"#,
        r#"tool_call/cancel {"sessionId":"agent-1","toolCallId":"c"}"#,
        r#"terminal/cancel {"sessionId":"agent-1","terminalId":"t"}"#,
        r#"session/fork {"sessionId":"agent-1","cwd":"/w","mcpServers":[]}"#,
        r#"session/close {"sessionId":"agent-2"}"#,
        r#"_vendor/a {"sessionId":"agent-1"}"#,
    ];
    for (call, expected) in calls().iter().zip(expected) {
        assert_eq!(encoded(AcpVersion::V1, None, call, None), expected);
        // Only modes and options differ in ACP v2.
        if !matches!(call, ClientCall::Mode(_) | ClientCall::Config { .. }) {
            assert_eq!(encoded(AcpVersion::V2, None, call, None), expected);
        }
    }
}

#[test]
fn a_mode_of_acp_v2_is_an_option() {
    let option = |value: &ConfigValue<'_>, id| {
        let params = acp::set_config_option(AcpVersion::V2, ID, id, value, None);
        format!("session/set_config_option {params}")
    };
    let mode = ClientCall::Mode("ask".to_owned());
    let set = option(&ConfigValue::Id("ask".into()), "how");
    // (options that the agent reported, call)
    for (options, expected) in [
        (Some(OPTIONS), set.as_str()),
        (Some("[]"), "unsupported session/set_mode"),
        (
            Some(r#"[{"configId":"model","category":"model"}]"#),
            "unsupported session/set_mode",
        ),
        (None, "unsupported session/set_mode"),
    ] {
        assert_eq!(
            encoded(AcpVersion::V2, options, &mode, None),
            expected,
            "{options:?}"
        );
        assert!(
            encoded(AcpVersion::V1, options, &mode, None).starts_with("session/set_mode "),
            "{options:?}"
        );
    }
    let web = &calls()[1];
    assert_eq!(
        encoded(AcpVersion::V2, None, web, None),
        option(&ConfigValue::Boolean(true), "web")
    );
}

#[test]
fn every_call_has_the_trace_context_of_its_client() {
    let trace = TraceContext::parse(PARENT, None);
    for call in calls() {
        assert!(
            encoded(AcpVersion::V1, None, &call, trace.as_ref()).contains(PARENT),
            "{call:?}"
        );
        assert!(
            !encoded(AcpVersion::V1, None, &call, None).contains("_meta"),
            "{call:?}"
        );
    }
}

#[test]
fn a_call_by_name_gets_the_id_of_the_agent_and_keeps_its_bytes() {
    for (params, expected) in [
        ("{}", r#"{"sessionId":"agent-1"}"#),
        (r#"{"a": 1.10 }"#, r#"{"sessionId":"agent-1","a": 1.10 }"#),
        (
            r#"{"a":1, "sessionId":"01938c5e-7a3b-7c4d-8e5f-0123456789ab"}"#,
            r#"{"a":1, "sessionId":"agent-1"}"#,
        ),
    ] {
        let call = ClientCall::Rpc {
            method: "_vendor/a".to_owned(),
            params: raw(params),
            notify: true,
        };
        assert_eq!(
            encoded(AcpVersion::V1, None, &call, None),
            format!("_vendor/a {expected}")
        );
    }
}

#[test]
fn a_result_without_a_session_is_no_fork() {
    for result in ["{}", "null", r#"{"sessionId":1}"#] {
        assert_eq!(
            encoded(AcpVersion::V1, None, &ClientCall::Forked(raw(result)), None),
            "internal",
            "{result}"
        );
    }
}

#[test]
fn a_fork_needs_an_agent_that_restores_it_in_another_process() {
    // (fork, load, resume, error)
    for (fork, load, resume, expected) in [
        (true, true, false, None),
        (true, false, true, None),
        (true, true, true, None),
        (
            true,
            false,
            false,
            Some("unsupported session/load or session/resume"),
        ),
        (false, true, true, Some("unsupported session/fork")),
        (false, false, false, Some("unsupported session/fork")),
    ] {
        let mut capabilities = AgentCapabilities {
            load_session: load,
            ..AgentCapabilities::default()
        };
        (capabilities.session.fork, capabilities.session.resume) = (fork, resume);
        let error = can_fork(&capabilities)
            .err()
            .map(|error| named(&error.into()));
        assert_eq!(
            error.is_some(),
            expected.is_some(),
            "{fork} {load} {resume}"
        );
        if let (Some(error), Some(expected)) = (error, expected) {
            assert!(error.starts_with(expected), "{error}");
        }
    }
}

/// The error for a call of a session whose agent lists `_vendor/*`, and the key `vendor.example/x` of `_meta`.
fn checked(accepts_models: bool, running: Option<PromptId>, call: &ClientCall) -> Option<String> {
    let mut spec = AgentSpec::removed("a".parse().unwrap());
    spec.settings.allowed_rpc_methods = vec!["_vendor/*".to_owned()];
    spec.settings.allowed_meta_keys = vec!["vendor.example/x".to_owned()];
    let modes = ModePolicy {
        denied: &spec.settings.denied_modes,
        modes: None,
        config_options: None,
    };
    let checked = check_call(call, session(), &spec, &modes, accepts_models, running);
    checked.err().map(|error| named(&error))
}

#[test]
fn only_a_fork_waits_for_the_end_of_the_turn() {
    let running = Some(PromptId::new(3));
    for call in calls() {
        assert_eq!(checked(false, None, &call), None, "{call:?}");
        let expected = matches!(call, ClientCall::Fork).then_some("p3 runs");
        assert_eq!(
            checked(false, running, &call).as_deref(),
            expected,
            "{call:?}"
        );
    }
}

#[test]
fn the_value_of_an_option_is_an_id_or_a_boolean() {
    for (value, expected) in [
        ("\"fast\"", None),
        ("true", None),
        ("false", None),
        ("1", Some("invalid /value")),
        ("null", Some("invalid /value")),
        ("[]", Some("invalid /value")),
        ("{}", Some("invalid /value")),
    ] {
        let call = ClientCall::Config {
            option: "web".to_owned(),
            value: raw(value),
        };
        assert_eq!(checked(false, None, &call).as_deref(), expected, "{value}");
    }
}

#[test]
fn a_call_by_name_needs_the_permission_of_the_operator() {
    // (method, the agent reports models, error)
    for (method, models, expected) in [
        ("_vendor/a", false, None),
        ("_other/a", false, Some("forbidden")),
        ("session/prompt", false, Some("forbidden")),
        ("session/set_model", false, Some("forbidden")),
        ("session/set_model", true, None),
        ("_other/a", true, Some("forbidden")),
    ] {
        let call = ClientCall::Rpc {
            method: method.to_owned(),
            params: raw("{}"),
            notify: false,
        };
        assert_eq!(
            checked(models, None, &call).as_deref(),
            expected,
            "{method} {models}"
        );
    }
}

#[test]
fn the_params_of_a_call_by_name_are_checked() {
    // (params, error)
    for (params, expected) in [
        ("{}", None),
        (r#"{"sessionId":null}"#, None),
        (
            r#"{"sessionId":"01938c5e-7a3b-7c4d-8e5f-0123456789ab"}"#,
            None,
        ),
        (
            r#"{"sessionId":"agent-1"}"#,
            Some("invalid /params/sessionId"),
        ),
        (r#"{"sessionId":1}"#, Some("invalid /params/sessionId")),
        (
            r#"{"_meta":{"vendor.example/x":1,"traceparent":"a"}}"#,
            None,
        ),
        (r#"{"_meta":{"a/b":1}}"#, Some("invalid /params/_meta/a~1b")),
        (r#"{"mcpServers":[{}]}"#, Some("forbidden")),
        ("[]", Some("invalid /params")),
    ] {
        for (method, models) in [("_vendor/a", false), ("session/set_model", true)] {
            let call = ClientCall::Rpc {
                method: method.to_owned(),
                params: raw(params),
                notify: false,
            };
            assert_eq!(
                checked(models, None, &call).as_deref(),
                expected,
                "{method} {params}"
            );
        }
    }
}
