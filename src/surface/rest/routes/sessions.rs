//! `/v1/sessions`: creates, lists, changes, closes and deletes sessions; their mode and options, and agent methods by name.
//!
//! A mode or an option can allow actions that otherwise need a permission, so these routes require the scope
//! `approve`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::operations::Routes;
use super::prompts::content_blocks;
use crate::surface::http::{
    ApiError, ApiRequest, Authorized, CanApprove, CanPrompt, CanRead, IdempotencyHeader, IfMatch,
    IfNoneMatch, JsonBody, NewTurn, OptionalJsonBody, Params, PromptSize, Replayed, Result, ascii,
    json, location, record_session,
};
use base::types::{Scope, SessionId};
use events::api::{
    AttachSession, Attachment, BulkResults, ConfigOptions, CreateSession, Modes, Problem, RpcCall,
    RpcResult, Session, SessionList, SessionPatch, SetConfigOption, SetMode,
};
use events::event::ActorKind;
use sessions::session::{
    BulkAction, ClientCall, Created, FILTER_KEY_BYTES, FILTER_VALUE_BYTES, IdempotencyKey,
    ListOrder, ListQuery, MetadataFilter, PromptRequest, SessionHandle,
};
use wire::acp::{self, CancelTarget, ConfigValue, to_one_line, to_raw};

pub(super) fn routes() -> Routes {
    routes![
        list_sessions,
        create_session,
        delete_sessions,
        close_sessions,
        get_session,
        patch_session,
        delete_session,
        attach_session,
        close_session,
        fork_session,
        set_mode,
        set_config_option,
        call_session,
        cancel_tool_call,
        cancel_agent_terminal
    ]
}

fn session_response(status: StatusCode, session: Session) -> Response {
    let etag = [(header::ETAG, ascii(session.etag()))];
    (status, etag, Json(session)).into_response()
}

/// Creates a session, or adopts a session that the agent already has (`agentSessionId`).
///
/// With `prompt`, its first turn begins: `promptId` of the response. `modeId` and `config` are set before. If the request
/// fails, no session remains.
#[utoipa::path(post, path = "/v1/sessions", request_body = CreateSession, responses(
    (status = 201, body = Session, description = "The new session."),
))]
async fn create_session(
    request: ApiRequest<CanPrompt>,
    key: IdempotencyHeader,
    mut body: JsonBody<CreateSession, PromptSize>,
) -> Result<Response> {
    let key = key.bind(&body.bytes);
    let first = FirstTurn::take(&mut body.value, key.as_ref())?;
    first.check_scope(&request.by)?;
    let sessions = &request.app.sessions;
    let created = sessions.create(&request.by, body.value, None, key, request.trace.clone());
    let mut created = created.await?;
    if !first.is_empty() {
        created.response = first.begin(&request, &created).await?;
    }
    Ok(created_response(created))
}

/// Forks a session: the agent copies the conversation into a new, independent session. Only the owner of the session can do it.
///
/// The agent must be able to fork (`sessionCapabilities.fork`) and to open the fork in another process. The
/// fork has the same working folder, title, metadata, policy and MCP servers. While a turn runs, the response
/// is 409.
#[utoipa::path(post, path = "/v1/sessions/{session}/fork", responses(
    (status = 201, body = Session, description = "The new session."),
))]
async fn fork_session(
    request: ApiRequest<CanPrompt, SessionId>,
    key: IdempotencyHeader,
) -> Result<Response> {
    let session = request.open_session().await?;
    let sessions = &request.app.sessions;
    let forked = sessions.fork(&request.by, &session, &[], key.bind(&[]), request.trace);
    Ok(created_response(forked.await?))
}

fn created_response(created: Created) -> Response {
    record_session(created.response.session_id);
    let location = location(format!("/v1/sessions/{}", created.response.session_id));
    let response = session_response(StatusCode::CREATED, created.response);
    (location, Replayed(created.replayed), response).into_response()
}

