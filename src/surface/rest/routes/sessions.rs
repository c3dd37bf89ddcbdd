//! `/v1/sessions`: creates, lists, changes, closes and deletes sessions.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::prompts::content_blocks;
use super::settings::checked_value;
use crate::surface::http::{
    ApiError, ApiRequest, Authorized, CanPrompt, CanRead, Gateway, IdempotencyHeader, IfMatch,
    IfNoneMatch, JsonBody, LargeJsonBody, NewTurn, OptionalJsonBody, Params, set_replayed,
};
use base::types::{Scope, SessionId};
use events::api::{
    AttachSession, Attachment, BulkResults, CreateSession, Problem, Session, SessionList,
    SessionPatch,
};
use sessions::session::{
    BulkAction, ClientCall, Created, FILTER_KEY_BYTES, FILTER_VALUE_BYTES, IdempotencyKey,
    ListOrder, ListQuery, MetadataFilter, PromptRequest, SessionHandle,
};
use wire::acp::TraceContext;

fn session_response(status: StatusCode, session: Session) -> Response {
    let etag = HeaderValue::try_from(session.etag()).expect("event ids are plain ASCII");
    (status, [(header::ETAG, etag)], Json(session)).into_response()
}

/// Creates a session, or adopts a session that the agent already has (`agentSessionId`).
///
/// With `prompt`, its first turn begins: `promptId` of the response. `modeId` and `config` are set before. If the request
/// fails, no session remains.
#[utoipa::path(post, path = "/v1/sessions", request_body = CreateSession, responses(
    (status = 201, body = Session, description = "The new session."),
))]
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
#[utoipa::path(post, path = "/v1/sessions/{session}/fork", responses(
    (status = 201, body = Session, description = "The new session."),
))]
pub(super) async fn fork_session(
    request: ApiRequest<CanPrompt, SessionId>,
    key: IdempotencyHeader,
) -> Result<Response, ApiError> {
    let session = request.open_session().await?;
    let sessions = &request.gateway.sessions;
    let forked = sessions.fork(&request.by, &session, &[], key.bind(&[]), request.trace);
    Ok(created_response(forked.await?))
}

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
#[utoipa::path(get, path = "/v1/sessions", responses(
    (status = 200, body = SessionList, description = "A page of sessions."),
    (status = 304, description = "The page has an ETag from `If-None-Match`."),
))]
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

pub(super) fn list_query(params: &mut Params, max_limit: usize) -> Result<ListQuery, ApiError> {
    Ok(ListQuery {
        agent: params.parsed("agent", "an agent's name")?,
        state: params.named("state", "idle, running, waiting or closed")?,
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
        let detail = format!("expected at most {MAX} metadata filters");
        return Err(ApiError::invalid("metadata", detail));
    }
    for (at, (key, value)) in filter.iter().enumerate() {
        let name = format!("metadata.{key}");
        if !(1..=FILTER_KEY_BYTES).contains(&key.len()) {
            let detail = format!("expected a key of 1 to {FILTER_KEY_BYTES} bytes");
            return Err(ApiError::invalid(name, detail));
        }
        if !(1..=FILTER_VALUE_BYTES).contains(&value.len()) {
            let detail = format!("expected a value of 1 to {FILTER_VALUE_BYTES} bytes");
            return Err(ApiError::invalid(name, detail));
        }
        if filter[..at].iter().any(|(former, _)| former == key) {
            let detail = "this parameter must not be repeated";
            return Err(ApiError::invalid(name, detail));
        }
    }
    Ok(filter)
}

/// Gets a session. The response reflects every event up to its `lastEventId`.
///
/// `If-None-Match` with the `ETag` of an earlier response returns 304 if nothing has changed. A session of another
/// tenant is 404.
#[utoipa::path(get, path = "/v1/sessions/{session}", responses(
    (status = 200, body = Session, description = "The session."),
    (status = 304, description = "The session has an ETag from `If-None-Match`."),
))]
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
    let session = session.patch(&request.by, body.value, if_match).await?;
    Ok(session_response(StatusCode::OK, session))
}

