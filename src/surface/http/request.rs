//! The parts of a request as extractors: scope, path, query, headers and JSON bodies.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::authorized::{Authorized, RequiredScope};
use super::body::{BodyLimit, ReceivedBody, ascii, has_media_type, header_texts, read_body};
use super::error::{ApiError, Result};
use super::json;
use super::state::AppState;

use crate::config::Limits;
use agents::agent::AgentSpec;
use base::types::{AgentName, SessionId};
use events::api::ProblemCode;
use sessions::session::{IdempotencyKey, SessionHandle};
use wire::acp::TraceContext;
use workspace::{EntityTags, Precondition};

/// A request of a principal that has the scope of `S`. `I` has the ids in the path; a malformed id is a 404,
/// as an unknown id is. A route with query parameters has `Q = Params`.
pub(crate) struct ApiRequest<S, I = (), Q = NoQuery> {
    pub(crate) app: AppState,
    pub(crate) by: Authorized<S>,
    pub(crate) ids: I,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) params: Q,
}

impl<S, I, Q> FromRequestParts<AppState> for ApiRequest<S, I, Q>
where
    S: RequiredScope,
    I: DeserializeOwned + Send,
    Q: FromRequestParts<AppState, Rejection = ApiError>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self> {
        let by = Authorized::from_parts(parts)?;
        let ids = Path::from_request_parts(parts, app).await;
        let Path(ids) = ids.map_err(|_| ApiError::not_found())?;
        Ok(Self {
            app: app.clone(),
            by,
            ids,
            trace: trace_context(&parts.headers),
            params: Q::from_request_parts(parts, app).await?,
        })
    }
}

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// `Prefer: wait=N` (RFC 7240): how long the client accepts to wait, in seconds. A malformed value counts as
/// absent.
#[derive(Clone, Copy, Default)]
pub struct PreferWait(Option<u64>);

impl PreferWait {
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
        let preferences = header_texts(&parts.headers, PREFER);
        let preferences = preferences.flat_map(|value| value.split([',', ';']));
        let wait = preferences
            .filter_map(|preference| preference.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"));
        let seconds = wait.map(|(_, seconds)| seconds.trim().trim_matches('"').parse());
        Ok(Self(seconds.and_then(Result::ok)))
    }
}

/// The header of a response that was held for this time.
pub(crate) struct PreferenceApplied(pub(crate) Option<Duration>);

impl IntoResponseParts for PreferenceApplied {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        if let Some(wait) = self.0 {
            let applied = ascii(format!("wait={}", wait.as_secs()));
            parts.headers_mut().insert("preference-applied", applied);
        }
        Ok(parts)
    }
}

pub(crate) fn location(path: impl Into<String>) -> [(HeaderName, HeaderValue); 1] {
    [(LOCATION, ascii(path))]
}

pub struct IdempotencyHeader {
    key: Option<String>,
    route: String,
}

impl IdempotencyHeader {
    pub fn bind(self, body: &[u8]) -> Option<IdempotencyKey> {
        Some(IdempotencyKey {
            key: self.key?,
            route: self.route,
            body_hash: Sha256::digest(body).into(),
        })
    }
}

/// The header of a response that repeats the one to an earlier request with the same key.
pub(crate) struct Replayed(pub(crate) bool);

impl IntoResponseParts for Replayed {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        if self.0 {
            let replayed = HeaderValue::from_static("true");
            parts.headers_mut().insert("idempotency-replayed", replayed);
        }
        Ok(parts)
    }
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl<G: Send + Sync> FromRequestParts<G> for IdempotencyHeader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self> {
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
pub struct IfMatch(pub Option<Vec<String>>);

impl<G: Send + Sync> FromRequestParts<G> for IfMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self> {
        let tags = entity_tags(&parts.headers, &IF_MATCH, "If-Match", false)?;
        Ok(Self(match tags {
            None | Some(EntityTags::Any) => None,
            Some(EntityTags::Listed(tags)) => Some(tags),
        }))
    }
}

/// `If-Match` and `If-None-Match` for a resource that may not exist.
pub struct Conditions(pub Precondition);