/// Lists sessions, the latest `lastActivityAt` first.
///
/// The filters combine. A page scans at most 5,000 sessions, so a page can have fewer entries than `limit` and still
/// have a `nextCursor`. The latest changes come first by default: a session that changes while a client pages moves
/// before its cursor. With `order=created`, the oldest session comes first and no entry moves, so that a client sees
/// each session exactly once.
///
/// The list has the sessions of the user. With `shared=true` it has the sessions of others that are shared with the user,
/// without an `ETag`.
#[utoipa::path(get, path = "/v1/sessions", responses(
    (status = 200, body = SessionList, description = "A page of sessions."),
    (status = 304, description = "The page has an ETag from `If-None-Match`."),
))]
async fn list_sessions(
    mut request: ApiRequest<CanRead, (), Params>,
    known: IfNoneMatch,
) -> Result<Response> {
    let params = &mut request.params;
    let query = ListQuery {
        q: params.short("q", 256)?,
        tasks: params.flag("tasks", false)?,
        shared: params.flag("shared", false)?,
        order: match params.text("order")?.as_deref() {
            None | Some("updated") => ListOrder::Updated,
            Some("created") => ListOrder::Created,
            Some(_) => return Err(ApiError::invalid("order", "expected updated or created")),
        },
        ..list_query(params, 200)?
    };
    params.finish()?;
    let page = request.app.sessions.list(&request.by, &query).await?;
    if query.shared {
        // The grants are not in the log.
        return Ok(Json(page).into_response());
    }
    // `list` reads the position before the sessions, so an equal position means an equal list.
    let etag = format!("\"{}\"", page.last_event_id);
    Ok(known.respond(&etag, || Json(page).into_response()))
}

fn list_query(params: &mut Params, max_limit: usize) -> Result<ListQuery> {
    Ok(ListQuery {
        agent: params.parsed("agent", "an agent's name")?,
        state: params.named("state", "idle, running, waiting or closed")?,
        cwd: params.short("cwd", 4096)?,
        metadata: metadata_filter(params)?,
        cursor: params.short("cursor", 1024)?,
        limit: params.limit(50, max_limit)?,
        ..ListQuery::default()
    })
}

/// Reads the metadata filters. Each key occurs once; keys and values are within the limits of the index.
fn metadata_filter(params: &mut Params) -> Result<MetadataFilter> {
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
        if filter[..at].iter().any(|(earlier, _)| earlier == key) {
            let detail = "this parameter must not be repeated";
            return Err(ApiError::invalid(name, detail));
        }
    }
    Ok(filter)
}

/// Gets a session. The response reflects every event up to its `lastEventId`.
///
/// `If-None-Match` with the `ETag` of an earlier response returns 304 if nothing has changed. A session of another
/// user that is not shared with this one is 404. A request that needs a higher `access` than the user has is 403.
#[utoipa::path(get, path = "/v1/sessions/{session}", responses(
    (status = 200, body = Session, description = "The session."),
    (status = 304, description = "The session has an ETag from `If-None-Match`."),
))]
async fn get_session(
    request: ApiRequest<CanRead, SessionId>,
    known: IfNoneMatch,
) -> Result<Response> {
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
async fn patch_session(
    request: ApiRequest<CanPrompt, SessionId>,
    IfMatch(if_match): IfMatch,
    body: JsonBody<SessionPatch>,
) -> Result<Response> {
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
async fn delete_session(
    request: ApiRequest<CanPrompt, SessionId>,
    IfMatch(if_match): IfMatch,
) -> Result<StatusCode> {
    let session = request.open_session().await?;
    let author = request.by.author();
    let erased = session.delete(&request.by, &author, if_match, request.trace);
    Ok(if erased.await? {
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
async fn attach_session(
    request: ApiRequest<CanPrompt, SessionId>,
    OptionalJsonBody(body): OptionalJsonBody<AttachSession>,
) -> Result<Response> {
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
async fn close_session(request: ApiRequest<CanPrompt, SessionId>) -> Result<Response> {
    let session = request.open_session().await?;
    let session = session.close(&request.by, request.trace).await?;
    Ok(session_response(StatusCode::OK, session))
}

/// The query for one batch. A filter is required, because a query without a filter would match all sessions.
fn parse_batch(mut params: Params) -> Result<ListQuery> {
    let query = list_query(&mut params, 100)?;
    params.finish()?;
    if query.agent.is_none()
        && query.state.is_none()
        && query.cwd.is_none()
        && query.metadata.is_empty()
    {
        let detail = "expected at least one filter: metadata.<key>, agent, state or cwd";
        return Err(ApiError::invalid("metadata", detail));
    }
    Ok(query)
}

/// Closes the sessions that match the filter, one batch for each request.
///
/// At least one filter is required. The result of a session that was closed before is 200. Send `nextCursor`
/// as `cursor` until it is null. You can repeat a request at any time.
#[utoipa::path(post, path = "/v1/sessions/close", responses(
    (status = 200, body = BulkResults, description = "The result for each session of the batch."),
))]
async fn close_sessions(request: ApiRequest<CanPrompt, (), Params>) -> Result<Json<BulkResults>> {
    let query = parse_batch(request.params)?;
    let sessions = &request.app.sessions;
    let closed = sessions.bulk(
        &request.by,
        request.by.author(),
        BulkAction::Close,
        &query,
        request.trace,
    );
    Ok(Json(closed.await?))
}

/// Deletes the sessions that match the filter, one batch for each request.
///
/// At least one filter is required. Send `nextCursor` as `cursor` until it is null. You can repeat a request
/// at any time.
#[utoipa::path(delete, path = "/v1/sessions", responses(
    (status = 200, body = BulkResults, description = "The result for each session of the batch."),
))]
async fn delete_sessions(request: ApiRequest<CanPrompt, (), Params>) -> Result<Json<BulkResults>> {
    let query = parse_batch(request.params)?;
    let sessions = &request.app.sessions;
    let deleted = sessions.bulk(
        &request.by,
        request.by.author(),
        BulkAction::Delete,
        &query,
        request.trace,
    );
    Ok(Json(deleted.await?))
}

