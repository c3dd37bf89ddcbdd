//! `/v1/sessions/{session}/requests`: the requests of the agent to its clients, and their answers.

use axum::Json;
use http::StatusCode;
use serde_json::value::{RawValue, to_raw_value};

use crate::acp::to_one_line;
use crate::api::{
    ElicitationAction, ElicitationAnswer, PendingRequests, PermissionAnswer, RequestAnswer,
};
use crate::session::Answer;
use crate::surface::authorized::{CanApprove, CanRead};
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{ApiRequest, JsonBody, LargeJsonBody};
use crate::types::{RequestId, SessionId};

/// Lists the requests of the agent that have no answer yet.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/requests",
    responses((status = 200, body = PendingRequests, description = "All open requests. There is only one page."))
)]
pub(super) async fn list_requests(
    request: ApiRequest<CanRead, SessionId>,
) -> Result<Json<PendingRequests>, ApiError> {
    let session = request.open_session().await?;
    Ok(Json(PendingRequests {
        requests: session.snapshot().await?.requests,
        next_cursor: None,
    }))
}

type AnswerRequest = ApiRequest<CanApprove, (SessionId, RequestId)>;

async fn submit_answer(request: AnswerRequest, answer: Answer) -> Result<StatusCode, ApiError> {
    request
        .open_session()
        .await?
        .answer(&request.by.author(), None, request.ids.1, answer)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers a request of any kind with the result that ACP defines for it, or with a JSON-RPC error.
///
/// The first answer counts. The response to a further answer is 409.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/requests/{request}",
    request_body = RequestAnswer,
    responses((status = 204, description = "The answer is durable, and the gateway sends it to the agent."))
)]
pub(super) async fn answer_request(
    request: AnswerRequest,
    LargeJsonBody(body): LargeJsonBody<RequestAnswer>,
) -> Result<StatusCode, ApiError> {
    let given = match (body.value.result, body.value.error) {
        (Some(result), None) => Answer::Result(to_one_line(result)),
        (None, Some(error)) => Answer::Error(to_one_line(error)),
        _ => return Err(ApiError::invalid("", "expected either result or error")),
    };
    submit_answer(request, given).await
}

/// Answers a permission request: selects one of its options, or cancels the request.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/permissions/{request}",
    request_body = PermissionAnswer,
    responses((status = 204, description = "The answer is durable, and the gateway sends it to the agent."))
)]
pub(super) async fn answer_permission(
    request: AnswerRequest,
    body: JsonBody<PermissionAnswer>,
) -> Result<StatusCode, ApiError> {
    let given = match body.value {
        PermissionAnswer {
            option_id: Some(option),
            cancelled: None,
        } => Answer::Option(option),
        PermissionAnswer {
            option_id: None,
            cancelled: Some(true),
        } => Answer::Cancelled,
        _ => {
            return Err(ApiError::invalid(
                "",
                "expected either optionId or cancelled: true",
            ));
        }
    };
    submit_answer(request, given).await
}

/// Answers an elicitation: accepts, declines or cancels a form of the agent.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/elicitations/{request}",
    request_body = ElicitationAnswer,
    responses((status = 204, description = "The answer is durable, and the gateway sends it to the agent."))
)]
pub(super) async fn answer_elicitation(
    request: AnswerRequest,
    body: JsonBody<ElicitationAnswer>,
) -> Result<StatusCode, ApiError> {
    let result = elicitation_result(body.value)?;
    submit_answer(request, Answer::Elicitation(result)).await
}

/// The ACP result of `elicitation/create`.
fn elicitation_result(mut answer: ElicitationAnswer) -> Result<Box<RawValue>, ApiError> {
    answer.content = answer.content.map(to_one_line);
    match (&answer.content, answer.action) {
        (Some(content), ElicitationAction::Accept) if !content.get().starts_with('{') => {
            return Err(ApiError::invalid("/content", "expected an object"));
        }
        (Some(_), ElicitationAction::Decline | ElicitationAction::Cancel) => {
            return Err(ApiError::invalid(
                "/content",
                "expected content only for accept",
            ));
        }
        _ => {}
    }
    to_raw_value(&answer).map_err(ApiError::internal)
}
