//! Params of messages about an existing session of the agent.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::depth::to_one_line;
use super::to_raw;
use super::trace::{Meta, TraceContext};
use super::version::AcpVersion;
use crate::jsonrpc::CallId;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionParams<'a> {
    session_id: &'a str,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Meta<'a>,
}

/// Params of `session/close`.
pub fn close_session(session_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    to_raw(&SessionParams { session_id, meta: trace })
}

/// Params of `session/delete`.
pub fn delete_session(session_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    close_session(session_id, trace)
}

/// Params of the notification `session/cancel`.
pub fn cancel(session_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    close_session(session_id, trace)
}

/// Params of `$/cancel_request` for a call of the gateway whose result is no longer needed.
pub fn cancel_request(call: CallId) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CancelRequest {
        request_id: u64,
    }
    to_raw(&CancelRequest { request_id: call.number() })
}

/// Params of `session/prompt`. The blocks remain unchanged, except for line ends between tokens.
pub fn prompt(session_id: &str, blocks: &RawValue, trace: Option<&TraceContext>) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        session_id: &'a str,
        prompt: &'a RawValue,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Meta<'a>,
    }
    to_one_line(to_raw(&Params { session_id, prompt: blocks, meta: trace }))
}

/// Params of `session/set_mode`.
pub fn set_mode(session_id: &str, mode_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct SetMode<'a> {
        #[serde(flatten)]
        named: SessionParams<'a>,
        mode_id: &'a str,
    }
    to_raw(&SetMode { named: SessionParams { session_id, meta: trace }, mode_id })
}

/// A value that a client sets for a configuration option.
#[derive(Debug, PartialEq, Eq)]
pub enum ConfigValue<'a> {
    /// The id of one of the option's values.
    Id(Cow<'a, str>),
    Boolean(bool),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of an option must be a string or a boolean")]
pub struct ConfigValueError;

impl<'a> ConfigValue<'a> {
    pub fn parse(value: &'a RawValue) -> Result<Self, ConfigValueError> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        match value.get() {
            "true" => Ok(Self::Boolean(true)),
            "false" => Ok(Self::Boolean(false)),
            text => match serde_json::from_str(text) {
                Ok(Text(id)) => Ok(Self::Id(id)),
                Err(_) => Err(ConfigValueError),
            },
        }
    }
}

/// Params of `session/set_config_option`.
pub fn set_config_option(
    dialect: AcpVersion,
    session_id: &str,
    config_id: &str,
    value: &ConfigValue<'_>,
    trace: Option<&TraceContext>,
) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct SetOption<'a> {
        #[serde(flatten)]
        named: SessionParams<'a>,
        config_id: &'a str,
        #[serde(flatten)]
        value: Value<'a>,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Value<'a> {
        Id {
            /// v2 requires the kind of every value.
            #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
            kind: Option<&'static str>,
            value: &'a str,
        },
        Boolean {
            #[serde(rename = "type")]
            kind: &'static str,
            value: bool,
        },
    }
    let value = match value {
        ConfigValue::Id(id) => Value::Id { kind: (dialect == AcpVersion::V2).then_some("id"), value: id },
        ConfigValue::Boolean(value) => Value::Boolean { kind: "boolean", value: *value },
    };
    to_raw(&SetOption { named: SessionParams { session_id, meta: trace }, config_id, value })
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn params_match_the_schema() {
        let params = set_mode("s", "ask", None);
        assert_eq!(params.get(), r#"{"sessionId":"s","modeId":"ask"}"#);
        let _: v1::SetSessionModeRequest = serde_json::from_str(params.get()).unwrap();

        let params = set_config_option(AcpVersion::V1, "s", "model", &ConfigValue::Id("fast".into()), None);
        assert_eq!(params.get(), r#"{"sessionId":"s","configId":"model","value":"fast"}"#);
        let _: v1::SetSessionConfigOptionRequest = serde_json::from_str(params.get()).unwrap();

        let params = set_config_option(AcpVersion::V1, "s", "web", &ConfigValue::Boolean(false), None);
        assert_eq!(params.get(), r#"{"sessionId":"s","configId":"web","type":"boolean","value":false}"#);
        let _: v1::SetSessionConfigOptionRequest = serde_json::from_str(params.get()).unwrap();

        for value in [ConfigValue::Id("fast".into()), ConfigValue::Boolean(true)] {
            let params = set_config_option(AcpVersion::V2, "s", "model", &value, None);
            let typed: v2::SetSessionConfigOptionRequest = serde_json::from_str(params.get()).unwrap();
            let known = typed.value.as_id().is_some() || typed.value.as_bool().is_some();
            assert!(known, "{}", params.get());
        }
        let params = prompt("s", raw(r#"[{"type":"text","text":"hi"}]"#), None);
        let _: v2::PromptRequest = serde_json::from_str(params.get()).unwrap();
        let _: v2::CancelSessionNotification = serde_json::from_str(cancel("s", None).get()).unwrap();
        let _: v2::CloseSessionRequest = serde_json::from_str(close_session("s", None).get()).unwrap();
        let _: v2::DeleteSessionRequest = serde_json::from_str(delete_session("s", None).get()).unwrap();

        assert_eq!(cancel("s\"", None).get(), r#"{"sessionId":"s\""}"#);
    }

    #[test]
    fn a_prompt_is_one_line_and_keeps_its_bytes() {
        let trace = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None);
        let blocks = raw("[\n{\"type\":\"text\",\r\n\"text\":\"a\\n\\ud83d\",\"x\":1.10}]");
        insta::assert_snapshot!(prompt("s", blocks, trace.as_ref()).get(), @r#"{"sessionId":"s","prompt":[ {"type":"text",  "text":"a\n\ud83d","x":1.10}],"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}"#);
    }

    #[test]
    fn config_values_are_ids_or_booleans() {
        assert_eq!(ConfigValue::parse(raw("\"a\"")), Ok(ConfigValue::Id("a".into())));
        assert_eq!(ConfigValue::parse(raw("true")), Ok(ConfigValue::Boolean(true)));
        for wrong in ["1", "null", "[]", "{}", "\"\\ud800\""] {
            assert_eq!(ConfigValue::parse(raw(wrong)), Err(ConfigValueError), "{wrong}");
        }
    }
}
