//! `fs/read_text_file` and `fs/write_text_file` (ACP, File System): params and results.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::to_raw;

/// Params of `fs/read_text_file`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadTextFile<'a> {
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    pub line: Option<u32>,
    pub limit: Option<u32>,
}

/// The file of `fs/read_text_file` or `fs/write_text_file`.
#[derive(Debug, Deserialize)]
pub struct FilePath<'a> {
    #[serde(borrow)]
    pub path: Cow<'a, str>,
}

/// Params of `fs/write_text_file`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteTextFile<'a> {
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    #[serde(borrow)]
    pub content: Cow<'a, str>,
}

/// The result of `fs/read_text_file`.
pub fn read_text_file_result(content: &str) -> Box<RawValue> {
    to_raw(&BTreeMap::from([("content", content)]))
}

/// The empty result, also of `terminal/kill` and `terminal/release`.
pub fn empty_result() -> Box<RawValue> {
    to_raw(&serde_json::Map::new())
}

/// Returns the `file:` URI of an absolute path (RFC 8089).
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

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1;

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
