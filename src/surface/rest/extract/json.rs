//! JSON request bodies and their problems: 415 for another media type, 413 for a large body, 400 for
//! malformed JSON, and 422 with a pointer for a wrong member.

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body::Body as _;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

use crate::api::ProblemCode;
use crate::jsonrpc;
use crate::surface::Gateway;
use crate::surface::body::{has_media_type, read_body};
use crate::surface::rest::error::ApiError;
use crate::types::Limits;

/// A parsed body of at most `max_body_bytes`.
#[derive(Debug)]
pub(crate) struct JsonBody<T> {
    pub(crate) value: T,
    /// The body as received, for its hash.
    pub(crate) bytes: Bytes,
}

impl<T: DeserializeOwned> JsonBody<T> {
    async fn read(request: Request, limits: &Limits, max_bytes: usize) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers, &parts.method) {
            let detail = "the body must be application/json";
            return Err(ApiError::new(ProblemCode::UnsupportedMediaType, detail));
        }
        let bytes = read_body(&parts.headers, body, max_bytes, limits.body_timeout).await?;
        let value = parse(&bytes, limits.max_json_depth)?;
        Ok(Self { value, bytes })
    }
}

impl<T: DeserializeOwned> FromRequest<Gateway> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, ApiError> {
        Self::read(request, &gateway.limits, gateway.limits.max_body_bytes).await
    }
}

/// A parsed body that may contain files: a prompt or an answer, of at most `max_prompt_bytes`.
#[derive(Debug)]
pub(crate) struct LargeJsonBody<T>(pub(crate) JsonBody<T>);

impl<T: DeserializeOwned> FromRequest<Gateway> for LargeJsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, ApiError> {
        JsonBody::read(request, &gateway.limits, gateway.limits.max_prompt_bytes)
            .await
            .map(Self)
    }
}

/// A parsed body of at most `max_body_bytes`, or `None` for a request without a body and for `null`.
#[derive(Debug)]
pub(crate) struct OptionalJsonBody<T>(pub(crate) Option<T>);

impl<T: DeserializeOwned> FromRequest<Gateway> for OptionalJsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, ApiError> {
        if request.body().is_end_stream() {
            return Ok(Self(None));
        }
        let body = JsonBody::from_request(request, gateway).await?;
        Ok(Self(body.value))
    }
}

/// Whether the request has a body of JSON. `PATCH` also accepts `application/merge-patch+json`.
fn is_json(headers: &HeaderMap, method: &Method) -> bool {
    has_media_type(headers, &["application/json"])
        || method == Method::PATCH && has_media_type(headers, &["application/merge-patch+json"])
}

fn parse<T: DeserializeOwned>(bytes: &[u8], max_depth: usize) -> Result<T, ApiError> {
    jsonrpc::check_depth(bytes, max_depth)
        .map_err(|deep| ApiError::invalid("", deep.to_string()))?;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer(error.path());
        parse_error(error.inner(), pointer)
    })?;
    deserializer
        .end()
        .map_err(|error| parse_error(&error, String::new()))?;
    Ok(value)
}

fn parse_error(error: &serde_json::Error, pointer: String) -> ApiError {
    let text = error.to_string();
    match error.classify() {
        Category::Data => {
            let position = format!(" at line {} column {}", error.line(), error.column());
            ApiError::invalid(
                pointer,
                without_value(text.strip_suffix(&position).unwrap_or(&text)),
            )
        }
        Category::Syntax | Category::Eof | Category::Io => ApiError::new(
            ProblemCode::Malformed,
            format!("the body is not JSON: {text}"),
        ),
    }
}

/// The message of serde without the value that it quotes: a prompt or a key at a wrong place is in no error.
fn without_value(text: &str) -> String {
    for (before, after) in [
        (" string \"", "\", expected "),
        (" variant `", "`, expected "),
    ] {
        let quoted = text
            .split_once(before)
            .and_then(|(start, rest)| Some((start, rest.rsplit_once(after)?.1)));
        if let Some((start, expected)) = quoted {
            return format!(
                "{start}{}, expected {expected}",
                before.trim_end_matches([' ', '"', '`'])
            );
        }
    }
    text.to_owned()
}

