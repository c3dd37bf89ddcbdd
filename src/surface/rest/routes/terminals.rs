//! `/v1/sessions/{session}/terminals`: the terminals that the gateway runs for the agent.

use axum::Json;
use http::StatusCode;

use crate::surface::http::{ApiError, ApiRequest, CanApprove, CanRead, Params};
use base::types::{SessionId, TerminalId};
use events::api::{ProblemCode, TerminalList, TerminalWindow};

/// Lists the terminals that the gateway ran for the session, the newest first.
///
/// The list does not contain terminals that clients serve or that the agent runs itself.
#[utoipa::path(get, path = "/v1/sessions/{session}/terminals", responses(
    (status = 200, body = TerminalList, description = "A page of terminals."),
))]
pub(super) async fn list_terminals(
    mut request: ApiRequest<CanRead, SessionId, Params>,
) -> Result<Json<TerminalList>, ApiError> {
    let before = request
        .params
        .parsed("cursor", "the nextCursor of a previous page")?;
    let limit = request.params.limit(50, 200)?;
    request.params.finish()?;
    let session = request.open_session().await?;
    Ok(Json(session.query().terminals(before, limit).await?))
}

/// Gets a terminal with the end of its output. The response reflects every event up to its `lastEventId`.
///
/// The output is the end of the whole output, at most as many bytes as the gateway keeps; `truncated` is true if its
/// beginning is missing.
#[utoipa::path(get, path = "/v1/sessions/{session}/terminals/{terminal}", responses(
    (status = 200, body = TerminalWindow, description = "The terminal and the end of its output."),
))]
pub(super) async fn get_terminal(
    request: ApiRequest<CanRead, (SessionId, TerminalId)>,
) -> Result<Json<TerminalWindow>, ApiError> {
    let session = request.open_session().await?;
    let window = session.query().terminal(request.ids.1).await?;
    let missing = || {
        ApiError::new(
            ProblemCode::NotFound,
            "there is no such terminal in this session",
        )
    };
    Ok(Json(window.ok_or_else(missing)?))
}

/// Kills the command of a terminal and all processes that it started.
///
/// The event `terminal.exited` follows when the command has ended. The agent keeps the terminal and can still
/// read its output. If the command has already ended, the request has no effect.
#[utoipa::path(post, path = "/v1/sessions/{session}/terminals/{terminal}/kill", responses(
    (status = 204, description = "The gateway kills the command, or the command had already ended."),
))]
pub(super) async fn kill_terminal(
    request: ApiRequest<CanApprove, (SessionId, TerminalId)>,
) -> Result<StatusCode, ApiError> {
    request
        .open_session()
        .await?
        .kill_terminal(request.ids.1)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