impl<G: Send + Sync> FromRequestParts<G> for Conditions {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self> {
        let if_match = entity_tags(&parts.headers, &IF_MATCH, "If-Match", false)?;
        let IfNoneMatch(if_none_match) = IfNoneMatch::read(&parts.headers)?;
        Ok(Self(Precondition {
            if_match,
            if_none_match,
        }))
    }
}

/// `If-None-Match` (RFC 9110): the entity tags that the client has cached. The comparison is weak: the tags
/// of the gateway are strong, but a proxy that compresses a response weakens its tag.
pub(crate) struct IfNoneMatch(Option<EntityTags>);

impl IfNoneMatch {
    fn read(headers: &HeaderMap) -> Result<Self> {
        entity_tags(headers, &IF_NONE_MATCH, "If-None-Match", true).map(Self)
    }

    /// Returns 304 if the client has cached the representation with this tag. Otherwise returns the response,
    /// with the tag.
    pub(crate) fn respond(&self, etag: &str, answer: impl FnOnce() -> Response) -> Response {
        let opaque = etag.trim_start_matches("W/");
        let known = self.0.as_ref();
        let response = if known.is_some_and(|tags| tags.matches(Some(opaque))) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            answer()
        };
        ([(ETAG, ascii(etag))], response).into_response()
    }
}

impl<G: Send + Sync> FromRequestParts<G> for IfNoneMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self> {
        Self::read(&parts.headers)
    }
}

/// The tags of all headers with this name, with or without weak ones. The error contains the name as `shown`.
fn entity_tags(
    headers: &HeaderMap,
    name: &HeaderName,
    shown: &str,
    keep_weak: bool,
) -> Result<Option<EntityTags>> {
    let mut listed = None;
    for value in headers.get_all(name) {
        let value = value.to_str().ok().map(str::trim);
        match value.and_then(|list| parse_tags(list, keep_weak)) {
            Some(more) => listed.get_or_insert_with(Vec::new).extend(more),
            None if value == Some("*") => return Ok(Some(EntityTags::Any)),
            None => return Err(ApiError::invalid(shown, "expected ETags, or *")),
        }
    }
    Ok(listed.map(EntityTags::Listed))
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
    let text = |name| headers.get(name)?.to_str().ok();
    TraceContext::parse(text("traceparent")?, text("tracestate"))
}

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

pub struct Params(Vec<(String, String)>);

impl Params {
    pub fn all(&mut self, name: &str) -> Vec<String> {
        let found = self.0.extract_if(.., |(key, _)| key == name);
        found.map(|(_, value)| value).collect()
    }

    /// The members of an object parameter, written as `name.key=value` or `name[key]=value`.
    pub fn members(&mut self, name: &str) -> Vec<(String, String)> {
        let key = |given: &str| {
            let rest = given.strip_prefix(name)?;
            let in_brackets = || rest.strip_prefix('[')?.strip_suffix(']');
            let key = rest.strip_prefix('.').or_else(in_brackets);
            key.map(str::to_owned)
        };
        let found = self.0.extract_if(.., |(given, _)| key(given).is_some());
        let members = found.filter_map(|(given, value)| Some((key(&given)?, value)));
        members.collect()
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>> {
        let mut values = self.all(name);
        if values.len() > 1 {
            let detail = "this parameter must not be repeated";
            return Err(ApiError::invalid(name, detail));
        }
        Ok(values.pop())
    }

    pub fn short(&mut self, name: &str, max: usize) -> Result<Option<String>> {
        let text = self.text(name)?;
        if text.as_ref().is_some_and(|text| text.chars().count() > max) {
            let detail = format!("expected at most {max} characters");
            return Err(ApiError::invalid(name, detail));
        }
        Ok(text)
    }

    /// `expected` describes a valid value in the error message.
    pub fn parsed<T: FromStr>(&mut self, name: &str, expected: &str) -> Result<Option<T>> {
        let parsed = self.text(name)?.map(|text| text.parse()).transpose();
        parsed.map_err(|_| ApiError::invalid(name, format!("expected {expected}")))
    }

    /// A value of an enum of the API. `expected` lists the values.
    pub(crate) fn named<T: DeserializeOwned>(
        &mut self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>> {
        let value = self.text(name)?.map(serde_json::Value::from);
        let parsed = value.map(serde_json::from_value).transpose();
        parsed.map_err(|_| ApiError::invalid(name, format!("expected {expected}")))
    }

    pub fn flag(&mut self, name: &str, default: bool) -> Result<bool> {
        Ok(self.parsed(name, "true or false")?.unwrap_or(default))
    }

    pub fn limit(&mut self, default: usize, max: usize) -> Result<usize> {
        let limit: Option<usize> = self.parsed("limit", "a number")?;
        match limit {
            None => Ok(default),
            Some(limit) if (1..=max).contains(&limit) => Ok(limit),
            Some(_) => Err(ApiError::invalid("limit", format!("expected 1 to {max}"))),
        }
    }

    pub fn finish(&self) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::invalid(name, "unknown parameter")),
        }
    }
}