const MAX_OPTIONS: usize = 64;

struct FirstTurn {
    mode: Option<String>,
    options: Vec<(String, Box<RawValue>)>,
    prompt: Option<Box<RawValue>>,
    attachments: Vec<Attachment>,
    key: Option<IdempotencyKey>,
}

impl FirstTurn {
    fn take(request: &mut CreateSession, key: Option<&IdempotencyKey>) -> Result<Self> {
        let attachments = std::mem::take(&mut request.attachments);
        let prompt = request.prompt.take().map(content_blocks).transpose()?;
        if prompt.is_none() && !attachments.is_empty() {
            let detail = "attachments need a prompt";
            return Err(ApiError::invalid("/attachments", detail));
        }
        let of_prompt = |key: &IdempotencyKey| IdempotencyKey {
            route: format!("{} prompt", key.route),
            ..key.clone()
        };
        Ok(Self {
            mode: request.mode_id.take(),
            options: options(std::mem::take(&mut request.config))?,
            prompt,
            attachments,
            key: key.map(of_prompt),
        })
    }

    fn is_empty(&self) -> bool {
        self.mode.is_none() && self.options.is_empty() && self.prompt.is_none()
    }

    /// A mode or an option can allow actions that otherwise need a permission.
    fn check_scope(&self, by: &Authorized<CanPrompt>) -> Result<()> {
        let needs_approve = self.mode.is_some() || !self.options.is_empty();
        if needs_approve && !by.scopes.contains(Scope::Approve) {
            let detail = "modeId and config require the scope approve";
            return Err(Problem::missing_scope(Scope::Approve, detail).into());
        }
        Ok(())
    }

    /// Sets the mode and the options, and begins the turn. On failure, nothing of the session remains.
    async fn begin(self, request: &ApiRequest<CanPrompt>, created: &Created) -> Result<Session> {
        let session = request
            .app
            .open_session(&request.by, created.response.session_id);
        let session = session.await?;
        if let Err(error) = self.run(request, &session).await {
            if !created.replayed {
                session
                    .delete(&request.by, ActorKind::Gateway, None, None)
                    .await?;
            }
            return Err(error);
        }
        Ok(session.snapshot().await?)
    }

    async fn run(self, request: &ApiRequest<CanPrompt>, session: &SessionHandle) -> Result<()> {
        let by = &request.by;
        let trace = &request.trace;
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
            attachments: self.attachments,
            queue: true,
            key: self.key,
            trace: trace.clone(),
            ..PromptRequest::new(blocks)
        };
        NewTurn::begin::<ApiError>(&request.app, by, session, prompt, false).await?;
        Ok(())
    }
}

fn options(config: Map<String, Value>) -> Result<Vec<(String, Box<RawValue>)>> {
    if config.len() > MAX_OPTIONS {
        let detail = format!("expected at most {MAX_OPTIONS} options");
        return Err(ApiError::invalid("/config", detail));
    }
    let mut options = Vec::new();
    for (id, value) in config {
        let pointer = format!("/config/{}", json::escaped(&id));
        options.push((id, checked_value(&pointer, to_raw(&value))?));
    }
    Ok(options)
}

