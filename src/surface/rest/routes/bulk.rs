//! Closes or deletes the sessions that match a filter.

use axum::Json;
use axum::extract::State;

use super::sessions::{metadata_filter, parse_state};
use crate::api::BulkResults;
use crate::session::{BulkAction, ListQuery};
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{Authorized, CanPrompt, Params, Trace};
use crate::surface::rest::openapi::shared::{Batch, SessionFilter};

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
    params(SessionFilter, Batch),
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
    params(SessionFilter, Batch),
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
