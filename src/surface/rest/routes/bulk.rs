//! Closes or deletes the sessions that match a filter.

use axum::Json;
use axum::extract::State;

use super::sessions::{metadata_filter, parse_state};
use crate::api::{BulkResults, SessionState};
use crate::session::{BulkAction, ListQuery};
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{Authorized, CanPrompt, Params, Trace};
use crate::types::AgentName;

/// The query for one batch. A filter is required, because a query without a filter would match all sessions.
fn parse_batch(mut params: Params) -> Result<ListQuery, ApiError> {
    let query = ListQuery {
        agent: params.parsed("agent", "an agent's name")?,
        state: params.text("state")?.as_deref().map(parse_state).transpose()?,
        q: None,
        cwd: params.short("cwd", 4096)?,
        metadata: metadata_filter(&mut params)?,
        cursor: params.short("cursor", 1024)?,
        limit: params.limit(50, 100)?,
    };
    params.finish()?;
    let filters =
        [query.agent.is_some(), query.state.is_some(), query.cwd.is_some(), !query.metadata.is_empty()];
    if filters.contains(&true) {
        return Ok(query);
    }
    Err(ApiError::invalid("metadata", "expected at least one filter: metadata.<key>, agent, state or cwd"))
}

/// Closes the sessions that match the filter, one batch for each request.
///
/// At least one filter is required. The result of a session that was closed before is 200. Send `nextCursor`
/// as `cursor` until it is null. You can repeat a request at any time.
#[utoipa::path(
    post,
    path = "/v1/sessions/close",
    tag = "sessions",
    params(
        ("metadata" = Option<std::collections::BTreeMap<String, String>>, Query, style = DeepObject, explode, description = "Only sessions whose metadata has all of these members: `metadata.user=42` or `metadata[user]=42`. At most 8 members, with keys of 1 to 128 bytes and values of 1 to 512 bytes."),
        ("agent" = Option<AgentName>, Query, description = "Only sessions of this agent."),
        ("state" = Option<SessionState>, Query, description = "Only sessions in this state."),
        ("cwd" = Option<String>, Query, max_length = 4096, description = "Only sessions in this working folder."),
        ("cursor" = Option<String>, Query, description = "The `nextCursor` of the previous batch."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 100, description = "The maximum number of sessions in a batch. The default is 50."),
    ),
    responses((status = 200, body = BulkResults, description = "The result for each session of the batch."))
)]
pub(super) async fn close_sessions(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    Trace(trace): Trace,
    params: Params,
) -> Result<Json<BulkResults>, ApiError> {
    let query = parse_batch(params)?;
    Ok(Json(gateway.sessions.bulk(&by, BulkAction::Close, &query, trace).await?))
}

/// Deletes the sessions that match the filter, one batch for each request.
///
/// At least one filter is required. Send `nextCursor` as `cursor` until it is null. You can repeat a request
/// at any time.
#[utoipa::path(
    delete,
    path = "/v1/sessions",
    tag = "sessions",
    params(
        ("metadata" = Option<std::collections::BTreeMap<String, String>>, Query, style = DeepObject, explode, description = "Only sessions whose metadata has all of these members: `metadata.user=42` or `metadata[user]=42`. At most 8 members, with keys of 1 to 128 bytes and values of 1 to 512 bytes."),
        ("agent" = Option<AgentName>, Query, description = "Only sessions of this agent."),
        ("state" = Option<SessionState>, Query, description = "Only sessions in this state."),
        ("cwd" = Option<String>, Query, max_length = 4096, description = "Only sessions in this working folder."),
        ("cursor" = Option<String>, Query, description = "The `nextCursor` of the previous batch."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 100, description = "The maximum number of sessions in a batch. The default is 50."),
    ),
    responses((status = 200, body = BulkResults, description = "The result for each session of the batch."))
)]
pub(super) async fn delete_sessions(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    Trace(trace): Trace,
    params: Params,
) -> Result<Json<BulkResults>, ApiError> {
    let query = parse_batch(params)?;
    Ok(Json(gateway.sessions.bulk(&by, BulkAction::Delete, &query, trace).await?))
}
