//! Request headers that routes read.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use crate::acp::TraceContext;
use crate::session::IdempotencyKey;
use crate::surface::rest::error::ApiError;
use crate::workspace::{EntityTags, Precondition};

/// `Prefer: wait=N` (RFC 7240): how long the client accepts to wait, in seconds. A malformed value counts as
/// absent.
#[derive(Debug, Clone, Copy, Default)]
pub struct PreferWait(Option<u64>);

impl PreferWait {
    /// The wait in seconds, at most `max`.
    pub fn seconds(self, max: u64) -> Option<u64> {
        self.0.map(|seconds| seconds.min(max))
    }

    pub fn duration(self, max: u64) -> Option<Duration> {
        self.seconds(max).map(Duration::from_secs)
    }
}

impl<G: Send + Sync> FromRequestParts<G> for PreferWait {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self, Infallible> {
        let preferences = parts
            .headers
            .get_all("prefer")
            .iter()
            .filter_map(|value| value.to_str().ok());
        let wait = preferences
            .flat_map(|value| value.split([',', ';']))
            .filter_map(|preference| preference.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))
            .and_then(|(_, seconds)| seconds.trim().trim_matches('"').parse().ok());
        Ok(Self(wait))
    }
}

/// Reports the wait that applies to a request.
pub(crate) fn set_preference_applied(response: &mut Response, wait: Option<Duration>) {
    if let Some(wait) = wait {
        let applied = HeaderValue::try_from(format!("wait={}", wait.as_secs()))
            .expect("digits are plain ASCII");
        response
            .headers_mut()
            .insert(HeaderName::from_static("preference-applied"), applied);
    }
}

/// The optional `Idempotency-Key` header: 1 to 255 printable ASCII characters.
#[derive(Debug)]
pub struct IdempotencyHeader {
    key: Option<String>,
    route: String,
}

impl IdempotencyHeader {
    /// Binds the key to its route and to this body.
    pub fn bind(self, body: &[u8]) -> Option<IdempotencyKey> {
        let key = self.key?;
        Some(IdempotencyKey {
            key,
            route: self.route,
            body_hash: Sha256::digest(body).into(),
        })
    }
}

/// In the response to a request that was repeated with its key.
pub(crate) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Marks the response of a repeated request.
pub(crate) fn set_replayed(response: &mut Response, replayed: bool) {
    if replayed {
        response
            .headers_mut()
            .insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl<G: Send + Sync> FromRequestParts<G> for IdempotencyHeader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self, ApiError> {
        let key = match single_header(&parts.headers, &IDEMPOTENCY_KEY) {
            Ok(None) => None,
            Ok(Some(key)) if is_valid_key(key) => Some(key.to_owned()),
            _ => {
                let detail = "expected one header of 1 to 255 printable ASCII characters";
                return Err(ApiError::invalid("Idempotency-Key", detail));
            }
        };
        // A prompt and its `/stream` variant are the same request, so they share the key.
        let path = parts.uri.path().trim_end_matches("/stream");
        Ok(Self {
            key,
            route: format!("{} {path}", parts.method),
        })
    }
}

fn is_valid_key(key: &str) -> bool {
    (1..=255).contains(&key.len()) && key.bytes().all(|b| (0x20..0x7f).contains(&b))
}

/// `If-Match` (RFC 9110) for a resource that exists: the accepted entity tags as the client wrote them.
/// `None` accepts any tag: without the header, and for `*`. Weak tags are dropped, because they never match.
#[derive(Debug)]
pub struct IfMatch(pub Option<Vec<String>>);

impl<G: Send + Sync> FromRequestParts<G> for IfMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self, ApiError> {
        let tags = entity_tags(&parts.headers, &IF_MATCH, "If-Match", parse_strong_tags)?;
        Ok(Self(tags.and_then(|tags| match tags {
            EntityTags::Any => None,
            EntityTags::Listed(tags) => Some(tags),
        })))
    }
}

/// `If-Match` and `If-None-Match` for a resource that may not exist.
#[derive(Debug)]
pub struct Conditions(pub Precondition);

impl<G: Send + Sync> FromRequestParts<G> for Conditions {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self, ApiError> {
        let if_match = entity_tags(&parts.headers, &IF_MATCH, "If-Match", parse_strong_tags)?;
        let IfNoneMatch(if_none_match) = IfNoneMatch::read(&parts.headers)?;
        Ok(Self(Precondition {
            if_match,
            if_none_match,
        }))
    }
}

/// `If-None-Match` (RFC 9110): the entity tags that the client has cached. The comparison is weak: the tags
/// of the gateway are strong, but a proxy that compresses a response weakens its tag.
#[derive(Debug)]
pub(crate) struct IfNoneMatch(Option<EntityTags>);

impl IfNoneMatch {
    fn read(headers: &HeaderMap) -> Result<Self, ApiError> {
        entity_tags(headers, &IF_NONE_MATCH, "If-None-Match", |list| {
            parse_tags(list, true)
        })
        .map(Self)
    }

    /// Returns 304 if the client has cached the representation with this tag. Otherwise returns the response,
    /// with the tag.
    pub(crate) fn respond(&self, etag: &str, answer: impl FnOnce() -> Response) -> Response {
        let opaque = etag.trim_start_matches("W/");
        let unchanged = self
            .0
            .as_ref()
            .is_some_and(|tags| tags.matches(Some(opaque)));
        let mut response = if unchanged {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            answer()
        };
        let etag = HeaderValue::try_from(etag).expect("cursors are plain ASCII");
        response.headers_mut().insert(ETAG, etag);
        response
    }
}

