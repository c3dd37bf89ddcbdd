//! The `terminal/*` methods of agents (ACP, Terminals).

use std::borrow::Cow;

use agent_client_protocol_schema::v1;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::setup::NameValue;
use super::to_raw;
use crate::types::TerminalId;

/// The params of `terminal/create`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateTerminal {
    pub command: String,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub args: Vec<String>,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub env: Vec<NameValue>,
    pub cwd: Option<String>,
    pub output_byte_limit: Option<u64>,
}

fn null_as_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The params of the other methods.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalParams<'a> {
    #[serde(borrow)]
    pub terminal_id: Cow<'a, str>,
}

/// The result of `terminal/create`.
pub fn create_terminal_result(terminal_id: TerminalId) -> Box<RawValue> {
    to_raw(&v1::CreateTerminalResponse::new(terminal_id.to_string()))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExitStatus<'a> {
    exit_code: Option<i32>,
    signal: Option<&'a str>,
}

/// The result of `terminal/output`. `exit` contains the exit code and the signal after the command has ended.
pub fn terminal_output_result(
    output: &str,
    truncated: bool,
    exit: Option<(Option<i32>, Option<&str>)>,
) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct TerminalOutputResult<'a> {
        output: &'a str,
        truncated: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_status: Option<ExitStatus<'a>>,
    }
    let exit_status = exit.map(|(exit_code, signal)| ExitStatus { exit_code, signal });
    to_raw(&TerminalOutputResult {
        output,
        truncated,
        exit_status,
    })
}

/// The result of `terminal/wait_for_exit`.
pub fn wait_for_exit_result(exit_code: Option<i32>, signal: Option<&str>) -> Box<RawValue> {
    to_raw(&ExitStatus { exit_code, signal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::parse;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn optional_members_may_be_missing_or_null() {
        let bare = CreateTerminal {
            command: "ls".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            output_byte_limit: None,
        };
        let sparse = raw(r#"{"sessionId":"s","command":"ls"}"#);
        assert_eq!(parse::<CreateTerminal>(&sparse).unwrap(), bare);
        let nulls = raw(
            r#"{"sessionId":"s","command":"ls","args":null,"env":null,"cwd":null,"outputByteLimit":null,"_meta":{}}"#,
        );
        assert_eq!(parse::<CreateTerminal>(&nulls).unwrap(), bare);
        let full = raw(
            r#"{"command":"a","args":["b"],"env":[{"name":"C","value":"d","_meta":{}}],"cwd":"/e","outputByteLimit":5}"#,
        );
        let full = parse::<CreateTerminal>(&full).unwrap();
        assert_eq!(
            (full.env, full.output_byte_limit),
            (
                vec![NameValue {
                    name: "C".to_owned(),
                    value: "d".to_owned()
                }],
                Some(5)
            )
        );
        for wrong in [
            r#"{"command":1}"#,
            r#"{"command":"a","command":"b"}"#,
            r#"{"command":"a","outputByteLimit":-1}"#,
            r#"{"command":"a","args":"b"}"#,
            r#"{"args":[]}"#,
            "[]",
        ] {
            assert!(parse::<CreateTerminal>(&raw(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn results_match_the_schema() {
        let created: v1::CreateTerminalResponse =
            serde_json::from_str(create_terminal_result(TerminalId::new(7)).get()).unwrap();
        assert_eq!(&*created.terminal_id.0, "t7");
        let running = terminal_output_result("a", true, None);
        assert_eq!(running.get(), r#"{"output":"a","truncated":true}"#);
        let ended = terminal_output_result("a", false, Some((None, Some("SIGKILL"))));
        let ended: v1::TerminalOutputResponse = serde_json::from_str(ended.get()).unwrap();
        assert_eq!(
            ended.exit_status.unwrap().signal.as_deref(),
            Some("SIGKILL")
        );
        let exit: v1::WaitForTerminalExitResponse =
            serde_json::from_str(wait_for_exit_result(Some(3), None).get()).unwrap();
        assert_eq!(exit.exit_status.exit_code, Some(3));
    }
}
