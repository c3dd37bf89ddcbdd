//! Extracts the reason of a JSON-RPC error as plain text, and whether the failure is transient.
//!
//! Many peers send a general `message` such as "Internal error" and put the actual reason into a member of
//! `data`.

use std::fmt;

use serde_json::Value;

use super::envelope::RpcError;
use base::types::text::strip_controls;

/// The maximum size in bytes of a text from an error. The `acp` member of the problem contains the whole
/// error.
const REASON_BYTES: usize = 2048;
/// The maximum size in bytes of `data` that is searched.
const SEARCHED_BYTES: usize = 256 << 10;
/// The number of nested objects, and of JSON inside strings, that are searched.
const SEARCHED_DEPTH: usize = 6;
const REASON_MEMBERS: &str = include_str!("reason_members.txt");

/// HTTP statuses of a provider that may accept the same request later.
const TRANSIENT_STATUSES: [i64; 6] = [408, 429, 502, 503, 504, 529];
/// Members that may contain an HTTP status.
const STATUS_MEMBERS: &str = "status statusCode status_code httpStatusCode httpStatus code";
/// Members that may contain the kind of a failure.
const KIND_MEMBERS: &str = "errorKind type kind reason status code name";
/// Kinds of transient failures, in the spelling of providers and agents.
const TRANSIENT_KINDS: &str = include_str!("transient_kinds.txt");
/// Phrases of transient failures, in lower case.
const TRANSIENT_PHRASES: &str = include_str!("transient_phrases.txt");
/// Phrases of permanent failures. They take precedence over a transient status.
const PERMANENT_PHRASES: [&str; 3] = ["insufficient_quota", "credit balance", "billing_hard_limit"];
/// Words that mark the following number as an HTTP status.
const BEFORE_STATUS: &str = "error status code http api statuscode response returned got";

impl RpcError {
    /// Returns the reason in `data` as one line of plain text. `None` if `data` has no reason, or if the
    /// message already contains it.
    pub fn reason(&self) -> Option<String> {
        let data = self.parsed_data()?;
        let reason = plain_line(&find_reason(&data)?, REASON_BYTES);
        (!reason.is_empty() && !self.plain_message().contains(&reason)).then_some(reason)
    }

    /// Returns true if the same call may succeed later: the provider is overloaded, limits the rate, or did
    /// not respond.
    pub fn is_transient(&self) -> bool {
        let data = self.parsed_data();
        let reason = data.as_ref().and_then(find_reason).unwrap_or_default();
        let text = format!("{}\n{reason}", self.message).to_lowercase();
        let has = |phrase: &str| text.contains(phrase);
        let marked = |data| marked_retryable(data, SEARCHED_DEPTH);
        data.as_ref().and_then(marked).unwrap_or_else(|| {
            !PERMANENT_PHRASES.into_iter().any(has)
                && (TRANSIENT_STATUSES.contains(&self.code)
                    || TRANSIENT_PHRASES.lines().any(has)
                    || mentions_transient_status(&text)
                    || data.as_ref().is_some_and(has_transient_mark))
        })
    }

    /// Returns the message and the reason in lower case, for a search for phrases.
    pub fn searchable(&self) -> String {
        let reason = self.reason().unwrap_or_default();
        format!("{} {reason}", self.plain_message()).to_lowercase()
    }

    /// Returns the value of a text member of `data`.
    pub fn data_text(&self, member: &str) -> Option<String> {
        self.parsed_data()?.get(member)?.as_str().map(str::to_owned)
    }

    fn plain_message(&self) -> String {
        plain_line(&self.message, REASON_BYTES)
    }

    fn parsed_data(&self) -> Option<Value> {
        let data = self.data.as_deref()?.get();
        (data.len() <= SEARCHED_BYTES).then(|| serde_json::from_str(data).ok())?
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.plain_message();
        match self.reason() {
            // The reason often begins with the message.
            Some(reason) if reason.starts_with(&message) => write!(f, "{reason} ({})", self.code),
            Some(reason) => write!(f, "{message} ({}): {reason}", self.code),
            None => write!(f, "{message} ({})", self.code),
        }
    }
}

