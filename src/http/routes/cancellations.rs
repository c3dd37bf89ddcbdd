//! Parts of what an agent does, which stop without the rest of the turn.

use axum::extract::State;
use http::StatusCode;

use crate::acp::CancelTarget;
use crate::http::error::ApiError;
use crate::http::extract::{AgentTerminalPath, Authorized, CanPrompt, NoQuery, ToolCallPath, Trace};
use crate::http::state::Gateway;

/// Cancels one tool call that says that it can be cancelled. Its updates tell when it has stopped.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/tool-calls/{toolCall}/cancel",
    tag = "prompts",
    responses((status = 202, description = "The agent cancels it."))
)]
pub(in crate::http) async fn cancel_tool_call(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    ToolCallPath(session, id): ToolCallPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    session.cancel_part(&by, CancelTarget::ToolCall(id), trace).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Stops one of the agent's own terminals that says that it can be cancelled. Its updates tell when it has exited.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/agent-terminals/{agentTerminal}/cancel",
    tag = "prompts",
    responses((status = 202, description = "The agent stops it."))
)]
pub(in crate::http) async fn cancel_agent_terminal(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    AgentTerminalPath(session, id): AgentTerminalPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    session.cancel_part(&by, CancelTarget::Terminal(id), trace).await?;
    Ok(StatusCode::ACCEPTED)
}