/// The JSON pointer (RFC 6901) of a path.
fn pointer(path: &Path) -> String {
    path.iter()
        .fold(String::new(), |pointer, segment| match segment {
            Segment::Seq { index } => format!("{pointer}/{index}"),
            Segment::Map { key } => {
                format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            Segment::Enum { .. } | Segment::Unknown => pointer,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{CreateSession, SetConfigOption};

    fn problem<T: DeserializeOwned>(json: &str) -> (ProblemCode, Vec<String>) {
        let Err(error) = parse::<T>(json.as_bytes(), 16) else {
            panic!("{json} was accepted")
        };
        let problem = error.problem();
        (
            problem.code,
            problem
                .errors
                .iter()
                .map(|error| error.pointer.clone())
                .collect(),
        )
    }

    #[test]
    fn invalid_json_is_malformed() {
        for json in [
            "",
            "{",
            "{]",
            "{\"agent\":\"a\"} x",
            "{\"agent\":\"a\u{1}\"}",
            "nul",
        ] {
            assert_eq!(
                problem::<CreateSession>(json).0,
                ProblemCode::Malformed,
                "{json:?}"
            );
        }
        assert!(parse::<CreateSession>(b"{\"agent\":\"\xff\"}", 16).is_err());
    }

    #[test]
    fn errors_do_not_quote_values() {
        for (text, detail) in [
            (
                r#"invalid type: string "a", expected "b"", expected a map"#,
                "invalid type: string, expected a map",
            ),
            (
                "unknown variant `a`, expected `b` or `c`",
                "unknown variant, expected `b` or `c`",
            ),
            (
                "invalid type: integer `1`, expected a string",
                "invalid type: integer `1`, expected a string",
            ),
            (
                "unknown field `x`, expected `y`",
                "unknown field `x`, expected `y`",
            ),
        ] {
            assert_eq!(without_value(text), detail);
        }
        let Err(error) = parse::<CreateSession>(br#""a secret""#, 16) else {
            panic!("it was accepted")
        };
        let problem = format!("{:?}", error.problem());
        assert!(
            problem.contains("invalid type: string") && !problem.contains("secret"),
            "{problem}"
        );
    }

    #[test]
    fn wrong_members_are_invalid_with_a_pointer() {
        for (json, pointer) in [
            (r#"{"agent":1}"#, "/agent"),
            (r#"{"agent":"A b"}"#, "/agent"),
            (r#"{"agent":"a","cwd":{}}"#, "/cwd"),
            (r#"{"agent":"a","mcpServers":["x",3]}"#, "/mcpServers/1"),
            (r#"{"agent":"a","policy":{"files":"all"}}"#, "/policy/files"),
            (r#"{"agent":"a","policy":{"x":1}}"#, "/policy/x"),
            (r#"{"agent":"a","command":"sh"}"#, "/command"),
            (r#"{"agent":"a","agent":"b"}"#, ""),
            (r"{}", ""),
            (r"[]", ""),
            (r"1", ""),
        ] {
            assert_eq!(
                problem::<CreateSession>(json),
                (ProblemCode::Invalid, vec![pointer.to_owned()]),
                "{json}"
            );
        }
    }

    #[test]
    fn depth_is_checked_before_parsing() {
        let deep = format!(r#"{{"value":{}{}}}"#, "[".repeat(20), "]".repeat(20));
        assert_eq!(problem::<SetConfigOption>(&deep).0, ProblemCode::Invalid);
        let raw: SetConfigOption = parse(br#"{"value": [1e999, "\ud800"]}"#, 16).unwrap();
        assert_eq!(raw.value.get(), r#"[1e999, "\ud800"]"#);
    }
}