/// Sets the mode of the agent for this session.
///
/// A mode that the agent did not offer is 422 with the offered ones; an agent that offered no list decides itself. A
/// mode that the configuration denies is 403. An agent that does not answer in time is 504.
#[utoipa::path(put, path = "/v1/sessions/{session}/mode", request_body = SetMode, responses(
    (status = 200, body = Modes, description = "The modes after the change."),
))]
async fn set_mode(
    request: ApiRequest<CanApprove, SessionId>,
    body: JsonBody<SetMode>,
) -> Result<Json<Modes>> {
    let session = request.open_session().await?;
    let call = ClientCall::Mode(body.value.mode_id);
    let modes = session.call(&request.by, call, request.trace).await?;
    Ok(Json(Modes { modes: Some(modes) }))
}

/// Sets one of the agent's options for this session.
///
/// The value is the id of a choice, true or false. A value or an option that the agent did not offer is 422 with the
/// offered ones; an agent that offered no list decides itself. The agent must answer within its time limit, otherwise
/// the status is 504.
#[utoipa::path(put, path = "/v1/sessions/{session}/config/{option}",
    request_body = SetConfigOption, responses(
    (status = 200, body = ConfigOptions, description = "The options after the change."),
))]
async fn set_config_option(
    request: ApiRequest<CanApprove, (SessionId, String)>,
    body: JsonBody<SetConfigOption>,
) -> Result<Json<ConfigOptions>> {
    let session = request.open_session().await?;
    let value = checked_value("/value", body.value.value)?;
    let option = request.ids.1;
    let call = ClientCall::Config { option, value };
    let options = session.call(&request.by, call, request.trace).await?;
    let config_options = Some(options);
    Ok(Json(ConfigOptions { config_options }))
}

/// Calls a method of the agent for this session by name.
///
/// The method must be in the list `rpc` of the agent's entry. `session/set_model` needs no entry if the agent
/// still supports it. The gateway sends `params` unchanged, except that `sessionId` becomes the agent's own
/// session id.
#[utoipa::path(post, path = "/v1/sessions/{session}/rpc", request_body = RpcCall, responses(
    (status = 200, body = RpcResult, description = "The result from the agent."),
    (status = 202, description = "The notification was sent."),
))]
async fn call_session(
    request: ApiRequest<CanApprove, SessionId>,
    body: JsonBody<RpcCall>,
) -> Result<Response> {
    let session = request.open_session().await?;
    let call = body.value;
    let notify = call.notify;
    let params = call.params;
    let call = ClientCall::Rpc {
        method: call.method,
        params: params.map_or_else(|| acp::null_to_empty(RawValue::NULL), to_one_line),
        notify,
    };
    let result = session.call(&request.by, call, request.trace).await?;
    Ok(if notify {
        StatusCode::ACCEPTED.into_response()
    } else {
        Json(RpcResult { result }).into_response()
    })
}

fn checked_value(pointer: &str, value: Box<RawValue>) -> Result<Box<RawValue>> {
    if acp::parse::<ConfigValue<'_>>(&value).is_err() {
        let detail = "expected the id of a choice, true or false";
        return Err(ApiError::invalid(pointer, detail));
    }
    Ok(to_one_line(value))
}

/// Cancels one tool call that the agent has marked as cancellable.
///
/// The response does not wait for the end: an update of the tool call reports it.
#[utoipa::path(post, path = "/v1/sessions/{session}/tool-calls/{toolCall}/cancel", responses(
    (status = 202, description = "The gateway has sent the cancellation to the agent."),
))]
async fn cancel_tool_call(
    request: ApiRequest<CanPrompt, (SessionId, String)>,
) -> Result<StatusCode> {
    let session = request.open_session().await?;
    let call = ClientCall::Cancel(CancelTarget::ToolCall(request.ids.1));
    session.call(&request.by, call, request.trace).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Cancels one of the agent's own terminals that the agent has marked as cancellable.
///
/// The response does not wait for the end: an update of the terminal reports its exit.
#[utoipa::path(post, path = "/v1/sessions/{session}/agent-terminals/{agentTerminal}/cancel", responses(
    (status = 202, description = "The gateway has sent the cancellation to the agent."),
))]
async fn cancel_agent_terminal(
    request: ApiRequest<CanPrompt, (SessionId, String)>,
) -> Result<StatusCode> {
    let session = request.open_session().await?;
    let call = ClientCall::Cancel(CancelTarget::Terminal(request.ids.1));
    session.call(&request.by, call, request.trace).await?;
    Ok(StatusCode::ACCEPTED)
}
