//! JSON request bodies and their problems: 415 for another media type, 413 for a large body, 400 for
//! malformed JSON, and 422 with a pointer for a wrong member.

use axum::extract::{FromRequest, Request};
use http::{HeaderMap, Method};
use http_body::Body as _;
use serde::de::DeserializeOwned;

use crate::api::ProblemCode;
use crate::surface::Gateway;
use crate::surface::body::{BodyLimit, ReceivedBody, has_media_type, read_body};
use crate::surface::json;
use crate::surface::rest::error::ApiError;
use crate::types::Limits;

/// A parsed body of at most `max_body_bytes`.
#[derive(Debug)]
pub(crate) struct JsonBody<T> {
    pub(crate) value: T,
    /// The body as received, for its hash.
    pub(crate) bytes: ReceivedBody,
}

impl<T: DeserializeOwned> JsonBody<T> {
    async fn read(request: Request, limits: &Limits, max: BodyLimit) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers, &parts.method) {
            let detail = "the body must be application/json";
            return Err(ApiError::new(ProblemCode::UnsupportedMediaType, detail));
        }
        let bytes = read_body(&parts, body, max, limits.body_timeout).await?;
        let value = json::parse(&bytes, limits.max_json_depth)?;
        Ok(Self { value, bytes })
    }
}

impl<T: DeserializeOwned> FromRequest<Gateway> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, ApiError> {
        let max = BodyLimit::of_key(gateway.limits.max_body_bytes, "server.max_body_bytes");
        Self::read(request, &gateway.limits, max).await
    }
}

/// A parsed body that may contain files: a prompt or an answer, of at most `max_prompt_bytes`.
#[derive(Debug)]
pub(crate) struct LargeJsonBody<T>(pub(crate) JsonBody<T>);

impl<T: DeserializeOwned> FromRequest<Gateway> for LargeJsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, ApiError> {
        let max = BodyLimit::of_key(gateway.limits.max_prompt_bytes, "server.max_prompt_bytes");
        JsonBody::read(request, &gateway.limits, max)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{CreateSession, SetConfigOption};

    fn parse<T: DeserializeOwned>(bytes: &[u8], max_depth: usize) -> Result<T, ApiError> {
        json::parse(bytes, max_depth).map_err(Into::into)
    }

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
            (r"{}", "/agent"),
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

    #[test]
    fn errors_do_not_contain_a_text_in_place_of_an_object() {
        let Err(error) = parse::<CreateSession>(br#""a secret""#, 16) else {
            panic!("it was accepted")
        };
        let problem = format!("{:?}", error.problem());
        assert!(
            problem.contains("invalid type: string") && !problem.contains("secret"),
            "{problem}"
        );
    }
}