/// Stops a session and deletes all of its data.
///
/// A running turn is cancelled, and the log and the own folder of the session are erased. `If-Match` with the current
/// revision makes the request conditional.
#[utoipa::path(delete, path = "/v1/sessions/{session}", responses(
    (status = 204, description = "The session is deleted."),
    (status = 202, description = "The disk is full. Clients no longer see the session; the gateway deletes its data when there is room."),
))]
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
#[utoipa::path(post, path = "/v1/sessions/{session}/attach",
    request_body = Option<AttachSession>, responses(
    (status = 200, body = Session, description = "The session after the change."),
))]
pub(super) async fn attach_session(
    request: ApiRequest<CanPrompt, SessionId>,
    OptionalJsonBody(body): OptionalJsonBody<AttachSession>,
) -> Result<Response, ApiError> {
    let session = request.open_session().await?;
    let context = body.unwrap_or_default().context;
    let session = session.attach(context, request.trace).await?;
    Ok(session_response(StatusCode::OK, session))
}

/// Closes a session. Its log stays readable; the gateway rejects prompts until `attach`.
///
/// The session is closed at the agent. Prompts are 409 until `attach`. Closing a closed session is 200 again.
#[utoipa::path(post, path = "/v1/sessions/{session}/close", responses(
    (status = 200, body = Session, description = "The session after the change."),
))]
pub(super) async fn close_session(
    request: ApiRequest<CanPrompt, SessionId>,
) -> Result<Response, ApiError> {
    let session = request.open_session().await?;
    let session = session.close(&request.by, request.trace).await?;
    Ok(session_response(StatusCode::OK, session))
}

/// The query for one batch. A filter is required, because a query without a filter would match all sessions.
fn parse_batch(mut params: Params) -> Result<ListQuery, ApiError> {
    let query = list_query(&mut params, 100)?;
    params.finish()?;
    let filters = [
        query.agent.is_some(),
        query.state.is_some(),
        query.cwd.is_some(),
        !query.metadata.is_empty(),
    ];
    if filters.contains(&true) {
        return Ok(query);
    }
    Err(ApiError::invalid(
        "metadata",
        "expected at least one filter: metadata.<key>, agent, state or cwd",
    ))
}

/// Closes the sessions that match the filter, one batch for each request.
///
/// At least one filter is required. The result of a session that was closed before is 200. Send `nextCursor`
/// as `cursor` until it is null. You can repeat a request at any time.
#[utoipa::path(post, path = "/v1/sessions/close", responses(
    (status = 200, body = BulkResults, description = "The result for each session of the batch."),
))]
pub(super) async fn close_sessions(
    request: ApiRequest<CanPrompt, (), Params>,
) -> Result<Json<BulkResults>, ApiError> {
    let query = parse_batch(request.params)?;
    let sessions = &request.gateway.sessions;
    let closed = sessions.bulk(&request.by, BulkAction::Close, &query, request.trace);
    Ok(Json(closed.await?))
}

/// Deletes the sessions that match the filter, one batch for each request.
///
/// At least one filter is required. Send `nextCursor` as `cursor` until it is null. You can repeat a request
/// at any time.
#[utoipa::path(delete, path = "/v1/sessions", responses(
    (status = 200, body = BulkResults, description = "The result for each session of the batch."),
))]
pub(super) async fn delete_sessions(
    request: ApiRequest<CanPrompt, (), Params>,
) -> Result<Json<BulkResults>, ApiError> {
    let query = parse_batch(request.params)?;
    let sessions = &request.gateway.sessions;
    let deleted = sessions.bulk(&request.by, BulkAction::Delete, &query, request.trace);
    Ok(Json(deleted.await?))
}

const MAX_OPTIONS: usize = 64;