/// The pagination parameters of a list that is held in memory: the start and the size of the page. The entries have a
/// unique key `K` that never changes, so that a client that pages sees each entry once, also if entries are added or
/// removed.
pub(crate) struct Page<K> {
    after: Option<K>,
    limit: usize,
}

impl<G: Send + Sync, K: FromStr> FromRequestParts<G> for Page<K> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &G) -> Result<Self> {
        let mut params = Params::from_request_parts(parts, state).await?;
        let page = Self::read(&mut params)?;
        params.finish()?;
        Ok(page)
    }
}

impl<K: FromStr> Page<K> {
    pub(crate) fn read(params: &mut Params) -> Result<Self> {
        Ok(Self {
            after: params.parsed("cursor", "the nextCursor of a previous page")?,
            limit: params.limit(Self::MAX, Self::MAX)?,
        })
    }
}

impl<K> Page<K> {
    /// Without `limit`, a page has this number of entries. The lists that use it are shorter in practice.
    const MAX: usize = 1000;

    pub(crate) fn new(after: Option<K>, limit: usize) -> Self {
        Self { after, limit }
    }
}

impl<K: Ord + ToString> Page<K> {
    pub(crate) fn select<T>(
        self,
        mut entries: Vec<T>,
        key: impl Fn(&T) -> K,
    ) -> (Vec<T>, Option<String>) {
        if let Some(after) = &self.after {
            entries.retain(|entry| key(entry) > *after);
        }
        entries.sort_by_key(&key);
        let mut next_cursor = None;
        if entries.len() > self.limit {
            entries.truncate(self.limit);
            next_cursor = entries.last().map(|entry| key(entry).to_string());
        }
        (entries, next_cursor)
    }
}

impl<G: Send + Sync> FromRequestParts<G> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self> {
        let Query(mut pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| ApiError::invalid("", "the query string is malformed"))?;
        // The policy has already checked the ticket. Clients that cannot send headers use it instead of a
        // key.
        pairs.retain(|(name, _)| name != "ticket");
        Ok(Self(pairs))
    }
}

/// Rejects every parameter, for routes that have none.
pub(crate) struct NoQuery;

impl<G: Send + Sync> FromRequestParts<G> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &G) -> Result<Self> {
        let params = Params::from_request_parts(parts, state).await?;
        params.finish()?;
        Ok(Self)
    }
}

/// Ignores all parameters, as the chat protocols do.
pub(crate) struct AnyQuery;

impl<G: Send + Sync> FromRequestParts<G> for AnyQuery {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, _: &G) -> Result<Self> {
        Ok(Self)
    }
}

/// The maximum size of a body.
pub(crate) trait MaxSize {
    fn of(limits: &Limits) -> BodyLimit;
}

/// At most `max_body_bytes`.
pub(crate) struct PlainSize;

impl MaxSize for PlainSize {
    fn of(limits: &Limits) -> BodyLimit {
        BodyLimit::of_key(limits.http.max_body_bytes, "server.max_body_bytes")
    }
}

/// At most `max_prompt_bytes`, for a body that may contain files: a prompt or an answer.
pub(crate) struct PromptSize;

impl MaxSize for PromptSize {
    fn of(limits: &Limits) -> BodyLimit {
        BodyLimit::of_key(limits.sessions.max_prompt_bytes, "server.max_prompt_bytes")
    }
}

