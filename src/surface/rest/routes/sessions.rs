//! `/v1/sessions`: creates, lists, changes, closes and deletes sessions.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::api::{CreateSession, Session, SessionList, SessionPatch, SessionState};
use crate::session::{Created, FILTER_KEY_BYTES, FILTER_VALUE_BYTES, ListQuery, MetadataFilter};
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{
    Authorized, CanPrompt, CanRead, IdempotencyHeader, IfMatch, IfNoneMatch, JsonBody, NoQuery, Params,
    SessionPath, Trace,
};
use crate::types::AgentName;

pub(super) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A response with the session and its `ETag`.
fn session_response(status: StatusCode, session: Session) -> Response {
    let etag = HeaderValue::try_from(session.etag()).expect("event ids are plain ASCII");
    (status, [(header::ETAG, etag)], Json(session)).into_response()
}

/// Creates a session, or adopts a session that the agent already has (`agentSessionId`).
///
/// If the request fails, no session remains.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    tag = "sessions",
    request_body = CreateSession,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "Makes a retry safe for 24 hours: the same key with the same body returns the first response. The same key with another body is 422.")),
    responses((
        status = 201, body = Session, description = "The new session.",
        headers(
            ("Location" = String, description = "The path of the session."),
            ("ETag" = String, description = "The version of the session, for `If-Match`."),
            ("Idempotency-Replayed" = String, description = "`true` if the gateway returns the response of an earlier request with this key."),
        )
    ))
)]
pub(super) async fn create_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    (Trace(trace), key): (Trace, IdempotencyHeader),
    NoQuery: NoQuery,
    body: JsonBody<CreateSession>,
) -> Result<Response, ApiError> {
    let key = key.bind(&body.bytes);
    Ok(created_response(gateway.sessions.create(&by, body.value, key, trace).await?))
}

/// Forks a session: the agent copies the conversation into a new, independent session.
///
/// The agent must be able to fork (`sessionCapabilities.fork`) and to open the fork in another process. The
/// fork has the same working folder, title, metadata, policy and MCP servers. While a turn runs, the response
/// is 409.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/fork",
    tag = "sessions",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "Makes a retry safe for 24 hours: the same key returns the first response.")),
    responses((
        status = 201, body = Session, description = "The new session.",
        headers(
            ("Location" = String, description = "The path of the session."),
            ("ETag" = String, description = "The version of the session, for `If-Match`."),
            ("Idempotency-Replayed" = String, description = "`true` if the gateway returns the response of an earlier request with this key."),
        )
    ))
)]
pub(super) async fn fork_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    (Trace(trace), key): (Trace, IdempotencyHeader),
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(created_response(gateway.sessions.fork(&by, &session, key.bind(&[]), trace).await?))
}

/// The response to a request that created a session.
fn created_response(created: Created) -> Response {
    let location = format!("/v1/sessions/{}", created.session.session_id);
    let mut response = session_response(StatusCode::CREATED, created.session);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::try_from(location).expect("ids are plain ASCII"));
    if created.replayed {
        headers.insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// Lists sessions, the latest `updatedAt` first.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    tag = "sessions",
    params(
        ("agent" = Option<AgentName>, Query, description = "Only sessions of this agent."),
        ("state" = Option<SessionState>, Query, description = "Only sessions in this state."),
        ("q" = Option<String>, Query, max_length = 256, description = "Only sessions whose title or id contains this text. Case does not matter."),
        ("cwd" = Option<String>, Query, max_length = 4096, description = "Only sessions in this working folder."),
        ("metadata" = Option<std::collections::BTreeMap<String, String>>, Query, style = DeepObject, explode, description = "Only sessions whose metadata has all of these members: `metadata.user=42` or `metadata[user]=42`. At most 8 members, with keys of 1 to 128 bytes and values of 1 to 512 bytes."),
        ("cursor" = Option<String>, Query, description = "The `nextCursor` of the previous page."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "The maximum number of sessions on a page. The default is 50."),
        ("If-None-Match" = Option<String>, Header, description = "The ETags of the pages that the client has."),
    ),
    responses(
        (
            status = 200, body = SessionList, description = "A page of sessions.",
            headers(("ETag" = String, description = "The version of the page, for `If-None-Match`."))
        ),
        (
            status = 304, description = "The page has an ETag from `If-None-Match`.",
            headers(("ETag" = String, description = "The version of the page."))
        ),
    )
)]
pub(super) async fn list_sessions(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    known: IfNoneMatch,
    mut params: Params,
) -> Result<Response, ApiError> {
    let query = ListQuery {
        agent: params.parsed("agent", "an agent's name")?,
        state: params.text("state")?.as_deref().map(parse_state).transpose()?,
        q: params.short("q", 256)?,
        cwd: params.short("cwd", 4096)?,
        metadata: metadata_filter(&mut params)?,
        cursor: params.short("cursor", 1024)?,
        limit: params.limit(50, 200)?,
    };
    params.finish()?;
    let page = gateway.sessions.list(&by, &query).await?;
    // `list` reads the position before the sessions, so an equal position means an equal list.
    let etag = format!("\"{}\"", page.last_event_id);
    Ok(known.respond(&etag, || Json(page).into_response()))
}

