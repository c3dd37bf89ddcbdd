//! The versions of ACP that the gateway speaks, and the differences between them.
//!
//! A difference between versions is a method of [`AcpVersion`], or a message takes the version as a parameter. Other
//! modules call these methods and do not compare versions. Only `agent` compares them, when it selects the version of a
//! connection. The gateway does not translate updates between versions: they stay raw.

use std::borrow::Cow;

use agent_client_protocol_schema::v2;
use serde_json::value::RawValue;

use super::raw_object::{RawObject, elements};
use super::trace::{TraceContext, traced};
use super::{method, update};
use crate::jsonrpc::{self, RpcError};

/// The version of ACP on a connection. It does not change between `initialize` and the end of the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AcpVersion {
    #[default]
    V1,
    V2,
}

impl AcpVersion {
    /// Returns the version for a `protocolVersion`; `None` if the gateway does not speak it.
    pub const fn from_number(version: u64) -> Option<Self> {
        match version {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    pub const fn number(self) -> u64 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// The method that signs in with one of `authMethods`. The params are `{methodId}`.
    pub const fn login_method(self) -> &'static str {
        match self {
            Self::V1 => method::AUTHENTICATE,
            Self::V2 => method::AUTH_LOGIN,
        }
    }

    pub const fn logout_method(self) -> &'static str {
        match self {
            Self::V1 => method::LOGOUT,
            Self::V2 => method::AUTH_LOGOUT,
        }
    }

    /// The method that restores a session and replays its history.
    pub const fn replay_method(self) -> &'static str {
        match self {
            Self::V1 => method::SESSION_LOAD,
            Self::V2 => method::SESSION_RESUME,
        }
    }

    /// Whether sessions have modes. Otherwise, the mode is the option with the category `mode`.
    pub const fn has_modes(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Whether the agent may request files and terminals from its client.
    pub const fn has_client_methods(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Whether the answer to `session/prompt` ends the turn. Otherwise the answer only confirms that the message was
    /// inserted, and a `state_update` reports the end of the work.
    pub const fn answer_ends_turn(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Whether a single tool call or terminal of the agent can be cancelled.
    pub const fn has_cancel_targets(self) -> bool {
        matches!(self, Self::V2)
    }

    /// The member that identifies an element of `authMethods`.
    pub const fn auth_method_id_key(self) -> &'static str {
        match self {
            Self::V1 => "id",
            Self::V2 => "methodId",
        }
    }

    /// The member that identifies an element of `configOptions`.
    pub const fn config_option_id_key(self) -> &'static str {
        match self {
            Self::V1 => "id",
            Self::V2 => "configId",
        }
    }
}

/// The state of the agent's work in a `state_update`.
#[derive(Debug)]
pub enum WorkState<'a> {
    Idle(WorkEnd<'a>),
    /// The work continues or waits for a person, or a later version defines the state.
    Busy,
}

/// The result of the work. All members may be missing.
#[derive(Debug, Default)]
pub struct WorkEnd<'a> {
    /// Any text, because agents may send stop reasons that the schema does not define.
    pub stop_reason: Option<Cow<'a, str>>,
    /// A JSON-RPC error, with the stop reason `error`.
    pub error: Option<RpcError>,
    pub usage: Option<&'a RawValue>,
}

impl<'a> WorkState<'a> {
    /// Parses an update of the kind `state_update`. `None` if its state is missing or repeated.
    pub fn parse(update: &'a RawValue) -> Option<Self> {
        let object = RawObject::parse(update)?;
        if object.text("state")? != "idle" {
            return Some(Self::Busy);
        }
        Some(Self::Idle(WorkEnd {
            stop_reason: object.text("stopReason"),
            error: object.starting("error", '{').map(jsonrpc::parse_error),
            usage: object.starting("usage", '{'),
        }))
    }
}

/// A tool call or terminal of the agent that can be cancelled by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CancelTarget {
    ToolCall(String),
    Terminal(String),
}

impl CancelTarget {
    pub const fn cancel_method(&self) -> &'static str {
        match self {
            Self::ToolCall(_) => method::TOOL_CALL_CANCEL,
            Self::Terminal(_) => method::TERMINAL_CANCEL,
        }
    }
}

/// Returns the target of an update, and whether it can be cancelled now. `None` if the update has another
/// kind or does not change this.
pub fn parse_cancel_target(kind: &str, update: &RawValue) -> Option<(CancelTarget, bool)> {
    let (member, part): (_, fn(String) -> CancelTarget) = match kind {
        update::TOOL_CALL_UPDATE => ("toolCallId", CancelTarget::ToolCall),
        update::TERMINAL_UPDATE => ("terminalId", CancelTarget::Terminal),
        _ => return None,
    };
    let object = RawObject::parse(update)?;
    let capabilities = object.get("capabilities")?;
    let capabilities = RawObject::parse(capabilities);
    let can = capabilities.is_some_and(|object| object.starting("cancel", '{').is_some());
    Some((part(object.text(member)?.into_owned()), can))
}

pub fn cancel_target(
    session_id: &str,
    part: &CancelTarget,
    trace: Option<&TraceContext>,
) -> Box<RawValue> {
    let session_id = session_id.to_owned();
    match part {
        CancelTarget::ToolCall(id) => traced(
            &v2::CancelToolCallRequest::new(session_id, id.clone()),
            trace,
        ),
        CancelTarget::Terminal(id) => traced(
            &v2::CancelTerminalRequest::new(session_id, id.clone()),
            trace,
        ),
    }
}