pub(super) struct FirstTurn {
    mode: Option<String>,
    options: Vec<(String, Box<RawValue>)>,
    prompt: Option<Box<RawValue>>,
    attachments: Vec<Attachment>,
    key: Option<IdempotencyKey>,
}

impl FirstTurn {
    pub(super) fn take(
        request: &mut CreateSession,
        key: Option<&IdempotencyKey>,
    ) -> Result<Self, ApiError> {
        let attachments = std::mem::take(&mut request.attachments);
        let prompt = request.prompt.take().map(content_blocks).transpose()?;
        if prompt.is_none() && !attachments.is_empty() {
            let detail = "attachments need a prompt";
            return Err(ApiError::invalid("/attachments", detail));
        }
        let options = options(std::mem::take(&mut request.config))?;
        let route = |key: &IdempotencyKey| IdempotencyKey {
            route: format!("{} prompt", key.route),
            ..key.clone()
        };
        Ok(Self {
            mode: request.mode_id.take(),
            options,
            prompt,
            attachments,
            key: key.map(route),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.mode.is_none() && self.options.is_empty() && self.prompt.is_none()
    }

    /// A mode or an option can allow actions that otherwise need a permission.
    pub(super) fn check_scope(&self, by: &Authorized<CanPrompt>) -> Result<(), ApiError> {
        let needs_approve = self.mode.is_some() || !self.options.is_empty();
        if needs_approve && !by.scopes.contains(Scope::Approve) {
            let detail = "modeId and config require the scope approve";
            return Err(Problem::missing_scope(Scope::Approve, detail).into());
        }
        Ok(())
    }

    /// Sets the mode and the options, and begins the turn. On failure, nothing of the session remains.
    pub(super) async fn begin(
        self,
        gateway: &Gateway,
        by: &Authorized<CanPrompt>,
        created: &Created,
        trace: Option<TraceContext>,
    ) -> Result<Session, ApiError> {
        let session = gateway
            .sessions
            .open(by, created.response.session_id)
            .await?;
        if let Err(error) = self.run(gateway, by, &session, trace).await {
            if !created.replayed {
                session.delete(by, None, None).await?;
            }
            return Err(error);
        }
        Ok(session.snapshot().await?)
    }

    async fn run(
        self,
        gateway: &Gateway,
        by: &Authorized<CanPrompt>,
        session: &SessionHandle,
        trace: Option<TraceContext>,
    ) -> Result<(), ApiError> {
        // A repeated request does not revert settings that changed after the first turn began.
        if session.query().prompts(None, 1).await?.prompts.is_empty() {
            if let Some(mode) = self.mode {
                let call = ClientCall::Mode(mode);
                session.call(by, call, trace.clone()).await?;
            }
            for (option, value) in self.options {
                let call = ClientCall::Config { option, value };
                session.call(by, call, trace.clone()).await?;
            }
        }
        // With the key of the request, a repeated prompt gets the turn that it has.
        let Some(blocks) = self.prompt else {
            return Ok(());
        };
        let prompt = PromptRequest {
            blocks,
            attachments: self.attachments,
            queue: true,
            key: self.key,
            trace,
            acp_request: None,
            broadcast: None,
            serving: None,
        };
        NewTurn::begin::<ApiError>(gateway, by, session, prompt, false).await?;
        Ok(())
    }
}

fn options(config: Map<String, Value>) -> Result<Vec<(String, Box<RawValue>)>, ApiError> {
    if config.len() > MAX_OPTIONS {
        let detail = format!("expected at most {MAX_OPTIONS} options");
        return Err(ApiError::invalid("/config", detail));
    }
    let checked = |(id, value): (String, Value)| {
        let pointer = format!("/config/{}", id.replace('~', "~0").replace('/', "~1"));
        let value = checked_value(&pointer, to_raw_value(&value).map_err(ApiError::internal)?)?;
        Ok((id, value))
    };
    config.into_iter().map(checked).collect()
}
