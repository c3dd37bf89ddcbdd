//! Calls agent methods that have no route of their own, by name.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::value::RawValue;

use crate::acp::client_input_policy::{check_method, check_params};
use crate::acp::with_trace;
use crate::agent::AgentSpec;
use crate::api::{RpcCall, RpcResult};
use crate::pool::Priority;
use crate::session::Refusal;
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{AgentPath, Authorized, CanAdmin, JsonBody, NoQuery, Trace, to_one_line};

/// Calls a method of the agent by name, outside a session.
///
/// The method must be in the list `rpc` of the agent's entry. The gateway sends `params` unchanged.
#[utoipa::path(
    post,
    path = "/v1/agents/{agent}/rpc",
    tag = "agents",
    request_body = RpcCall,
    responses(
        (status = 200, body = RpcResult, description = "The result from the agent."),
        (status = 202, description = "The notification was sent."),
    )
)]
pub(super) async fn call_agent(
    State(gateway): State<Gateway>,
    by: Authorized<CanAdmin>,
    AgentPath(name): AgentPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
    body: JsonBody<RpcCall>,
) -> Result<Response, ApiError> {
    let spec = gateway.catalogue.agent(&name).ok_or_else(ApiError::not_found)?;
    let RpcCall { method, params, notify } = body.value;
    let params = with_trace(&check_call(&spec, &method, params)?, trace.as_ref());
    let mut visit = gateway.pool.short_lease(&spec, &by, Priority::Reclaim).await.map_err(Refusal::from)?;
    if notify {
        visit.notify(&method, &params).map_err(Refusal::from)?;
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    let result = visit.call(&method, &params, gateway.limits.call_timeout).await.map_err(Refusal::from)?;
    Ok(Json(RpcResult { result: to_one_line(result) }).into_response())
}

/// Checks the method and its params against the agent's entry, and returns the params.
pub(super) fn check_call(
    spec: &AgentSpec,
    method: &str,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>, ApiError> {
    check_method(&spec.settings.allowed_rpc_methods, method)
        .map_err(|gated| Refusal::from_policy(&gated, "/method"))?;
    let params = to_one_line(
        params.unwrap_or_else(|| RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")),
    );
    check_params(&spec.settings.allowed_meta_keys, &params)
        .map_err(|gated| Refusal::from_policy(&gated, "/params"))?;
    Ok(params)
}
