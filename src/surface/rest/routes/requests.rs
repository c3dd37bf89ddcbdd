//! `/v1/sessions/{session}/requests`: the requests of the agent to its clients, and their answers.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde_json::value::RawValue;

use crate::api::{ElicitationAction, ElicitationAnswer, PendingRequests, PermissionAnswer, RequestAnswer};
use crate::session::Answer;
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{
    Authorized, CanApprove, CanRead, JsonBody, NoQuery, RequestPath, SessionPath, to_one_line,
};
use crate::types::{RequestId, SessionId};

/// Lists the requests of the agent that have no answer yet.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/requests",
    tag = "requests",
    responses((status = 200, body = PendingRequests, description = "All open requests. There is only one page."))
)]
pub(super) async fn list_requests(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    NoQuery: NoQuery,
) -> Result<Json<PendingRequests>, ApiError> {
    let session = gateway.sessions.open(&by, session).await?;
    Ok(Json(PendingRequests { requests: session.snapshot().await?.requests, next_cursor: None }))
}

async fn submit_answer(
    gateway: &Gateway,
    by: &Authorized<CanApprove>,
    session: SessionId,
    request: RequestId,
    answer: Answer,
) -> Result<StatusCode, ApiError> {
    gateway.sessions.open(by, session).await?.answer(by, request, answer).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers a request of any kind with the result that ACP defines for it, or with a JSON-RPC error.
///
/// The first answer counts. The response to a further answer is 409.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/requests/{request}",
    tag = "requests",
    request_body = RequestAnswer,
    responses((status = 204, description = "The answer is durable, and the gateway sends it to the agent."))
)]
pub(super) async fn answer_request(
    State(gateway): State<Gateway>,
    by: Authorized<CanApprove>,
    RequestPath(session, request): RequestPath,
    NoQuery: NoQuery,
    body: JsonBody<RequestAnswer>,
) -> Result<StatusCode, ApiError> {
    let given = match (body.value.result, body.value.error) {
        (Some(result), None) => Answer::Result(to_one_line(result)),
        (None, Some(error)) => Answer::Error(to_one_line(error)),
        _ => return Err(ApiError::invalid("", "expected either result or error")),
    };
    submit_answer(&gateway, &by, session, request, given).await
}

/// Answers a permission request: selects one of its options, or cancels the request.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/permissions/{request}",
    tag = "requests",
    request_body = PermissionAnswer,
    responses((status = 204, description = "The answer is durable, and the gateway sends it to the agent."))
)]
pub(super) async fn answer_permission(
    State(gateway): State<Gateway>,
    by: Authorized<CanApprove>,
    RequestPath(session, request): RequestPath,
    NoQuery: NoQuery,
    body: JsonBody<PermissionAnswer>,
) -> Result<StatusCode, ApiError> {
    let given = match body.value {
        PermissionAnswer { option_id: Some(option), cancelled: None } => Answer::Option(option),
        PermissionAnswer { option_id: None, cancelled: Some(true) } => Answer::Cancelled,
        _ => return Err(ApiError::invalid("", "expected either optionId or cancelled: true")),
    };
    submit_answer(&gateway, &by, session, request, given).await
}

/// Answers an elicitation: accepts, declines or cancels a form of the agent.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/elicitations/{request}",
    tag = "requests",
    request_body = ElicitationAnswer,
    responses((status = 204, description = "The answer is durable, and the gateway sends it to the agent."))
)]
pub(super) async fn answer_elicitation(
    State(gateway): State<Gateway>,
    by: Authorized<CanApprove>,
    RequestPath(session, request): RequestPath,
    NoQuery: NoQuery,
    body: JsonBody<ElicitationAnswer>,
) -> Result<StatusCode, ApiError> {
    let result = elicitation_result(body.value)?;
    submit_answer(&gateway, &by, session, request, Answer::Elicitation(result)).await
}

/// The ACP result of `elicitation/create`.
fn elicitation_result(answer: ElicitationAnswer) -> Result<Box<RawValue>, ApiError> {
    let action = match answer.action {
        ElicitationAction::Accept => "accept",
        ElicitationAction::Decline => "decline",
        ElicitationAction::Cancel => "cancel",
    };
    let content = answer.content.map(to_one_line);
    let json = match (answer.action, content) {
        (_, None) => format!("{{\"action\":\"{action}\"}}"),
        (ElicitationAction::Accept, Some(content)) if content.get().starts_with('{') => {
            format!("{{\"action\":\"accept\",\"content\":{content}}}")
        }
        (ElicitationAction::Accept, Some(_)) => {
            return Err(ApiError::invalid("/content", "expected an object"));
        }
        (_, Some(_)) => return Err(ApiError::invalid("/content", "expected content only for accept")),
    };
    Ok(RawValue::from_string(json).expect("an object of JSON values is JSON"))
}
