//! `/v1/sessions`: creates, lists, changes, closes and deletes sessions.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;

use super::first_turn::FirstTurn;
use crate::api::{AttachSession, CreateSession, Session, SessionList, SessionPatch, SessionState};
use crate::session::{
    Created, FILTER_KEY_BYTES, FILTER_VALUE_BYTES, ListOrder, ListQuery, MetadataFilter,
};
use crate::surface::authorized::{CanPrompt, CanRead};
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{
    ApiRequest, IdempotencyHeader, IfMatch, IfNoneMatch, JsonBody, LargeJsonBody, OptionalJsonBody,
    Params, set_replayed,
};
use crate::types::SessionId;

/// A response with the session and its `ETag`.
fn session_response(status: StatusCode, session: Session) -> Response {
    let etag = HeaderValue::try_from(session.etag()).expect("event ids are plain ASCII");
    (status, [(header::ETAG, etag)], Json(session)).into_response()
}

/// Creates a session, or adopts a session that the agent already has (`agentSessionId`).
///
/// With `prompt`, its first turn begins: `promptId` of the response. `modeId` and `config` are set before. If the request
/// fails, no session remains.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    request_body = CreateSession,
    responses((status = 201, body = Session, description = "The new session."))
)]
pub(super) async fn create_session(
    request: ApiRequest<CanPrompt>,
    key: IdempotencyHeader,
    LargeJsonBody(mut body): LargeJsonBody<CreateSession>,
) -> Result<Response, ApiError> {
    let key = key.bind(&body.bytes);
    let first = FirstTurn::take(&mut body.value, key.as_ref())?;
    first.check_scope(&request.by)?;
    let ApiRequest {
        gateway, by, trace, ..
    } = request;
    let mut created = gateway
        .sessions
        .create(&by, body.value, key, trace.clone())
        .await?;
    if !first.is_empty() {
        created.response = first.begin(&gateway, &by, &created, trace).await?;
    }
    Ok(created_response(created))
}

/// Forks a session: the agent copies the conversation into a new, independent session.
///
/// The agent must be able to fork (`sessionCapabilities.fork`) and to open the fork in another process. The
/// fork has the same working folder, title, metadata, policy and MCP servers. While a turn runs, the response
/// is 409.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/fork",
    responses((status = 201, body = Session, description = "The new session."))
)]
pub(super) async fn fork_session(
    request: ApiRequest<CanPrompt, SessionId>,
    key: IdempotencyHeader,
) -> Result<Response, ApiError> {
    let session = request.open_session().await?;
    Ok(created_response(
        request
            .gateway
            .sessions
            .fork(&request.by, &session, &[], key.bind(&[]), request.trace)
            .await?,
    ))
}

/// The response to a request that created a session.
fn created_response(created: Created) -> Response {
    let location = format!("/v1/sessions/{}", created.response.session_id);
    let mut response = session_response(StatusCode::CREATED, created.response);
    let headers = response.headers_mut();
    headers.insert(
        header::LOCATION,
        HeaderValue::try_from(location).expect("ids are plain ASCII"),
    );
    set_replayed(&mut response, created.replayed);
    response
}

/// Lists sessions, the latest `updatedAt` first.
///
/// The filters combine. A page scans at most 5,000 sessions, so a page can have fewer entries than `limit` and still
/// have a `nextCursor`. The latest changes come first by default: a session that changes while a client pages moves
/// before its cursor. With `order=created`, the oldest session comes first and no entry moves, so that a client sees
/// each session exactly once.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    responses(
        (status = 200, body = SessionList, description = "A page of sessions."),
        (status = 304, description = "The page has an ETag from `If-None-Match`."),
    )
)]
pub(super) async fn list_sessions(
    mut request: ApiRequest<CanRead, (), Params>,
    known: IfNoneMatch,
) -> Result<Response, ApiError> {
    let q = request.params.short("q", 256)?;
    let tasks = request.params.flag("tasks", false)?;
    let order = match request.params.text("order")?.as_deref() {
        None | Some("updated") => ListOrder::Updated,
        Some("created") => ListOrder::Created,
        Some(_) => return Err(ApiError::invalid("order", "expected updated or created")),
    };
    let query = ListQuery {
        q,
        tasks,
        order,
        ..list_query(&mut request.params, 200)?
    };
    request.params.finish()?;
    let page = request.gateway.sessions.list(&request.by, &query).await?;
    // `list` reads the position before the sessions, so an equal position means an equal list.
    let etag = format!("\"{}\"", page.last_event_id);
    Ok(known.respond(&etag, || Json(page).into_response()))
}

/// Reads the filters and the page, without `q`.
pub(super) fn list_query(params: &mut Params, max_limit: usize) -> Result<ListQuery, ApiError> {
    Ok(ListQuery {
        agent: params.parsed("agent", "an agent's name")?,
        state: params
            .text("state")?
            .as_deref()
            .map(parse_state)
            .transpose()?,
        q: None,
        cwd: params.short("cwd", 4096)?,
        metadata: metadata_filter(params)?,
        tasks: false,
        order: ListOrder::Updated,
        cursor: params.short("cursor", 1024)?,
        limit: params.limit(50, max_limit)?,
    })
}

