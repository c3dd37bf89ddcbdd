//! Params of messages about an existing session of the agent. Where v1 and v2 have the same params, the types of
//! v1 are used.

use std::borrow::Cow;

use agent_client_protocol_schema::v1;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::trace::{TraceContext, traced};
use super::version::AcpVersion;
use super::{to_one_line, to_raw};

/// Params with only the session: of `session/close`, `session/delete` and the notification `session/cancel`.
pub fn session_params(session_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    traced(&v1::CancelNotification::new(session_id.to_owned()), trace)
}

/// Params of `session/prompt`. The blocks remain unchanged, except for line ends between tokens.
pub fn prompt(session_id: &str, blocks: &RawValue, trace: Option<&TraceContext>) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        session_id: &'a str,
        prompt: &'a RawValue,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<&'a TraceContext>,
    }
    to_one_line(to_raw(&Params {
        session_id,
        prompt: blocks,
        meta: trace,
    }))
}

/// Params of `session/set_mode`.
pub fn set_mode(session_id: &str, mode_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    traced(
        &v1::SetSessionModeRequest::new(session_id.to_owned(), mode_id.to_owned()),
        trace,
    )
}

/// A value that a client sets for a configuration option.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ConfigValue<'a> {
    /// The id of one of the option's values.
    Id(#[serde(borrow)] Cow<'a, str>),
    Boolean(bool),
}

/// Params of `session/set_config_option`.
pub fn set_config_option(
    version: AcpVersion,
    session_id: &str,
    config_id: &str,
    value: &ConfigValue<'_>,
    trace: Option<&TraceContext>,
) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        session_id: &'a str,
        config_id: &'a str,
        #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
        kind: Option<&'static str>,
        value: &'a ConfigValue<'a>,
    }
    let kind = match (version, value) {
        (_, ConfigValue::Boolean(_)) => Some("boolean"),
        (AcpVersion::V1, ConfigValue::Id(_)) => None,
        (AcpVersion::V2, ConfigValue::Id(_)) => Some("id"),
    };
    traced(
        &Params {
            session_id,
            config_id,
            kind,
            value,
        },
        trace,
    )
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v2;

    use super::*;
    use crate::acp::{parse, raw};

    #[test]
    fn params_match_the_schema() {
        let params = set_mode("s", "ask", None);
        assert_eq!(params.get(), r#"{"sessionId":"s","modeId":"ask"}"#);
        let _: v1::SetSessionModeRequest = serde_json::from_str(params.get()).unwrap();

        let params = set_config_option(
            AcpVersion::V1,
            "s",
            "model",
            &ConfigValue::Id("fast".into()),
            None,
        );
        assert_eq!(
            params.get(),
            r#"{"sessionId":"s","configId":"model","value":"fast"}"#
        );
        let _: v1::SetSessionConfigOptionRequest = serde_json::from_str(params.get()).unwrap();

        let params = set_config_option(
            AcpVersion::V1,
            "s",
            "web",
            &ConfigValue::Boolean(false),
            None,
        );
        assert_eq!(
            params.get(),
            r#"{"sessionId":"s","configId":"web","type":"boolean","value":false}"#
        );
        let _: v1::SetSessionConfigOptionRequest = serde_json::from_str(params.get()).unwrap();

        for value in [ConfigValue::Id("fast".into()), ConfigValue::Boolean(true)] {
            let params = set_config_option(AcpVersion::V2, "s", "model", &value, None);
            let typed: v2::SetSessionConfigOptionRequest =
                serde_json::from_str(params.get()).unwrap();
            let known = typed.value.as_id().is_some() || typed.value.as_bool().is_some();
            assert!(known, "{}", params.get());
        }
        let params = prompt("s", raw(r#"[{"type":"text","text":"hi"}]"#), None);
        let _: v2::PromptRequest = serde_json::from_str(params.get()).unwrap();
        let session = session_params("s", None);
        let _: v2::CancelSessionNotification = parse(&session).unwrap();
        let _: v2::CloseSessionRequest = parse(&session).unwrap();
        let _: v2::DeleteSessionRequest = parse(&session).unwrap();

        assert_eq!(session_params("s\"", None).get(), r#"{"sessionId":"s\""}"#);
    }

    #[test]
    fn a_prompt_is_one_line_and_keeps_its_bytes() {
        let trace = TraceContext::parse(
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            None,
        );
        let blocks = raw("[\n{\"type\":\"text\",\r\n\"text\":\"a\\n\\ud83d\",\"x\":1.10}]");
        insta::assert_snapshot!(prompt("s", blocks, trace.as_ref()).get(), @r#"{"sessionId":"s","prompt":[ {"type":"text",  "text":"a\n\ud83d","x":1.10}],"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}"#);
    }

    #[test]
    fn config_values_are_ids_or_booleans() {
        assert_eq!(
            parse::<ConfigValue<'_>>(raw("\"a\"")).unwrap(),
            ConfigValue::Id("a".into())
        );
        assert_eq!(
            parse::<ConfigValue<'_>>(raw("true")).unwrap(),
            ConfigValue::Boolean(true)
        );
        for wrong in ["1", "null", "[]", "{}", "\"\\ud800\""] {
            assert!(parse::<ConfigValue<'_>>(raw(wrong)).is_err(), "{wrong}");
        }
    }
}
