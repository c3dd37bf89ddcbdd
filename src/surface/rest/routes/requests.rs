//! `/v1/sessions/{session}/requests`: the requests of the agent to its clients, and their answers.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde_json::value::{RawValue, to_raw_value};

use super::operations::Routes;
use crate::surface::http::{
    ApiError, ApiRequest, CanApprove, CanRead, IdempotencyHeader, JsonBody, Page, PromptSize,
    Replayed, Result,
};
use base::types::{Access, RequestId, SessionId};
use events::api::{
    ElicitationAction, ElicitationAnswer, PendingRequests, PermissionAnswer, RequestAnswer,
};
use sessions::session::{Answer, IdempotencyKey};
use wire::acp::to_one_line;

pub(super) fn routes() -> Routes {
    routes![
        list_requests,
        answer_request,
        answer_permission,
        answer_elicitation
    ]
}

/// Lists the requests of the agent that have no answer yet.
///
/// Entries are sorted by id, the oldest first. Without `limit` the page has all open requests.
#[utoipa::path(get, path = "/v1/sessions/{session}/requests", responses(
    (status = 200, body = PendingRequests, description = "A page of open requests."),
))]
async fn list_requests(
    request: ApiRequest<CanRead, SessionId, Page<RequestId>>,
) -> Result<Json<PendingRequests>> {
    let session = request.open_session().await?;
    let requests = session.snapshot().await?.requests;
    let (requests, next_cursor) = request.params.select(requests, |open| open.request_id);
    Ok(Json(PendingRequests {
        requests,
        next_cursor,
    }))
}

type AnswerRequest = ApiRequest<CanApprove, (SessionId, RequestId)>;

async fn submit_answer(
    request: AnswerRequest,
    key: Option<IdempotencyKey>,
    answer: Answer,
) -> Result<Response> {
    let session = request.open_session().await?;
    session.require(Access::Approve)?;
    let author = request.by.author();
    let id = request.ids.1;
    let act = move || async move {
        session.answer(&author, None, id, answer).await?;
        // The stored response must differ from JSON's null, which stands for no response.
        Ok::<_, ApiError>(true)
    };
    let context = request.app.sessions.context();
    let answered = context.respond_once(&request.by, key, act).await?;
    Ok((StatusCode::NO_CONTENT, Replayed(answered.replayed), ()).into_response())
}

/// Answers a request of any kind with the result that ACP defines for it, or with a JSON-RPC error.
///
/// The first answer counts. The response to a further answer is 409.
#[utoipa::path(post, path = "/v1/sessions/{session}/requests/{request}",
    request_body = RequestAnswer, responses(
    (status = 204, description = "The answer is durable, and the gateway sends it to the agent."),
))]
async fn answer_request(
    request: AnswerRequest,
    key: IdempotencyHeader,
    body: JsonBody<RequestAnswer, PromptSize>,
) -> Result<Response> {
    let key = key.bind(&body.bytes);
    let given = match (body.value.result, body.value.error) {
        (Some(result), None) => Answer::Result(to_one_line(result)),
        (None, Some(error)) => Answer::Error(to_one_line(error)),
        _ => return Err(ApiError::invalid("", "expected either result or error")),
    };
    submit_answer(request, key, given).await
}

/// Answers a permission request: selects one of its options, or cancels the request.
///
/// The first answer counts. The response to a further answer is 409, except that a request with the same
/// `Idempotency-Key` gets the first response.
#[utoipa::path(post, path = "/v1/sessions/{session}/permissions/{request}",
    request_body = PermissionAnswer, responses(
    (status = 204, description = "The answer is durable, and the gateway sends it to the agent."),
))]
async fn answer_permission(
    request: AnswerRequest,
    key: IdempotencyHeader,
    body: JsonBody<PermissionAnswer>,
) -> Result<Response> {
    let key = key.bind(&body.bytes);
    let given = match (body.value.option_id, body.value.cancelled) {
        (Some(option), None) => Answer::Option(option),
        (None, Some(true)) => Answer::Cancelled,
        _ => {
            let detail = "expected either optionId or cancelled: true";
            return Err(ApiError::invalid("", detail));
        }
    };
    submit_answer(request, key, given).await
}

/// Answers an elicitation: accepts, declines or cancels a form of the agent.
///
/// The first answer counts. The response to a further answer is 409, except that a request with the same
/// `Idempotency-Key` gets the first response.
#[utoipa::path(post, path = "/v1/sessions/{session}/elicitations/{request}",
    request_body = ElicitationAnswer, responses(
    (status = 204, description = "The answer is durable, and the gateway sends it to the agent."),
))]
async fn answer_elicitation(
    request: AnswerRequest,
    key: IdempotencyHeader,
    body: JsonBody<ElicitationAnswer>,
) -> Result<Response> {
    let key = key.bind(&body.bytes);
    let result = elicitation_result(body.value)?;
    submit_answer(request, key, Answer::Elicitation(result)).await
}

fn elicitation_result(mut answer: ElicitationAnswer) -> Result<Box<RawValue>> {
    answer.content = answer.content.map(to_one_line);
    match (&answer.content, answer.action) {
        (Some(content), ElicitationAction::Accept) if !content.get().starts_with('{') => {
            return Err(ApiError::invalid("/content", "expected an object"));
        }
        (Some(_), ElicitationAction::Decline | ElicitationAction::Cancel) => {
            let detail = "expected content only for accept";
            return Err(ApiError::invalid("/content", detail));
        }
        _ => {}
    }
    to_raw_value(&answer).map_err(ApiError::internal)
}
