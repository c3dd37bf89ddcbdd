//! Cancels one tool call or one agent terminal, without the rest of the turn.

use axum::extract::State;
use http::StatusCode;

use crate::acp::CancelTarget;
use crate::session::ClientCall;
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{AgentTerminalPath, Authorized, CanPrompt, NoQuery, ToolCallPath, Trace};

/// Cancels one tool call that the agent has marked as cancellable.
///
/// The response does not wait for the end: an update of the tool call reports it.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/tool-calls/{toolCall}/cancel",
    tag = "prompts",
    responses((status = 202, description = "The gateway has sent the cancellation to the agent."))
)]
pub(super) async fn cancel_tool_call(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    ToolCallPath(session, id): ToolCallPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    session.call(&by, ClientCall::Cancel(CancelTarget::ToolCall(id)), trace).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Cancels one of the agent's own terminals that the agent has marked as cancellable.
///
/// The response does not wait for the end: an update of the terminal reports its exit.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/agent-terminals/{agentTerminal}/cancel",
    tag = "prompts",
    responses((status = 202, description = "The gateway has sent the cancellation to the agent."))
)]
pub(super) async fn cancel_agent_terminal(
    State(gateway): State<Gateway>,
    by: Authorized<CanPrompt>,
    AgentTerminalPath(session, id): AgentTerminalPath,
    Trace(trace): Trace,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    session.call(&by, ClientCall::Cancel(CancelTarget::Terminal(id)), trace).await?;
    Ok(StatusCode::ACCEPTED)
}
