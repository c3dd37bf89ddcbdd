//! `/v1/sessions/{session}/terminals`: the terminals that the gateway runs for the agent.

use axum::Json;
use axum::extract::State;
use http::StatusCode;

use crate::api::{TerminalList, TerminalWindow};
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{
    Authorized, CanApprove, CanRead, NoQuery, Params, SessionPath, TerminalPath,
};

/// Lists the terminals that the gateway ran for the session, the newest first.
///
/// The list does not contain terminals that clients serve or that the agent runs itself.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/terminals",
    tag = "terminals",
    params(
        ("cursor" = Option<String>, Query, pattern = "^t[1-9][0-9]{0,8}$", description = "The `nextCursor` of the previous page."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "The maximum number of terminals on a page. The default is 50."),
    ),
    responses((status = 200, body = TerminalList, description = "A page of terminals."))
)]
pub(super) async fn list_terminals(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    mut query: Params,
) -> Result<Json<TerminalList>, ApiError> {
    let before = query.parsed("cursor", "the nextCursor of a previous page")?;
    let limit = query.limit(50, 200)?;
    query.finish()?;
    let session = gateway.sessions.open(&by, session).await?;
    Ok(Json(session.query().terminals(before, limit).await?))
}

/// Gets a terminal with the end of its output. The response reflects every event up to its `lastEventId`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/terminals/{terminal}",
    tag = "terminals",
    responses((status = 200, body = TerminalWindow, description = "The terminal and the end of its output."))
)]
pub(super) async fn get_terminal(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    TerminalPath(session, terminal): TerminalPath,
    NoQuery: NoQuery,
) -> Result<Json<TerminalWindow>, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(Json(session.query().terminal(terminal).await?))
}

/// Kills the command of a terminal and all processes that it started.
///
/// The event `terminal.exited` follows when the command has ended. The agent keeps the terminal and can still
/// read its output. If the command has already ended, the request has no effect.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/terminals/{terminal}/kill",
    tag = "terminals",
    responses((status = 204, description = "The gateway kills the command, or the command had already ended."))
)]
pub(super) async fn kill_terminal(
    State(gateway): State<Gateway>,
    by: Authorized<CanApprove>,
    TerminalPath(session, terminal): TerminalPath,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    gateway.sessions.open(&by, session).await?.kill_terminal(terminal).await?;
    Ok(StatusCode::NO_CONTENT)
}
