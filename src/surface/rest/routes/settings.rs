//! The mode and the options of a session, and agent methods by name.
//!
//! A mode or an option can allow actions that otherwise need a permission, so these routes require the scope
//! `approve`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::value::RawValue;

use crate::acp::{self, ConfigValue, to_one_line};
use crate::api::{ConfigOptions, Modes, RpcCall, RpcResult, SetConfigOption, SetMode};
use crate::session::ClientCall;
use crate::surface::authorized::CanApprove;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{ApiRequest, JsonBody};
use crate::types::SessionId;

/// Sets the mode of the agent for this session.
///
/// A mode that the agent did not offer is 422 with the offered ones; an agent that offered no list decides itself. A
/// mode that the configuration denies is 403. An agent that does not answer in time is 504.
#[utoipa::path(
    put,
    path = "/v1/sessions/{session}/mode",
    request_body = SetMode,
    responses((status = 200, body = Modes, description = "The modes after the change."))
)]
pub(super) async fn set_mode(
    request: ApiRequest<CanApprove, SessionId>,
    body: JsonBody<SetMode>,
) -> Result<Json<Modes>, ApiError> {
    let session = request.open_session().await?;
    let modes = session
        .call(
            &request.by,
            ClientCall::Mode(body.value.mode_id),
            request.trace,
        )
        .await?;
    Ok(Json(Modes { modes: Some(modes) }))
}

/// Sets one of the agent's options for this session.
///
/// The value is the id of a choice, true or false. A value or an option that the agent did not offer is 422 with the
/// offered ones; an agent that offered no list decides itself. The agent must answer within its time limit, otherwise
/// the status is 504.
#[utoipa::path(
    put,
    path = "/v1/sessions/{session}/config/{option}",
    request_body = SetConfigOption,
    responses((status = 200, body = ConfigOptions, description = "The options after the change."))
)]
pub(super) async fn set_config_option(
    request: ApiRequest<CanApprove, (SessionId, String)>,
    body: JsonBody<SetConfigOption>,
) -> Result<Json<ConfigOptions>, ApiError> {
    let session = request.open_session().await?;
    let value = checked_value("/value", body.value.value)?;
    let option = request.ids.1;
    let options = session
        .call(
            &request.by,
            ClientCall::Config { option, value },
            request.trace,
        )
        .await?;
    Ok(Json(ConfigOptions {
        config_options: Some(options),
    }))
}

/// Calls a method of the agent for this session by name.
///
/// The method must be in the list `rpc` of the agent's entry. `session/set_model` needs no entry if the agent
/// still supports it. The gateway sends `params` unchanged, except that `sessionId` becomes the agent's own
/// session id.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/rpc",
    request_body = RpcCall,
    responses(
        (status = 200, body = RpcResult, description = "The result from the agent."),
        (status = 202, description = "The notification was sent."),
    )
)]
pub(super) async fn call_session(
    request: ApiRequest<CanApprove, SessionId>,
    body: JsonBody<RpcCall>,
) -> Result<Response, ApiError> {
    let session = request.open_session().await?;
    let RpcCall {
        method,
        params,
        notify,
    } = body.value;
    let params = params.map_or_else(|| acp::null_to_empty(RawValue::NULL), to_one_line);
    let result = session
        .call(
            &request.by,
            ClientCall::Rpc {
                method,
                params,
                notify,
            },
            request.trace,
        )
        .await?;
    Ok(if notify {
        StatusCode::ACCEPTED.into_response()
    } else {
        Json(RpcResult { result }).into_response()
    })
}

/// In ACP, the value of an option is the id of a choice or a boolean. `pointer`: its place in the body.
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
