//! Calls agent methods that have no route of their own, by name.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::value::RawValue;

use crate::acp::client_input_policy::{check_method, check_params};
use crate::acp::{to_one_line, with_trace};
use crate::agent::AgentSpec;
use crate::api::{RpcCall, RpcResult};
use crate::pool::Priority;
use crate::session::InputError;
use crate::surface::authorized::CanAdmin;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{ApiRequest, JsonBody};
use crate::types::AgentName;

/// Calls a method of the agent by name, outside a session.
///
/// The method must be in the list `rpc` of the agent's entry. The gateway sends `params` unchanged.
#[utoipa::path(
    post,
    path = "/v1/agents/{agent}/rpc",
    request_body = RpcCall,
    responses(
        (status = 200, body = RpcResult, description = "The result from the agent."),
        (status = 202, description = "The notification was sent."),
    )
)]
pub(super) async fn call_agent(
    request: ApiRequest<CanAdmin, AgentName>,
    body: JsonBody<RpcCall>,
) -> Result<Response, ApiError> {
    let spec = request.agent()?;
    let RpcCall {
        method,
        params,
        notify,
    } = body.value;
    let params = with_trace(&check_call(&spec, &method, params)?, request.trace.as_ref());
    let mut lease = request
        .gateway
        .pool()
        .short_lease(&spec, &request.by, Priority::Reclaim)
        .await?;
    if notify {
        lease.notify(&method, &params)?;
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    let timeout = request.gateway.limits.call_timeout;
    let result = lease.call(&method, &params, timeout).await?;
    Ok(Json(RpcResult {
        result: to_one_line(result),
    })
    .into_response())
}

/// Checks the method and its params against the agent's entry, and returns the params.
fn check_call(
    spec: &AgentSpec,
    method: &str,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>, ApiError> {
    check_method(&spec.settings, method)
        .map_err(|gated| InputError::from_policy(&gated, "/method"))?;
    let params = to_one_line(params.unwrap_or_else(|| {
        RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
    }));
    check_params(&spec.settings, &params)
        .map_err(|gated| InputError::from_policy(&gated, "/params"))?;
    Ok(params)
}
