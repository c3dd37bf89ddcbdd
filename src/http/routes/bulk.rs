//! Closing and deleting the sessions that a filter finds.

use axum::Json;
use axum::extract::State;

use super::sessions::{metadata_filter, parse_state};
use crate::api::{BulkResults, SessionState};
use crate::http::error::ApiError;
use crate::http::extract::{Authorized, CanPrompt, Params, Trace};
use crate::http::state::Gateway;
use crate::session::{BulkAction, ListQuery};
use crate::types::AgentName;

/// The sessions of one batch. Without a filter it would be all sessions, so there has to be one.
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

/// Closes the sessions that the filter finds, a batch for each call.
///
/// At least one filter is required. A session that is closed already is 200 again. The pass is complete when `nextCursor` is
/// null; the call may be repeated at any time.
#[utoipa::path(
    post,
    path = "/v1/sessions/close",
    tag = "sessions",
    params(
        ("metadata" = Option<std::collections::BTreeMap<String, String>>, Query, style = DeepObject, explode, description = "Only sessions with all of these members in their metadata, as `metadata.user=42` or `metadata[user]=42`; at most 8."),
        ("agent" = Option<AgentName>, Query, description = "Only of this agent."),
        ("state" = Option<SessionState>, Query, description = "Only in this state."),
        ("cwd" = Option<String>, Query, max_length = 4096, description = "Only in this working folder."),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the batch before."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 100, description = "Sessions of a batch; 50."),
    ),
    responses((status = 200, body = BulkResults, description = "The batch, with the result of each session."))
)]
pub(in crate::http) async fn close_sessions(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    Trace(trace): Trace,
    params: Params,
) -> Result<Json<BulkResults>, ApiError> {
    let query = parse_batch(params)?;
    Ok(Json(gateway.sessions.bulk(&by, BulkAction::Close, &query, trace).await?))
}

/// Deletes the sessions that the filter finds, a batch for each call.
///
/// At least one filter is required. The pass is complete when `nextCursor` is null; the call may be repeated at any time.
#[utoipa::path(
    delete,
    path = "/v1/sessions",
    tag = "sessions",
    params(
        ("metadata" = Option<std::collections::BTreeMap<String, String>>, Query, style = DeepObject, explode, description = "Only sessions with all of these members in their metadata, as `metadata.user=42` or `metadata[user]=42`; at most 8."),
        ("agent" = Option<AgentName>, Query, description = "Only of this agent."),
        ("state" = Option<SessionState>, Query, description = "Only in this state."),
        ("cwd" = Option<String>, Query, max_length = 4096, description = "Only in this working folder."),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the batch before."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 100, description = "Sessions of a batch; 50."),
    ),
    responses((status = 200, body = BulkResults, description = "The batch, with the result of each session."))
)]
pub(in crate::http) async fn delete_sessions(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    Trace(trace): Trace,
    params: Params,
) -> Result<Json<BulkResults>, ApiError> {
    let query = parse_batch(params)?;
    Ok(Json(gateway.sessions.bulk(&by, BulkAction::Delete, &query, trace).await?))
}
