//! `/v1/sessions/{session}/terminals`: commands that the gateway runs for the agent.

use axum::Json;
use axum::extract::State;
use http::StatusCode;

use crate::api::{TerminalList, TerminalWindow};
use crate::http::error::ApiError;
use crate::http::extract::{Authorized, CanApprove, CanRead, NoQuery, Params, SessionPath, TerminalPath};
use crate::http::state::Gateway;

/// The session's terminals that the gateway ran, the newest first.
///
/// Terminals that clients serve, and those that an agent runs itself, are not among them.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/terminals",
    tag = "terminals",
    params(
        ("cursor" = Option<String>, Query, pattern = "^t[1-9][0-9]{0,8}$", description = "`nextCursor` of the page before."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Terminals on a page; 50."),
    ),
    responses((status = 200, body = TerminalList, description = "A page."))
)]
pub(in crate::http) async fn list_terminals(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    mut query: Params,
) -> Result<Json<TerminalList>, ApiError> {
    let before = query.parsed("cursor", "a cursor of a page before")?;
    let limit = query.limit(50, 200)?;
    query.finish()?;
    let session = gateway.sessions.open(&by, session).await?;
    Ok(Json(session.terminals(before, limit).await?))
}

/// A terminal with the last of its output, exact at its `lastEventId`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/terminals/{terminal}",
    tag = "terminals",
    responses((status = 200, body = TerminalWindow, description = "The terminal."))
)]
pub(in crate::http) async fn get_terminal(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    TerminalPath(session, terminal): TerminalPath,
    NoQuery: NoQuery,
) -> Result<Json<TerminalWindow>, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(Json(session.terminal(terminal).await?))
}

/// Kills a terminal's command with everything that it started; `terminal.exited` tells when it has ended.
///
/// The agent still has the terminal and reads what it showed. A command that has ended is left as it is.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/terminals/{terminal}/kill",
    tag = "terminals",
    responses((status = 204, description = "The command is being killed, or has ended."))
)]
pub(in crate::http) async fn kill_terminal(
    State(gateway): State<Gateway>,
    by: Authorized<CanApprove>,
    TerminalPath(session, terminal): TerminalPath,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    gateway.sessions.open(&by, session).await?.kill_terminal(terminal).await?;
    Ok(StatusCode::NO_CONTENT)
}