/// Returns the first result of `find` in the order of the known members. Searches JSON inside strings before the string.
fn search<T>(value: &Value, depth: usize, find: &impl Fn(&Value) -> Option<T>) -> Option<T> {
    let deeper = depth.checked_sub(1)?;
    match value {
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            let nested = serde_json::from_str::<Value>(text).ok();
            let found = nested.and_then(|nested| search(&nested, deeper, find));
            found.or_else(|| find(value))
        }
        Value::Object(members) => find(value).or_else(|| {
            let mut names = REASON_MEMBERS.lines();
            names.find_map(|name| search(members.get(name)?, deeper, find))
        }),
        Value::Array(items) => {
            let mut items = items.iter().take(8);
            items.find_map(|item| search(item, deeper, find))
        }
        _ => find(value),
    }
}

/// Returns the first text in a known member.
fn find_reason(value: &Value) -> Option<String> {
    let text = |value: &Value| {
        let text = value.as_str()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    search(value, SEARCHED_DEPTH, &text)
}

/// Returns the retryable mark that the peer set on the failure.
fn marked_retryable(value: &Value, depth: usize) -> Option<bool> {
    let deeper = depth.checked_sub(1)?;
    let members = value.as_object()?;
    let mut marks = ["isRetryable", "retryable"].into_iter();
    let mut nested = ["error", "data", "cause"].into_iter();
    let marked = marks.find_map(|name| members.get(name)?.as_bool());
    marked.or_else(|| nested.find_map(|name| marked_retryable(members.get(name)?, deeper)))
}

fn has_transient_mark(value: &Value) -> bool {
    let marked = |value: &Value| {
        let status = |name| {
            let code = value[name].as_i64();
            code.is_some_and(|code| TRANSIENT_STATUSES.contains(&code))
        };
        let kind = |name| {
            let kind = value[name].as_str().map(str::to_lowercase);
            kind.is_some_and(|kind| TRANSIENT_KINDS.lines().any(|known| known == kind))
        };
        (STATUS_MEMBERS.split(' ').any(status) || KIND_MEMBERS.split(' ').any(kind)).then_some(())
    };
    search(value, SEARCHED_DEPTH, &marked).is_some()
}

/// Returns true if a transient status is the first word of the text, or follows a word such as `error`.
fn mentions_transient_status(text: &str) -> bool {
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let words: Vec<&str> = std::iter::once("error").chain(words).collect();
    let marks = |word| BEFORE_STATUS.split(' ').any(|known| known == word);
    let transient = |word: &str| {
        word.parse()
            .is_ok_and(|code| TRANSIENT_STATUSES.contains(&code))
    };
    let mut pairs = words.windows(2);
    pairs.any(|pair| marks(pair[0]) && transient(pair[1]))
}

/// Converts text to one line of at most `max` bytes, without escape sequences, control characters and
/// characters that reorder text.
pub fn plain_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut gap = false;
    for letter in strip_controls(text).chars() {
        if letter.is_whitespace() {
            gap = !line.is_empty();
            continue;
        }
        if std::mem::take(&mut gap) {
            line.push(' ');
        }
        line.push(letter);
        if line.len() > max {
            let end = line.floor_char_boundary(max.saturating_sub('…'.len_utf8()));
            line.truncate(end);
            line.push('…');
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn error(code: i64, message: &str, data: &str) -> RpcError {
        let data = (!data.is_empty()).then(|| RawValue::from_string(data.to_owned()).unwrap());
        RpcError {
            code,
            message: message.to_owned(),
            data,
        }
    }

    fn internal(data: &str) -> String {
        error(-32603, "Internal error", data).to_string()
    }

    #[test]
    fn the_reason_is_found_in_every_known_member() {
        for data in [
            r#"{"details":"Please install ripgrep."}"#,
            r#"{"message":"Please install ripgrep."}"#,
            r#""Please install ripgrep.""#,
            r#"{"error":"Please install ripgrep."}"#,
            r#"{"error":{"code":404,"message":"Please install ripgrep."}}"#,
            r#"{"name":"ProviderError","data":{"message":"Please install ripgrep."}}"#,
            r#"{"details":"{\"error\":{\"message\":\"Please install ripgrep.\"}}"}"#,
            r#"[{"error":{"message":"Please install ripgrep."}}]"#,
            r#"{"details":"","detail":"  Please install\n ripgrep.  "}"#,
            r#"{"reason":"missing_tool","details":"Please install ripgrep."}"#,
        ] {
            assert_eq!(
                internal(data),
                "Internal error (-32603): Please install ripgrep.",
                "{data}"
            );
        }
        for data in [
            "",
            "null",
            "7",
            "{}",
            r#"{"sessionId":"s"}"#,
            r#"{"details":"\ud800"}"#,
        ] {
            assert_eq!(internal(data), "Internal error (-32603)", "{data}");
        }
    }

    #[test]
    fn the_reason_does_not_repeat_the_message() {
        assert_eq!(
            internal(r#"{"details":"internal error"}"#),
            "Internal error (-32603): internal error"
        );
        assert_eq!(
            internal(r#"{"details":"Internal error"}"#),
            "Internal error (-32603)"
        );
        assert_eq!(
            internal(r#"{"details":"Internal error: no disk"}"#),
            "Internal error: no disk (-32603)"
        );
        let error = error(
            -32603,
            "Internal error: no disk",
            r#"{"details":"no disk"}"#,
        );
        assert_eq!(error.to_string(), "Internal error: no disk (-32603)");
    }

    #[test]
    fn plain_line_is_one_bounded_line() {
        assert_eq!(
            plain_line(
                "\u{1b}[31mred\u{1b}[0m\n\u{1b}]0;title\u{7}end\u{202e}\0x\u{1b}",
                99
            ),
            "red endx"
        );
        assert_eq!(plain_line("ééé", 5), "é…");
        let long = format!(r#"{{"details":"{}"}}"#, "x".repeat(100_000));
        assert!(internal(&long).len() <= REASON_BYTES + 40);
        assert!(error(-32603, &"y".repeat(100_000), "").to_string().len() <= REASON_BYTES + 40);
    }

    #[test]
    fn failures_of_an_overloaded_provider_are_transient() {
        for (code, message, data) in [
            (429, "Rate limit exceeded. Try again later.", ""),
            (503, "Internal error", ""),
            (-32603, "The model is experiencing high demand.", ""),
            (
                -32603,
                "Internal error: API Error: 529 {\"type\":\"error\"}",
                "",
            ),
            (-32603, "Internal error", r#"{"errorKind":"overloaded"}"#),
            (-32603, "Internal error", r#"{"errorKind":"rate_limit"}"#),
            (
                -32603,
                "Internal error",
                r#"{"details":"503 Service Unavailable"}"#,
            ),
            (
                -32603,
                "Internal error",
                r#"{"details":"{\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}"}"#,
            ),
            (
                -32603,
                "Internal error",
                r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ),
            (
                -32603,
                "Internal error",
                r#"{"name":"APIError","data":{"statusCode":503,"message":"no"}}"#,
            ),
            (
                -32603,
                "Internal error",
                r#"{"name":"APIError","data":{"isRetryable":true,"message":"no"}}"#,
            ),
            (-32603, "Internal error", r#""Request timed out.""#),
        ] {
            assert!(
                error(code, message, data).is_transient(),
                "{code} {message} {data}"
            );
        }
        for (code, message, data) in [
            (-32603, "Internal error", ""),
            (400, "bad request", ""),
            (-32603, "line 503 of the file is wrong", ""),
            (
                -32603,
                "Internal error",
                r#"{"details":"Please install ripgrep."}"#,
            ),
            (
                -32603,
                "Internal error",
                r#"{"isRetryable":false,"statusCode":429}"#,
            ),
            (
                429,
                "You exceeded your quota",
                r#"{"error":{"code":"insufficient_quota"},"details":"insufficient_quota"}"#,
            ),
        ] {
            assert!(
                !error(code, message, data).is_transient(),
                "{code} {message} {data}"
            );
        }
    }
}
