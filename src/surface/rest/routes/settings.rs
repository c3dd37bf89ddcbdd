//! The mode and the options of a session, and agent methods by name.
//!
//! A mode or an option can allow actions that otherwise need a permission, so these routes require the scope
//! `approve`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::value::RawValue;

use crate::surface::http::{ApiError, ApiRequest, CanApprove, CanPrompt, JsonBody};
use base::types::SessionId;
use events::api::{ConfigOptions, Modes, RpcCall, RpcResult, SetConfigOption, SetMode};
use sessions::session::ClientCall;
use wire::acp::{self, CancelTarget, ConfigValue, to_one_line};

/// Sets the mode of the agent for this session.
///
/// A mode that the agent did not offer is 422 with the offered ones; an agent that offered no list decides itself. A
/// mode that the configuration denies is 403. An agent that does not answer in time is 504.
#[utoipa::path(put, path = "/v1/sessions/{session}/mode", request_body = SetMode, responses(
    (status = 200, body = Modes, description = "The modes after the change."),
))]
pub(super) async fn set_mode(
    request: ApiRequest<CanApprove, SessionId>,
    body: JsonBody<SetMode>,
) -> Result<Json<Modes>, ApiError> {
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
pub(super) async fn set_config_option(
    request: ApiRequest<CanApprove, (SessionId, String)>,
    body: JsonBody<SetConfigOption>,
) -> Result<Json<ConfigOptions>, ApiError> {
    let session = request.open_session().await?;
    let value = checked_value("/value", body.value.value)?;
    let option = request.ids.1;
    let call = ClientCall::Config { option, value };
    let options = session.call(&request.by, call, request.trace).await?;
    Ok(Json(ConfigOptions {
        config_options: Some(options),
    }))
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
pub(super) async fn call_session(
    request: ApiRequest<CanApprove, SessionId>,
    body: JsonBody<RpcCall>,
) -> Result<Response, ApiError> {
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

pub(super) fn checked_value(
    pointer: &str,
    value: Box<RawValue>,
) -> Result<Box<RawValue>, ApiError> {
    match acp::parse::<ConfigValue<'_>>(&value) {
        Ok(_) => Ok(to_one_line(value)),
        Err(_) => Err(ApiError::invalid(
            pointer,
            "expected the id of a choice, true or false",
        )),
    }
}

/// Cancels one tool call that the agent has marked as cancellable.
///
/// The response does not wait for the end: an update of the tool call reports it.
#[utoipa::path(post, path = "/v1/sessions/{session}/tool-calls/{toolCall}/cancel", responses(
    (status = 202, description = "The gateway has sent the cancellation to the agent."),
))]
pub(super) async fn cancel_tool_call(
    request: ApiRequest<CanPrompt, (SessionId, String)>,
) -> Result<StatusCode, ApiError> {
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
pub(super) async fn cancel_agent_terminal(
    request: ApiRequest<CanPrompt, (SessionId, String)>,
) -> Result<StatusCode, ApiError> {
    let session = request.open_session().await?;
    let call = ClientCall::Cancel(CancelTarget::Terminal(request.ids.1));
    session.call(&request.by, call, request.trace).await?;
    Ok(StatusCode::ACCEPTED)
}