/// Reads the metadata filters. Each key occurs once; keys and values are within the limits of the index.
pub(super) fn metadata_filter(params: &mut Params) -> Result<MetadataFilter, ApiError> {
    const MAX: usize = 8;
    let filter = params.members("metadata");
    if filter.len() > MAX {
        return Err(ApiError::invalid("metadata", format!("expected at most {MAX} metadata filters")));
    }
    for (at, (key, value)) in filter.iter().enumerate() {
        let name = format!("metadata.{key}");
        if !(1..=FILTER_KEY_BYTES).contains(&key.len()) {
            return Err(ApiError::invalid(name, format!("expected a key of 1 to {FILTER_KEY_BYTES} bytes")));
        }
        if !(1..=FILTER_VALUE_BYTES).contains(&value.len()) {
            return Err(ApiError::invalid(
                name,
                format!("expected a value of 1 to {FILTER_VALUE_BYTES} bytes"),
            ));
        }
        if filter[..at].iter().any(|(former, _)| former == key) {
            return Err(ApiError::invalid(name, "this parameter must not be repeated"));
        }
    }
    Ok(filter)
}

pub(super) fn parse_state(text: &str) -> Result<SessionState, ApiError> {
    Ok(match text {
        "idle" => SessionState::Idle,
        "running" => SessionState::Running,
        "waiting" => SessionState::Waiting,
        "closed" => SessionState::Closed,
        _ => return Err(ApiError::invalid("state", "expected idle, running, waiting or closed")),
    })
}

/// Gets a session. The response reflects every event up to its `lastEventId`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}",
    tag = "sessions",
    params(("If-None-Match" = Option<String>, Header, description = "The ETags of the versions that the client has.")),
    responses(
        (
            status = 200, body = Session, description = "The session.",
            headers(("ETag" = String, description = "The version of the session, for `If-Match` and `If-None-Match`."))
        ),
        (
            status = 304, description = "The session has an ETag from `If-None-Match`.",
            headers(("ETag" = String, description = "The version of the session."))
        ),
    )
)]
pub(super) async fn get_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    known: IfNoneMatch,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?.snapshot().await?;
    Ok(known.respond(&session.etag(), || Json(session).into_response()))
}

/// Changes the title and metadata of a session (JSON Merge Patch, RFC 7396).
///
/// An absent member stays unchanged. `null` removes a member.
#[utoipa::path(
    patch,
    path = "/v1/sessions/{session}",
    tag = "sessions",
    request_body(content((SessionPatch = "application/merge-patch+json"), (SessionPatch = "application/json"))),
    params(("If-Match" = Option<String>, Header, description = "Change the session only if it has this ETag; otherwise the response is 412.")),
    responses((
        status = 200, body = Session, description = "The session after the change.",
        headers(("ETag" = String, description = "The version of the session, for `If-Match`."))
    ))
)]
pub(super) async fn patch_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    IfMatch(if_match): IfMatch,
    NoQuery: NoQuery,
    body: JsonBody<SessionPatch>,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(session_response(StatusCode::OK, session.patch(&by, body.value, if_match).await?))
}

/// Stops a session and deletes all of its data.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session}",
    tag = "sessions",
    responses(
        (status = 204, description = "The session is deleted."),
        (status = 202, description = "The disk is full. Clients no longer see the session; the gateway deletes its data when there is room."),
    )
)]
pub(super) async fn delete_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    let erased = gateway.sessions.open(&by, session).await?.delete(&by, trace).await?;
    Ok(if erased { StatusCode::NO_CONTENT } else { StatusCode::ACCEPTED })
}

/// Starts a process for the session if it has none, and opens the session if it is closed.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/attach",
    tag = "sessions",
    responses((
        status = 200, body = Session, description = "The session, attached to a process.",
        headers(("ETag" = String, description = "The version of the session, for `If-Match`."))
    ))
)]
pub(super) async fn attach_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(session_response(StatusCode::OK, session.attach(trace).await?))
}

/// Closes a session. Its log stays readable; the gateway rejects prompts until `attach`.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/close",
    tag = "sessions",
    responses((
        status = 200, body = Session, description = "The closed session.",
        headers(("ETag" = String, description = "The version of the session, for `If-Match`."))
    ))
)]
pub(super) async fn close_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(session_response(StatusCode::OK, session.close(&by, trace).await?))
}