impl<G: Send + Sync> FromRequestParts<G> for IfNoneMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self, ApiError> {
        Self::read(&parts.headers)
    }
}

/// The tags of all headers with this name. The error contains the name as `shown`.
fn entity_tags(
    headers: &HeaderMap,
    name: &HeaderName,
    shown: &str,
    parse: impl Fn(&str) -> Option<Vec<String>>,
) -> Result<Option<EntityTags>, ApiError> {
    let mut listed = None;
    for value in headers.get_all(name) {
        let value = value.to_str().ok().map(str::trim);
        match value.and_then(&parse) {
            Some(more) => listed.get_or_insert_with(Vec::new).extend(more),
            None if value == Some("*") => return Ok(Some(EntityTags::Any)),
            None => return Err(ApiError::invalid(shown, "expected ETags, or *")),
        }
    }
    Ok(listed.map(EntityTags::Listed))
}

fn parse_strong_tags(list: &str) -> Option<Vec<String>> {
    parse_tags(list, false)
}

/// Parses a list such as `"a", W/"b"`, with or without its weak tags. Returns `None` if the list is
/// malformed. A tag may contain commas, and is returned without the `W/` prefix.
fn parse_tags(mut list: &str, keep_weak: bool) -> Option<Vec<String>> {
    let mut tags = Vec::new();
    loop {
        let strong = list.strip_prefix("W/").unwrap_or(list);
        let end = strong.strip_prefix('"')?.find('"')? + 2;
        if keep_weak || strong.len() == list.len() {
            tags.push(strong[..end].to_owned());
        }
        let rest = strong[end..].trim_start();
        if rest.is_empty() {
            return Some(tags);
        }
        list = rest.strip_prefix(',')?.trim_start();
    }
}

/// The `Last-Event-ID` header. The text may be an invalid cursor.
#[derive(Debug)]
pub enum LastEventId {
    Absent,
    Text(String),
    /// The header is repeated, or it is not valid text.
    Invalid,
}

impl<G: Send + Sync> FromRequestParts<G> for LastEventId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self, Infallible> {
        const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
        Ok(match single_header(&parts.headers, &LAST_EVENT_ID) {
            // An EventSource sends an empty id if it has not received one.
            Ok(None | Some("")) => Self::Absent,
            Ok(Some(id)) => Self::Text(id.to_owned()),
            Err(MalformedHeader) => Self::Invalid,
        })
    }
}

/// The trace context of `traceparent` and `tracestate`. The W3C specification requires that servers
/// ignore a malformed one.
pub(crate) fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    TraceContext::parse(text("traceparent")?, text("tracestate"))
}

/// A header that must not be repeated.
#[derive(Debug)]
struct MalformedHeader;

fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, MalformedHeader> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        _ => Err(MalformedHeader),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::post("/v1/sessions");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[tokio::test]
    async fn prefer_wait_is_parsed_and_capped() {
        for (prefer, wait) in [
            ("wait=5", Some(5)),
            ("respond-async, Wait = 7", Some(7)),
            ("wait=\"9\"; x=1", Some(9)),
            ("wait=9999", Some(300)),
            ("wait=-1", None),
            ("wait", None),
            ("return=minimal", None),
        ] {
            let Ok(got) =
                PreferWait::from_request_parts(&mut parts(&[("prefer", prefer)]), &()).await;
            assert_eq!(got.seconds(300), wait, "{prefer}");
        }
    }

    #[tokio::test]
    async fn if_match_keeps_only_strong_tags() {
        for (headers, tags) in [
            (vec![], Some(None)),
            (vec!["*"], Some(None)),
            (vec![r#""a""#], Some(Some(vec![r#""a""#]))),
            (
                vec![r#""a", W/"b" ,"c,d""#],
                Some(Some(vec![r#""a""#, r#""c,d""#])),
            ),
            (
                vec![r#""a""#, r#""b""#],
                Some(Some(vec![r#""a""#, r#""b""#])),
            ),
            (vec![r#"W/"a""#], Some(Some(vec![]))),
            (vec!["a"], None),
            (vec![r#""a"#], None),
            (vec![r#""a" "b""#], None),
            (vec![""], None),
        ] {
            let headers: Vec<_> = headers
                .into_iter()
                .map(|value| ("if-match", value))
                .collect();
            let got = IfMatch::from_request_parts(&mut parts(&headers), &())
                .await
                .ok()
                .map(|got| got.0);
            let tags =
                tags.map(|tags| tags.map(|tags| tags.into_iter().map(str::to_owned).collect()));
            assert_eq!(got, tags, "{headers:?}");
        }
    }

    #[tokio::test]
    async fn idempotency_key_is_short_and_printable() {
        let long = "x".repeat(256);
        for (headers, holds) in [
            (vec![], true),
            (vec![("idempotency-key", "a b~1")], true),
            (vec![("idempotency-key", &long[..255])], true),
            (vec![("idempotency-key", &long[..])], false),
            (vec![("idempotency-key", "")], false),
            (
                vec![("idempotency-key", "a"), ("idempotency-key", "b")],
                false,
            ),
            (vec![("idempotency-key", "\u{e9}")], false),
        ] {
            let got = IdempotencyHeader::from_request_parts(&mut parts(&headers), &()).await;
            assert_eq!(got.is_ok(), holds, "{headers:?}");
        }
        let header =
            IdempotencyHeader::from_request_parts(&mut parts(&[("idempotency-key", "k")]), &())
                .await;
        let key = header.unwrap().bind(b"{}").unwrap();
        assert_eq!(
            (key.key.as_str(), key.route.as_str()),
            ("k", "POST /v1/sessions")
        );
    }
}