/// Returns the id of the option with the category `mode` in `configOptions`. v2 uses this option instead of
/// modes.
pub fn mode_option(config_options: &RawValue) -> Option<String> {
    let options = elements(Some(config_options)).into_iter();
    let objects = options.filter_map(RawObject::parse);
    let mut modes = objects.filter(|option| option.text("category").as_deref() == Some("mode"));
    let key = AcpVersion::V2.config_option_id_key();
    modes.find_map(|option| option.text(key).map(Cow::into_owned))
}

#[cfg(test)]
mod version_tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;

    #[test]
    fn method_names_match_the_schema() {
        let first = &v1::AGENT_METHOD_NAMES;
        let second = &v2::AGENT_METHOD_NAMES;
        assert_eq!(AcpVersion::V1.login_method(), first.authenticate);
        assert_eq!(AcpVersion::V1.logout_method(), first.logout);
        assert_eq!(AcpVersion::V1.replay_method(), first.session_load);
        assert_eq!(AcpVersion::V2.login_method(), second.auth_login);
        assert_eq!(AcpVersion::V2.logout_method(), second.auth_logout);
        assert_eq!(AcpVersion::V2.replay_method(), second.session_resume);
    }

    #[test]
    fn numbers_of_other_versions_are_rejected() {
        for version in [AcpVersion::V1, AcpVersion::V2] {
            assert_eq!(AcpVersion::from_number(version.number()), Some(version));
        }
        assert_eq!(
            (AcpVersion::from_number(0), AcpVersion::from_number(3)),
            (None, None)
        );
    }
}

#[cfg(test)]
mod v2_tests {
    use super::*;
    use crate::acp::raw;

    #[test]
    fn only_idle_ends_the_work() {
        for busy in ["running", "requires_action", "unknown", "open", "_mine"] {
            let update = format!(
                r#"{{"sessionUpdate":"state_update","state":"{busy}","stopReason":"end_turn"}}"#
            );
            assert!(
                matches!(WorkState::parse(raw(&update)), Some(WorkState::Busy)),
                "{busy}"
            );
        }
        for odd in [
            "{}",
            r#"{"state":1}"#,
            r#"{"state":"idle","state":"running"}"#,
            "null",
        ] {
            assert!(WorkState::parse(raw(odd)).is_none(), "{odd}");
        }
        let idle = r#"{"state":"idle","stopReason":"error","error":{"code":-32603,"message":"m","data":1.10},"usage":{"totalTokens":3}}"#;
        let Some(WorkState::Idle(end)) = WorkState::parse(raw(idle)) else {
            panic!("the state is idle")
        };
        assert_eq!(end.stop_reason.as_deref(), Some("error"));
        assert_eq!(end.error.unwrap().data.unwrap().get(), "1.10");
        assert_eq!(end.usage.unwrap().get(), r#"{"totalTokens":3}"#);
        let Some(WorkState::Idle(end)) = WorkState::parse(raw(r#"{"state":"idle","error":null}"#))
        else {
            panic!("the state is idle")
        };
        assert!(end.stop_reason.is_none() && end.error.is_none() && end.usage.is_none());
    }

    #[test]
    fn a_target_can_be_cancelled_while_it_advertises_cancel() {
        let call = |capabilities: &str| {
            let update = format!(r#"{{"toolCallId":"c","capabilities":{capabilities}}}"#);
            parse_cancel_target(update::TOOL_CALL_UPDATE, raw(&update))
        };
        let part = || CancelTarget::ToolCall("c".to_owned());
        assert_eq!(call(r#"{"cancel":{}}"#), Some((part(), true)));
        for no in ["null", "{}", r#"{"cancel":null}"#, "[]"] {
            assert_eq!(call(no), Some((part(), false)), "{no}");
        }
        assert_eq!(
            parse_cancel_target(update::TOOL_CALL_UPDATE, raw(r#"{"toolCallId":"c"}"#)),
            None
        );
        assert_eq!(
            parse_cancel_target(
                update::TERMINAL_UPDATE,
                raw(r#"{"terminalId":"t","capabilities":{"cancel":{}}}"#)
            ),
            Some((CancelTarget::Terminal("t".to_owned()), true))
        );
        assert_eq!(
            parse_cancel_target(
                update::USAGE,
                raw(r#"{"toolCallId":"c","capabilities":{}}"#)
            ),
            None
        );
    }

    #[test]
    fn params_match_the_schema() {
        let params = cancel_target("s", &CancelTarget::ToolCall("c".to_owned()), None);
        assert_eq!(params.get(), r#"{"sessionId":"s","toolCallId":"c"}"#);
        let _: v2::CancelToolCallRequest = serde_json::from_str(params.get()).unwrap();
        let params = cancel_target("s", &CancelTarget::Terminal("t".to_owned()), None);
        let _: v2::CancelTerminalRequest = serde_json::from_str(params.get()).unwrap();
        assert_eq!(
            CancelTarget::ToolCall(String::new()).cancel_method(),
            v2::AGENT_METHOD_NAMES.tool_call_cancel
        );
        assert_eq!(
            CancelTarget::Terminal(String::new()).cancel_method(),
            v2::AGENT_METHOD_NAMES.terminal_cancel
        );
    }

    #[test]
    fn mode_option_has_the_category_mode() {
        let options =
            r#"[{"configId":"model","category":"model"},{"configId":"how","category":"mode"}]"#;
        assert_eq!(mode_option(raw(options)).as_deref(), Some("how"));
        for none in [
            "[]",
            "null",
            r#"[{"id":"a","category":"mode"}]"#,
            r#"[1,{"configId":"a"}]"#,
        ] {
            assert_eq!(mode_option(raw(none)), None, "{none}");
        }
    }
}