/// For a body that contains the whole history of a chat with all files. The limit of a prompt applies to the new message.
pub(crate) struct WholeHistory;

impl MaxSize for WholeHistory {
    fn of(_: &Limits) -> BodyLimit {
        BodyLimit::fixed(32 << 20)
    }
}

/// A parsed body. Its problems: 415 for another media type, 413 for a large body, 400 for malformed JSON, and 422 with a
/// pointer for a wrong member.
pub(crate) struct JsonBody<T, S = PlainSize> {
    pub(crate) value: T,
    /// The body as received, for its hash.
    pub(crate) bytes: ReceivedBody,
    size: PhantomData<S>,
}

impl<T: DeserializeOwned, S: MaxSize> FromRequest<AppState> for JsonBody<T, S> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &AppState) -> Result<Self> {
        let limits = &app.limits;
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers, &parts.method) {
            let detail = "the body must be application/json";
            return Err(ApiError::new(ProblemCode::UnsupportedMediaType, detail));
        }
        let bytes = read_body(&parts, body, S::of(limits), limits.http.body_timeout).await?;
        Ok(Self {
            value: json::parse(&bytes)?,
            bytes,
            size: PhantomData,
        })
    }
}

/// A parsed body of at most `max_body_bytes`, or `None` for a request without a body and for `null`.
pub(crate) struct OptionalJsonBody<T>(pub(crate) Option<T>);

impl<T: DeserializeOwned> FromRequest<AppState> for OptionalJsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &AppState) -> Result<Self> {
        if request.body().is_end_stream() {
            return Ok(Self(None));
        }
        let body: JsonBody<_> = JsonBody::from_request(request, app).await?;
        Ok(Self(body.value))
    }
}

fn is_json(headers: &HeaderMap, method: &Method) -> bool {
    has_media_type(headers, &["application/json"])
        || method == Method::PATCH && has_media_type(headers, &["application/merge-patch+json"])
}

pub(crate) trait SessionPath {
    fn session(&self) -> SessionId;
}

impl SessionPath for SessionId {
    fn session(&self) -> SessionId {
        *self
    }
}

impl<T> SessionPath for (SessionId, T) {
    fn session(&self) -> SessionId {
        self.0
    }
}

impl<S, I: SessionPath, Q> ApiRequest<S, I, Q> {
    /// The session of the path. The id of a session of another user is unknown.
    pub(crate) async fn open_session(&self) -> Result<SessionHandle> {
        Ok(self.app.open_session(&self.by, self.ids.session()).await?)
    }
}

impl<S, Q> ApiRequest<S, AgentName, Q> {
    pub(crate) fn agent(&self) -> Result<Arc<AgentSpec>> {
        let agent = self.app.catalogue.agent(&self.ids);
        agent.ok_or_else(ApiError::not_found)
    }
}

#[cfg(test)]
mod headers_tests {
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

#[cfg(test)]
mod json_body_tests {
    use super::*;
    use events::api::{CreateSession, SetConfigOption};

    fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
        json::parse(bytes).map_err(Into::into)
    }

    fn problem<T: DeserializeOwned>(json: &str) -> (ProblemCode, Vec<String>) {
        let Err(error) = parse::<T>(json.as_bytes()) else {
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
        assert!(parse::<CreateSession>(b"{\"agent\":\"\xff\"}").is_err());
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
        let deep = format!(r#"{{"value":{}{}}}"#, "[".repeat(128), "]".repeat(128));
        assert_eq!(problem::<SetConfigOption>(&deep).0, ProblemCode::Invalid);
        let raw: SetConfigOption = parse(br#"{"value": [1e999, "\ud800"]}"#).unwrap();
        assert_eq!(raw.value.get(), r#"[1e999, "\ud800"]"#);
    }

    #[test]
    fn errors_do_not_contain_a_text_in_place_of_an_object() {
        let Err(error) = parse::<CreateSession>(br#""a secret""#) else {
            panic!("it was accepted")
        };
        let problem = format!("{:?}", error.problem());
        assert!(
            problem.contains("invalid type: string") && !problem.contains("secret"),
            "{problem}"
        );
    }
}
