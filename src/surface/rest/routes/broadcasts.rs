//! `/v1/broadcasts`: one message to many processes, sessions and members.

use axum::Json;
use axum::response::{IntoResponse, Response};

use crate::surface::http::{
    AccessError, ApiError, ApiRequest, CanPrompt, IdempotencyHeader, JsonBody, set_replayed,
};
use base::types::Scope;
use events::api::{BroadcastForm, BroadcastReport, BroadcastTo, CreateBroadcast};
use sessions::broadcast::{MAX_CONTENT_BYTES, MAX_TARGETS};

/// Sends a message to all or selected agents, sessions and members of the fleet.
///
/// A notification reaches running processes. A prompt is queued in sessions and requires the scope `admin`. Only targets of the
/// own tenant get the message. The response names each target, and waits for at most 5 seconds for each of them. A principal
/// can send six broadcasts in a minute.
#[utoipa::path(post, path = "/v1/broadcasts", request_body = CreateBroadcast, responses(
    (status = 200, body = BroadcastReport, description = "The targets that got the message, and those that did not."),
))]
pub(super) async fn create_broadcast(
    request: ApiRequest<CanPrompt>,
    key: IdempotencyHeader,
    body: JsonBody<CreateBroadcast>,
) -> Result<Response, ApiError> {
    let key = key.bind(&body.bytes);
    let broadcast = body.value;
    check(&broadcast)?;
    let by = request.by;
    if broadcast.form == BroadcastForm::Prompt && !by.scopes.contains(Scope::Admin) {
        return Err(AccessError::MissingScope(Scope::Admin).into());
    }
    let broadcasts = request.gateway.broadcasts();
    let sent = broadcasts.send(&by, by.author(), broadcast, key, request.trace);
    let sent = sent.await?;
    let mut response = Json(sent.response).into_response();
    set_replayed(&mut response, sent.replayed);
    Ok(response)
}

fn check(broadcast: &CreateBroadcast) -> Result<(), ApiError> {
    if !(1..=MAX_CONTENT_BYTES).contains(&broadcast.content.len()) {
        let detail = format!("expected 1 to {MAX_CONTENT_BYTES} bytes");
        return Err(ApiError::invalid("/content", detail));
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