/// Reads the metadata filters. Each key occurs once; keys and values are within the limits of the index.
fn metadata_filter(params: &mut Params) -> Result<MetadataFilter, ApiError> {
    const MAX: usize = 8;
    let filter = params.members("metadata");
    if filter.len() > MAX {
        return Err(ApiError::invalid(
            "metadata",
            format!("expected at most {MAX} metadata filters"),
        ));
    }
    for (at, (key, value)) in filter.iter().enumerate() {
        let name = format!("metadata.{key}");
        if !(1..=FILTER_KEY_BYTES).contains(&key.len()) {
            return Err(ApiError::invalid(
                name,
                format!("expected a key of 1 to {FILTER_KEY_BYTES} bytes"),
            ));
        }
        if !(1..=FILTER_VALUE_BYTES).contains(&value.len()) {
            let detail = format!("expected a value of 1 to {FILTER_VALUE_BYTES} bytes");
            return Err(ApiError::invalid(name, detail));
        }
        if filter[..at].iter().any(|(former, _)| former == key) {
            return Err(ApiError::invalid(
                name,
                "this parameter must not be repeated",
            ));
        }
    }
    Ok(filter)
}

fn parse_state(text: &str) -> Result<SessionState, ApiError> {
    let state: Result<_, serde::de::value::Error> =
        SessionState::deserialize(text.into_deserializer());
    state.map_err(|_| ApiError::invalid("state", "expected idle, running, waiting or closed"))
}

/// Gets a session. The response reflects every event up to its `lastEventId`.
///
/// `If-None-Match` with the `ETag` of an earlier response returns 304 if nothing has changed. A session of another
/// tenant is 404.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}",
    responses(
        (status = 200, body = Session, description = "The session."),
        (status = 304, description = "The session has an ETag from `If-None-Match`."),
    )
)]
pub(super) async fn get_session(
    request: ApiRequest<CanRead, SessionId>,
    known: IfNoneMatch,
) -> Result<Response, ApiError> {
    let session = request.open_session().await?.snapshot().await?;
    Ok(known.respond(&session.etag(), || Json(session).into_response()))
}

/// Changes the title and metadata of a session (JSON Merge Patch, RFC 7396).
///
/// An absent member stays unchanged. `null` removes a member.
#[utoipa::path(
    patch,
    path = "/v1/sessions/{session}",
    request_body(content((SessionPatch = "application/merge-patch+json"), (SessionPatch = "application/json"))),
    responses((status = 200, body = Session, description = "The session after the change."))
)]
pub(super) async fn patch_session(
    request: ApiRequest<CanPrompt, SessionId>,
    IfMatch(if_match): IfMatch,
    body: JsonBody<SessionPatch>,
) -> Result<Response, ApiError> {
    let session = request.open_session().await?;
    Ok(session_response(
        StatusCode::OK,
        session.patch(&request.by, body.value, if_match).await?,
    ))
}

/// Stops a session and deletes all of its data.
///
/// A running turn is cancelled, and the log and the own folder of the session are erased. `If-Match` with the current
/// revision makes the request conditional.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session}",
    responses(
        (status = 204, description = "The session is deleted."),
        (status = 202, description = "The disk is full. Clients no longer see the session; the gateway deletes its data when there is room."),
    )
)]
pub(super) async fn delete_session(
    request: ApiRequest<CanPrompt, SessionId>,
    IfMatch(if_match): IfMatch,
) -> Result<StatusCode, ApiError> {
    let erased = request
        .open_session()
        .await?
        .delete(&request.by, if_match, request.trace)
        .await?;
    Ok(if erased {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::ACCEPTED
    })
}

/// Starts a process for the session if it has none, and opens the session if it is closed.
///
/// With `context: "new"`, the agent begins a new conversation: it does not remember the earlier turns. The log keeps them.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/attach",
    request_body = Option<AttachSession>,
    responses((status = 200, body = Session, description = "The session after the change."))
)]
pub(super) async fn attach_session(
    request: ApiRequest<CanPrompt, SessionId>,
    OptionalJsonBody(body): OptionalJsonBody<AttachSession>,
) -> Result<Response, ApiError> {
    let session = request.open_session().await?;
    let context = body.unwrap_or_default().context;
    Ok(session_response(
        StatusCode::OK,
        session.attach(context, request.trace).await?,
    ))
}

/// Closes a session. Its log stays readable; the gateway rejects prompts until `attach`.
///
/// The session is closed at the agent. Prompts are 409 until `attach`. Closing a closed session is 200 again.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/close",
    responses((status = 200, body = Session, description = "The session after the change."))
)]
pub(super) async fn close_session(
    request: ApiRequest<CanPrompt, SessionId>,
) -> Result<Response, ApiError> {
    let session = request.open_session().await?;
    Ok(session_response(
        StatusCode::OK,
        session.close(&request.by, request.trace).await?,
    ))
}
