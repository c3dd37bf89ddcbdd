//! `/v1/sessions`: making, finding, changing and ending sessions.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::api::{CreateSession, Session, SessionList, SessionPatch, SessionState};
use crate::http::error::ApiError;
use crate::http::extract::{
    Authorized, CanPrompt, CanRead, IdempotencyHeader, IfMatch, IfNoneMatch, JsonBody, NoQuery, Params, SessionPath,
    Trace,
};
use crate::http::state::Gateway;
use crate::session::{Created, FILTER_KEY_BYTES, FILTER_VALUE_BYTES, ListQuery, MetadataFilter};
use crate::types::AgentName;

pub(super) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A session with its `ETag`.
fn session_response(status: StatusCode, session: Session) -> Response {
    let etag = HeaderValue::try_from(session.etag()).expect("event ids are plain ASCII");
    (status, [(header::ETAG, etag)], Json(session)).into_response()
}

/// Makes a session, or adopts one that the agent has (`agentSessionId`).
///
/// A failed one leaves nothing behind.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    tag = "sessions",
    request_body = CreateSession,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "The same key and body again get the first answer.")),
    responses((
        status = 201, body = Session, description = "The new session.",
        headers(
            ("Location" = String, description = "The session."),
            ("ETag" = String, description = "For If-Match."),
            ("Idempotency-Replayed" = String, description = "`true` when the same request came before."),
        )
    ))
)]
pub(in crate::http) async fn create_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    (Trace(trace), key): (Trace, IdempotencyHeader),
    NoQuery: NoQuery,
    body: JsonBody<CreateSession>,
) -> Result<Response, ApiError> {
    let key = key.bind(&body.bytes);
    Ok(created_response(gateway.sessions.create(&by, body.value, key, trace).await?))
}

/// Makes a session of this one: the agent copies what was said, and the two go on apart.
///
/// Only where the agent can fork (`sessionCapabilities.fork`) and give the copy to a process of its own. The fork works
/// in the same folder, with the same title, metadata, policy and servers. While a turn runs it is 409.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/fork",
    tag = "sessions",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "The same key again gets the first answer.")),
    responses((
        status = 201, body = Session, description = "The new session.",
        headers(
            ("Location" = String, description = "The session."),
            ("ETag" = String, description = "For If-Match."),
            ("Idempotency-Replayed" = String, description = "`true` when the same request came before."),
        )
    ))
)]
pub(in crate::http) async fn fork_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    (Trace(trace), key): (Trace, IdempotencyHeader),
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(created_response(gateway.sessions.fork(&by, &session, key.bind(&[]), trace).await?))
}

/// The answer to who made a session.
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

/// Sessions, the newest `updatedAt` first.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    tag = "sessions",
    params(
        ("agent" = Option<AgentName>, Query, description = "Only of this agent."),
        ("state" = Option<SessionState>, Query, description = "Only in this state."),
        ("q" = Option<String>, Query, max_length = 256, description = "Only with this in title or id, whatever the case."),
        ("cwd" = Option<String>, Query, max_length = 4096, description = "Only in this working folder."),
        ("metadata" = Option<std::collections::BTreeMap<String, String>>, Query, style = DeepObject, explode, description = "Only sessions with all of these members in their metadata, as `metadata.user=42` or `metadata[user]=42`; at most 8."),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the page before."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Sessions on a page; 50."),
        ("If-None-Match" = Option<String>, Header, description = "ETags of pages that the client has already."),
    ),
    responses(
        (
            status = 200, body = SessionList, description = "A page.",
            headers(("ETag" = String, description = "For If-None-Match."))
        ),
        (
            status = 304, description = "The page is the version that If-None-Match names.",
            headers(("ETag" = String, description = "Of the page."))
        ),
    )
)]
pub(in crate::http) async fn list_sessions(
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
    // The position is read before the list. No event was appended since means that the list is the same.
    let etag = format!("\"{}\"", page.last_event_id);
    Ok(known.respond(&etag, || Json(page).into_response()))
}

/// The filters by metadata: each key once, keys and values within the bounds of the index.
pub(super) fn metadata_filter(params: &mut Params) -> Result<MetadataFilter, ApiError> {
    const MAX: usize = 8;
    let filter = params.members("metadata");
    if filter.len() > MAX {
        return Err(ApiError::invalid("metadata", format!("at most {MAX} filters by metadata")));
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
            return Err(ApiError::invalid(name, "this parameter may be given once"));
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

/// A session, exact at its `lastEventId`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}",
    tag = "sessions",
    params(("If-None-Match" = Option<String>, Header, description = "ETags of versions that the client has already.")),
    responses(
        (
            status = 200, body = Session, description = "The session.",
            headers(("ETag" = String, description = "For If-Match and If-None-Match."))
        ),
        (
            status = 304, description = "The session is the version that If-None-Match names.",
            headers(("ETag" = String, description = "Of the session."))
        ),
    )
)]
pub(in crate::http) async fn get_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    known: IfNoneMatch,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?.snapshot().await?;
    Ok(known.respond(&session.etag(), || Json(session).into_response()))
}

/// Changes title and metadata (RFC 7396): absent keeps, null clears.
#[utoipa::path(
    patch,
    path = "/v1/sessions/{session}",
    tag = "sessions",
    request_body(content((SessionPatch = "application/merge-patch+json"), (SessionPatch = "application/json"))),
    params(("If-Match" = Option<String>, Header, description = "Only if the session is still this one.")),
    responses((
        status = 200, body = Session, description = "The session as it is now.",
        headers(("ETag" = String, description = "For If-Match."))
    ))
)]
pub(in crate::http) async fn patch_session(
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

/// Ends the session and erases all that is kept of it.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session}",
    tag = "sessions",
    responses(
        (status = 204, description = "It is gone."),
        (status = 202, description = "The disk is full. The session is gone for clients, and is erased once there is room."),
    )
)]
pub(in crate::http) async fn delete_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    let erased = gateway.sessions.open(&by, session).await?.delete(&by, trace).await?;
    Ok(if erased { StatusCode::NO_CONTENT } else { StatusCode::ACCEPTED })
}

/// Gets the session a process now; opens a closed one.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/attach",
    tag = "sessions",
    responses((
        status = 200, body = Session, description = "The session, attached.",
        headers(("ETag" = String, description = "For If-Match."))
    ))
)]
pub(in crate::http) async fn attach_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(session_response(StatusCode::OK, session.attach(trace).await?))
}

/// Closes the session: its log stays readable, prompts are refused until `attach`.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/close",
    tag = "sessions",
    responses((
        status = 200, body = Session, description = "The session, closed.",
        headers(("ETag" = String, description = "For If-Match."))
    ))
)]
pub(in crate::http) async fn close_session(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    SessionPath(session): SessionPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(session_response(StatusCode::OK, session.close(&by, trace).await?))
}
