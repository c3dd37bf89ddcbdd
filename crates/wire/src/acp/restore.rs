//! Classifies the errors that agents return for a session: missing, in use, not supported.
//!
//! Agents report a missing or locked session with many codes and texts. A text counts only if it mentions a
//! session, because "not found" alone may refer to a file or a server. An unknown error never counts as a
//! missing session.
//!
//! Do not classify an unknown text as a missing session: the user would lose the conversation. A text of a new agent
//! belongs in the lists of phrases and in the tests.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::error_code;
use super::raw_object::RawObject;
use crate::jsonrpc::RpcError;
use base::types::Timestamp;

/// The reason why an agent did not resume or load a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreFailure {
    /// The agent does not have the session.
    NotFound,
    /// The agent does not implement the method.
    Unsupported,
    /// Another process or client uses the session.
    InUse,
    AuthRequired,
    /// Any other error. A later attempt may succeed.
    Other,
}

impl RestoreFailure {
    /// Classifies the error in response to a resume or load of `session_id`.
    pub fn classify(error: &RpcError, session_id: &str) -> Self {
        match error.code {
            error_code::AUTH_REQUIRED => return Self::AuthRequired,
            error_code::METHOD_NOT_FOUND => return Self::Unsupported,
            _ => {}
        }
        let text = normalize(error, session_id);
        let contains = |phrase| text.contains(&format!(" {phrase} "));
        if IN_USE.lines().any(contains) {
            Self::InUse
        } else if mentions_missing_session(&text)
            || is_missing_resource(error, session_id)
            || rejects_param(error, session_id)
        {
            Self::NotFound
        } else {
            Self::Other
        }
    }
}

/// Returns true if the response to a prompt rejects the prompt's session id.
pub fn rejects_session(error: &RpcError, session_id: &str) -> bool {
    RestoreFailure::classify(error, session_id) == RestoreFailure::NotFound
}

/// The code -32002 means "resource not found". It refers to the session unless the error mentions another
/// resource.
fn is_missing_resource(error: &RpcError, session_id: &str) -> bool {
    let data = error.data.as_deref().map_or("", RawValue::get);
    let names = |part: &str| error.message.contains(part) || data.contains(part);
    error.code == error_code::RESOURCE_NOT_FOUND && (names(session_id) || !names("/"))
}

/// Returns true for "invalid params" that mentions the member `sessionId`.
fn rejects_param(error: &RpcError, session_id: &str) -> bool {
    let data = error.data.as_deref();
    let named = data.and_then(|data| super::session_id_of(data).ok().flatten());
    let message = error.message.to_lowercase();
    error.code == error_code::INVALID_PARAMS
        && (named.is_some_and(|id| *id == *session_id)
            || message.contains("invalid sessionid")
            || message.contains("invalid session id"))
}

/// Nouns that agents use for a session.
const NOUNS: [&str; 4] = ["session", "conversation", "thread", "chat"];
/// Texts that report a missing session at any position. `%` is the noun.
const MISSING: &str = include_str!("missing_session_phrases.txt");
/// Texts that report a missing session only if no text except the id follows. For example, "unknown session
/// mode" refers to a mode.
const MISSING_SUFFIXES: [&str; 5] = [
    "unknown %",
    "no such %",
    "cannot find %",
    "could not find %",
    "invalid % identifier",
];
/// Texts that report a session in use.
const IN_USE: &str = include_str!("session_in_use_phrases.txt");

/// The message and the data in lower case, as words with single spaces. `|` follows both. The session's id is
/// removed.
fn normalize(error: &RpcError, session_id: &str) -> String {
    let data = error.data.as_deref().map_or("", RawValue::get);
    format!(
        " {} | {} | ",
        normalize_words(&error.message, session_id),
        normalize_words(data, session_id)
    )
}

fn mentions_missing_session(text: &str) -> bool {
    let contains = |phrase: String| text.contains(&format!(" {phrase} "));
    NOUNS.iter().any(|noun| {
        let ends_with =
            |phrase: String| contains(format!("{phrase} |")) || contains(format!("{phrase} id |"));
        MISSING
            .lines()
            .any(|phrase| contains(phrase.replace('%', noun)))
            || MISSING_SUFFIXES
                .iter()
                .any(|phrase| ends_with(phrase.replace('%', noun)))
    })
}

fn normalize_words(text: &str, session_id: &str) -> String {
    let text = if session_id.is_empty() {
        text.to_owned()
    } else {
        text.replace(session_id, " ")
    };
    let text: String = text
        .chars()
        .map(|char| if char.is_alphanumeric() { char } else { ' ' })
        .collect();
    text.to_lowercase()
        .split_ascii_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn name(agent_info: Option<&RawValue>) -> Option<Cow<'_, str>> {
    RawObject::parse(agent_info?)?.text("name")
}

/// Returns true if the agent can resume or load a session without a turn.
///
/// Codex ACP 2.6 stores a session with its first turn. If the process that created a session closes and
/// resumes it before the first turn, that turn never ends.
pub fn restores_empty_sessions(agent_info: Option<&RawValue>) -> bool {
    !name(agent_info)
        .is_some_and(|name| matches!(&*name, "@agentclientprotocol/codex-acp" | "claude-code"))
}

