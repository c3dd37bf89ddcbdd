//! Cancels one tool call or one agent terminal, without the rest of the turn.

use http::StatusCode;

use crate::acp::CancelTarget;
use crate::session::ClientCall;
use crate::surface::authorized::CanPrompt;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::ApiRequest;
use crate::types::SessionId;

/// Cancels one tool call that the agent has marked as cancellable.
///
/// The response does not wait for the end: an update of the tool call reports it.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/tool-calls/{toolCall}/cancel",
    responses((status = 202, description = "The gateway has sent the cancellation to the agent."))
)]
pub(super) async fn cancel_tool_call(
    request: ApiRequest<CanPrompt, (SessionId, String)>,
) -> Result<StatusCode, ApiError> {
    let session = request.open_session().await?;
    session
        .call(
            &request.by,
            ClientCall::Cancel(CancelTarget::ToolCall(request.ids.1)),
            request.trace,
        )
        .await?;
    Ok(StatusCode::ACCEPTED)
}

/// Cancels one of the agent's own terminals that the agent has marked as cancellable.
///
/// The response does not wait for the end: an update of the terminal reports its exit.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/agent-terminals/{agentTerminal}/cancel",
    responses((status = 202, description = "The gateway has sent the cancellation to the agent."))
)]
pub(super) async fn cancel_agent_terminal(
    request: ApiRequest<CanPrompt, (SessionId, String)>,
) -> Result<StatusCode, ApiError> {
    let session = request.open_session().await?;
    session
        .call(
            &request.by,
            ClientCall::Cancel(CancelTarget::Terminal(request.ids.1)),
            request.trace,
        )
        .await?;
    Ok(StatusCode::ACCEPTED)
}
