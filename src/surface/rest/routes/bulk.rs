//! Closes or deletes the sessions that match a filter.

use axum::Json;

use super::sessions::list_query;
use crate::api::BulkResults;
use crate::session::{BulkAction, ListQuery};
use crate::surface::authorized::CanPrompt;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{ApiRequest, Params};

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
#[utoipa::path(
    post,
    path = "/v1/sessions/close",
    responses((status = 200, body = BulkResults, description = "The result for each session of the batch."))
)]
pub(super) async fn close_sessions(
    request: ApiRequest<CanPrompt, (), Params>,
) -> Result<Json<BulkResults>, ApiError> {
    let query = parse_batch(request.params)?;
    Ok(Json(
        request
            .gateway
            .sessions
            .bulk(&request.by, BulkAction::Close, &query, request.trace)
            .await?,
    ))
}

/// Deletes the sessions that match the filter, one batch for each request.
///
/// At least one filter is required. Send `nextCursor` as `cursor` until it is null. You can repeat a request
/// at any time.
#[utoipa::path(
    delete,
    path = "/v1/sessions",
    responses((status = 200, body = BulkResults, description = "The result for each session of the batch."))
)]
pub(super) async fn delete_sessions(
    request: ApiRequest<CanPrompt, (), Params>,
) -> Result<Json<BulkResults>, ApiError> {
    let query = parse_batch(request.params)?;
    Ok(Json(
        request
            .gateway
            .sessions
            .bulk(&request.by, BulkAction::Delete, &query, request.trace)
            .await?,
    ))
}
