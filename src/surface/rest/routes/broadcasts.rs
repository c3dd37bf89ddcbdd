//! `/v1/broadcasts`: one message to many processes, sessions and members.

use axum::Json;
use axum::response::{IntoResponse, Response};

use crate::api::{BroadcastForm, BroadcastReport, BroadcastTo, CreateBroadcast};
use crate::broadcast::{BroadcastError, MAX_CONTENT_BYTES, MAX_TARGETS};
use crate::surface::authorized::{AccessError, CanPrompt};
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{ApiRequest, IdempotencyHeader, JsonBody, set_replayed};
use crate::types::Scope;

/// Sends a message to all or selected agents, sessions and members of the fleet.
///
/// A notification reaches running processes. A prompt is queued in sessions and requires the scope `admin`. Only targets of the
/// own tenant get the message. The response names each target, and waits for at most 5 seconds for each of them. A principal
/// can send six broadcasts in a minute.
#[utoipa::path(
    post,
    path = "/v1/broadcasts",
    request_body = CreateBroadcast,
    responses((status = 200, body = BroadcastReport, description = "The targets that got the message, and those that did not."))
)]
pub(super) async fn create_broadcast(
    request: ApiRequest<CanPrompt>,
    key: IdempotencyHeader,
    body: JsonBody<CreateBroadcast>,
) -> Result<Response, ApiError> {
    let key = key.bind(&body.bytes);
    let broadcast = body.value;
    check(&broadcast)?;
    let ApiRequest {
        gateway, by, trace, ..
    } = request;
    if broadcast.form == BroadcastForm::Prompt && !by.scopes.contains(Scope::Admin) {
        return Err(AccessError::MissingScope(Scope::Admin).into());
    }
    let sent = gateway
        .broadcasts()
        .send((&by, by.author()), broadcast, key, trace)
        .await?;
    let mut response = Json(sent.response).into_response();
    set_replayed(&mut response, sent.replayed);
    Ok(response)
}

fn check(broadcast: &CreateBroadcast) -> Result<(), ApiError> {
    if !(1..=MAX_CONTENT_BYTES).contains(&broadcast.content.len()) {
        return Err(ApiError::invalid(
            "/content",
            format!("expected 1 to {MAX_CONTENT_BYTES} bytes"),
        ));
    }
    let BroadcastTo::Selected(selected) = &broadcast.to else {
        return Ok(());
    };
    if (1..=MAX_TARGETS).contains(&selected.count()) {
        return Ok(());
    }
    Err(ApiError::invalid(
        "/to",
        format!("expected 1 to {MAX_TARGETS} agents, sessions and members"),
    ))
}

impl From<BroadcastError> for ApiError {
    fn from(error: BroadcastError) -> Self {
        let detail = error.to_string();
        match error {
            BroadcastError::TooManyTargets(_) => Self::invalid("/to", detail),
            BroadcastError::Rate { retry_after } => Self::rate_limited(detail, retry_after),
            BroadcastError::Claim(error) => error.into(),
            BroadcastError::Session(error) => error.into(),
        }
    }
}
