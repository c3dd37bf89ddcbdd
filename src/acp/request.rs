//! Params of messages about an existing session of the agent. Where v1 and v2 have the same params, the types of
//! v1 are used.

use std::borrow::Cow;

use agent_client_protocol_schema::{v1, v2};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::depth::to_one_line;
use super::to_raw;
use super::trace::{TraceContext, meta};
use super::version::AcpVersion;
use crate::jsonrpc::CallId;

/// Params of `session/close`.
pub fn close_session(session_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    to_raw(&v1::CloseSessionRequest::new(session_id.to_owned()).meta(meta(trace)))
}

/// Params of `session/delete`.
pub fn delete_session(session_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    to_raw(&v1::DeleteSessionRequest::new(session_id.to_owned()).meta(meta(trace)))
}

/// Params of the notification `session/cancel`.
pub fn cancel(session_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    to_raw(&v1::CancelNotification::new(session_id.to_owned()).meta(meta(trace)))
}

/// Params of `$/cancel_request` for a call of the gateway whose result is no longer needed.
pub fn cancel_request(call: CallId) -> Box<RawValue> {
    let id = v1::RequestId::Number(call.number().cast_signed());
    to_raw(&v1::CancelRequestNotification::new(id))
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
    to_one_line(to_raw(&Params { session_id, prompt: blocks, meta: trace }))
}

/// Params of `session/set_mode`.
pub fn set_mode(session_id: &str, mode_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    to_raw(&v1::SetSessionModeRequest::new(session_id.to_owned(), mode_id.to_owned()).meta(meta(trace)))
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
    let (session_id, config_id) = (session_id.to_owned(), config_id.to_owned());
    match dialect {
        AcpVersion::V1 => {
            let value = match value {
                ConfigValue::Id(id) => v1::SessionConfigOptionValue::value_id(id.to_string()),
                ConfigValue::Boolean(value) => v1::SessionConfigOptionValue::boolean(*value),
            };
            let params = v1::SetSessionConfigOptionRequest::new(session_id, config_id, value);
            to_raw(&params.meta(meta(trace)))
        }
        AcpVersion::V2 => {
            let value = match value {
                ConfigValue::Id(id) => v2::SessionConfigOptionValue::id(id.to_string()),
                ConfigValue::Boolean(value) => v2::SessionConfigOptionValue::boolean(*value),
            };
            let params = v2::SetSessionConfigOptionRequest::new(session_id, config_id, value);
            to_raw(&params.meta(meta(trace)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::raw;

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
