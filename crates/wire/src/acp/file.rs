//! `fs/read_text_file` and `fs/write_text_file` (ACP, File System): params and results.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use agent_client_protocol_schema::v1;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::request::NameValue;
use super::to_raw;
use base::types::TerminalId;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadTextFile<'a> {
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    pub line: Option<u32>,
    pub limit: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub struct FilePath<'a> {
    #[serde(borrow)]
    pub path: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteTextFile<'a> {
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    #[serde(borrow)]
    pub content: Cow<'a, str>,
}

pub fn read_text_file_result(content: &str) -> Box<RawValue> {
    to_raw(&BTreeMap::from([("content", content)]))
}

pub fn file_uri(path: &str) -> String {
    format!("file://{}", percent_encode_path(path))
}

/// Percent-encodes a path, except unreserved characters and slashes.
pub fn percent_encode_path(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("writing to a string does not fail");
        }
    }
    escaped
}

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

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalParams<'a> {
    #[serde(borrow)]
    pub terminal_id: Cow<'a, str>,
}

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

pub fn wait_for_exit_result(exit_code: Option<i32>, signal: Option<&str>) -> Box<RawValue> {
    to_raw(&ExitStatus { exit_code, signal })
}

#[cfg(test)]
mod file_tests {
    use agent_client_protocol_schema::v1;

    use crate::acp::empty_result;

    use super::*;
    use crate::acp::{parse, raw, resource_not_found};

    #[test]
    fn params_of_the_schema_are_parsed() {
        let read = v1::ReadTextFileRequest::new("s", "/w/a").line(2).limit(3);
        let read = serde_json::value::to_raw_value(&read).unwrap();
        let view = parse::<ReadTextFile<'_>>(&read).unwrap();
        assert_eq!(
            (&*view.path, view.line, view.limit),
            ("/w/a", Some(2), Some(3))
        );
        let write = v1::WriteTextFileRequest::new("s", "/w/a", "é\n");
        let write = serde_json::value::to_raw_value(&write).unwrap();
        let view = parse::<WriteTextFile<'_>>(&write).unwrap();
        assert_eq!((&*view.path, &*view.content), ("/w/a", "é\n"));
        let null = parse::<ReadTextFile<'_>>(raw(
            r#"{"sessionId":"s","path":"/a","line":null,"_meta":{}}"#,
        ))
        .unwrap();
        assert_eq!(null.line, None);
        for wrong in [
            r#"{"sessionId":"s"}"#,
            r#"{"sessionId":"s","path":"/a","line":-1}"#,
            r#"{"sessionId":"s","path":"/a","line":"1"}"#,
            r#"{"sessionId":"s","path":"/a","path":"/b"}"#,
            r#"{"sessionId":"s","path":["/a"]}"#,
            r#"{"sessionId":"s","path":"/\ud800"}"#,
        ] {
            assert!(parse::<ReadTextFile<'_>>(raw(wrong)).is_err(), "{wrong}");
            // A client could use another path than the one that the gateway checks.
            let twice = r#"{"path":"/a","content":"","path":"/b"}"#;
            assert!(parse::<FilePath<'_>>(raw(twice)).is_err());
        }
        assert!(parse::<WriteTextFile<'_>>(raw(r#"{"sessionId":"s","path":"/a"}"#)).is_err());
    }

    #[test]
    fn results_match_the_schema() {
        let result: v1::ReadTextFileResponse =
            serde_json::from_str(read_text_file_result("a\"\n").get()).unwrap();
        assert_eq!(result.content, "a\"\n");
        let _: v1::WriteTextFileResponse = serde_json::from_str(empty_result().get()).unwrap();
        let _: v1::KillTerminalResponse = serde_json::from_str(empty_result().get()).unwrap();
        let error: v1::Error =
            serde_json::from_str(resource_not_found(&file_uri("/w/a b%é")).get()).unwrap();
        assert_eq!(i32::from(error.code), -32002);
        assert_eq!(
            error.message,
            "Resource not found: file:///w/a%20b%25%C3%A9"
        );
        assert_eq!(error.data.unwrap()["uri"], "file:///w/a%20b%25%C3%A9");
    }
}

#[cfg(test)]
mod terminal_tests {
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