/// Returns the time before which the agent must not load a session that was created at `began`.
///
/// Gemini CLI 0.61 names the file of a session after the minute in which a process creates or loads the
/// session. A load in the same minute overwrites the conversation with an empty one, and then fails.
pub fn earliest_load(agent_info: Option<&RawValue>, began: Timestamp) -> Option<Timestamp> {
    const MINUTE: i64 = 60_000;
    let next_minute = (began.as_millis().div_euclid(MINUTE) + 1) * MINUTE;
    (name(agent_info)? == "gemini-cli").then(|| Timestamp::from_millis(next_minute))
}

#[cfg(test)]
mod restore_tests {
    use super::*;

    const ID: &str = "01a206b0-7c76-70c0-ac5f-edde1c4e36ea";

    fn error(code: i64, message: &str, data: &str) -> RpcError {
        let data =
            (!data.is_empty()).then(|| RawValue::from_string(data.replace("$ID", ID)).unwrap());
        RpcError {
            code,
            message: message.replace("$ID", ID),
            data,
        }
    }

    fn class(code: i64, message: &str, data: &str) -> RestoreFailure {
        RestoreFailure::classify(&error(code, message, data), ID)
    }

    #[test]
    fn errors_of_real_agents_for_missing_sessions_are_not_found() {
        for (code, message, data) in [
            (-32002, "Resource not found", r#"{"sessionId":"$ID"}"#),
            (-32002, "Resource not found: $ID", r#"{"uri":"$ID"}"#),
            (-32002, "Resource not found", ""),
            (
                -32603,
                "Internal error",
                r#"{"details":"No previous sessions found for this project."}"#,
            ),
            (
                -32603,
                "Internal error",
                r#"{"details":"Invalid session identifier \"$ID\"."}"#,
            ),
            (
                -32603,
                "Internal error",
                r#"{"details":"no rollout found for thread id $ID"}"#,
            ),
            (
                -32603,
                "Internal error",
                r#"{"message":"Session not found: $ID"}"#,
            ),
            (-32603, "No conversation found with session ID: $ID", ""),
            (-32603, "Session $ID not found", ""),
            (-32602, "Session with id '$ID' does not exist.", ""),
            (-32602, "Unknown session: $ID", ""),
            (-32602, "unknown sessionId", r#""No such session: $ID""#),
            (-32602, "Invalid params", r#"{"sessionId":"$ID"}"#),
            (-32000 - 1, "Could not find session \"$ID\"", ""),
        ] {
            assert_eq!(
                class(code, message, data),
                RestoreFailure::NotFound,
                "{message} {data}"
            );
            assert!(rejects_session(&error(code, message, data), ID));
        }
    }

    #[test]
    fn a_session_in_use_is_not_a_missing_one() {
        let codex = "Invalid request: This Codex session is in use by another Codex client (the Codex app, the CLI or \
                     an IDE extension). Close the session there or quit that client, then try again.";
        let data = r#"{"reason":"thread_active_writer","details":"thread $ID already has an active writer"}"#;
        assert_eq!(class(-32600, codex, data), RestoreFailure::InUse);
        assert_eq!(
            class(-32603, "Session $ID is locked", ""),
            RestoreFailure::InUse
        );
        assert_eq!(
            class(-32002, "session is already open elsewhere", ""),
            RestoreFailure::InUse
        );
    }

    #[test]
    fn unknown_errors_are_classified_as_other() {
        for (code, message, data) in [
            (-32603, "Internal error", ""),
            (
                -32603,
                "Internal error",
                r#"{"details":"The model is experiencing high demand."}"#,
            ),
            (-32603, "MCP server not found", r#"{"sessionId":"$ID"}"#),
            (-32603, "Session storage not found", ""),
            (-32602, "unknown session mode", ""),
            (-32602, "Invalid params", r#"{"mcpServers":"not found"}"#),
            (-32602, "Invalid params", r#"{"sessionId":"another"}"#),
            (
                -32002,
                "Resource not found: file:///w/a.txt",
                r#"{"uri":"file:///w/a.txt"}"#,
            ),
            (-32600, "file not found", ""),
            (429, "Too many requests", ""),
        ] {
            assert_eq!(
                class(code, message, data),
                RestoreFailure::Other,
                "{message} {data}"
            );
            assert!(!rejects_session(&error(code, message, data), ID));
        }
        assert_eq!(
            class(-32000, "Session not found", ""),
            RestoreFailure::AuthRequired
        );
        assert_eq!(
            class(-32601, "Session not found", ""),
            RestoreFailure::Unsupported
        );
    }
}

#[cfg(test)]
mod defects_tests {
    use super::*;

    #[test]
    fn gemini_load_waits_for_the_next_minute() {
        let began = Timestamp::from_millis(59_999);
        let earliest = |info: &str| {
            earliest_load(
                Some(&RawValue::from_string(info.to_owned()).unwrap()),
                began,
            )
        };
        assert_eq!(
            earliest(r#"{"name":"gemini-cli","version":"0.61.0"}"#),
            Some(Timestamp::from_millis(60_000))
        );
        assert_eq!(earliest(r#"{"name":"another"}"#), None);
        assert_eq!(earliest(r#"{"version":"1"}"#), None);
        assert_eq!(earliest_load(None, began), None);
    }

    #[test]
    fn codex_does_not_restore_empty_sessions() {
        let restores = |info: &str| {
            restores_empty_sessions(Some(&RawValue::from_string(info.to_owned()).unwrap()))
        };
        assert!(!restores(
            r#"{"name":"@agentclientprotocol/codex-acp","version":"2.6.0"}"#
        ));
        assert!(restores(r#"{"name":"another"}"#) && restores_empty_sessions(None));
    }
}
