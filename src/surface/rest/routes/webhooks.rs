//! `/v1/webhooks`: webhooks, their signing secret and their deliveries.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use uuid::Uuid;

use super::operations::Routes;
use crate::surface::http::{
    ApiError, ApiRequest, AppState, CanAdmin, IdempotencyHeader, JsonBody, Page, Params, Replayed,
    Result, location,
};
use base::types::{Author, Principal};
use events::api::{
    CreateWebhook, ProblemCode, Webhook, WebhookDelivery, WebhookDeliveryList, WebhookList,
    WebhookSecret,
};
use events::event::{WebhookCreated, WebhookDeleted};
use log::eventlog::newest_first_id;
use sessions::webhooks::{CreateError, RepeatError};

pub(super) fn routes() -> Routes {
    routes![
        list_webhooks,
        create_webhook,
        get_webhook,
        delete_webhook,
        get_webhook_secret,
        list_deliveries,
        retry_delivery
    ]
}

const DEFAULT_DELIVERIES: usize = 50;
const MAX_DELIVERIES: usize = 200;

/// Lists the webhooks.
///
/// Entries are sorted by id, the oldest first. Without `limit` the page has all webhooks.
#[utoipa::path(get, path = "/v1/webhooks", responses(
    (status = 200, body = WebhookList, description = "A page of webhooks."),
))]
async fn list_webhooks(request: ApiRequest<CanAdmin, (), Page<Uuid>>) -> Result<Json<WebhookList>> {
    let webhooks = request.app.webhooks.list(&request.by.user);
    let webhooks = webhooks.into_iter().map(|record| record.webhook).collect();
    let (webhooks, next_cursor) = request
        .params
        .select(webhooks, |webhook| webhook.webhook_id);
    Ok(Json(WebhookList {
        webhooks,
        next_cursor,
    }))
}

/// Creates a webhook.
///
/// The gateway sends later events of the types as `POST` requests in the format of Standard Webhooks: the headers
/// `webhook-id`, `webhook-timestamp` and `webhook-signature`, and a JSON body with `type`, `timestamp` and `data`. `data`
/// is the event as on a stream. A status from 200 to 299 confirms a delivery. The gateway repeats other deliveries for
/// about two days.
#[utoipa::path(post, path = "/v1/webhooks", request_body = CreateWebhook, responses(
    (status = 201, body = Webhook, description = "The webhook."),
))]
async fn create_webhook(
    request: ApiRequest<CanAdmin>,
    key: IdempotencyHeader,
    body: JsonBody<CreateWebhook>,
) -> Result<Response> {
    let key = key.bind(&body.bytes);
    let principal = Principal::clone(&request.by);
    let author = request.by.author();
    let app = request.app.clone();
    let wanted = body.value;
    let act = move || async move { create(&app, &principal, &author, wanted).await };
    let context = request.app.sessions.context();
    let created = context.respond_once(&request.by, key, act).await?;
    let location = location(format!("/v1/webhooks/{}", created.response.webhook_id));
    let replayed = Replayed(created.replayed);
    let body = Json(created.response);
    Ok((StatusCode::CREATED, location, replayed, body).into_response())
}

async fn create(
    app: &AppState,
    principal: &Principal,
    author: &Author,
    wanted: CreateWebhook,
) -> Result<Webhook> {
    let webhooks = &app.webhooks;
    let created = webhooks.create(&principal.user, &wanted.url, wanted.events);
    let created = created.await.map_err(|error| {
        let detail = error.to_string();
        match error {
            CreateError::Disabled => ApiError::new(ProblemCode::Forbidden, detail),
            CreateError::Url(_) => ApiError::invalid("/url", detail),
            CreateError::Events => ApiError::invalid("/events", detail),
            CreateError::TooMany => ApiError::invalid("", detail),
            CreateError::Closed(_) => ApiError::draining(),
        }
    })?;
    let event = WebhookCreated {
        webhook_id: created.webhook_id.to_string(),
        url: created.url.clone(),
    };
    app.audit.append(author, event);
    Ok(created)
}

/// Gets a webhook.
///
/// `gone` is true after its URL answered with 410: the gateway then sends no further events to it.
#[utoipa::path(get, path = "/v1/webhooks/{webhook}", responses(
    (status = 200, body = Webhook, description = "The webhook."),
))]
async fn get_webhook(request: ApiRequest<CanAdmin, Uuid>) -> Result<Json<Webhook>> {
    let webhooks = request.app.webhooks.list(&request.by.user);
    let mut webhooks = webhooks.into_iter().map(|record| record.webhook);
    let found = webhooks.find(|webhook| webhook.webhook_id == request.ids);
    Ok(Json(found.ok_or_else(ApiError::not_found)?))
}

/// Deletes a webhook.
///
/// Its pending deliveries are deleted too.
#[utoipa::path(delete, path = "/v1/webhooks/{webhook}", responses(
    (status = 204, description = "The webhook is deleted."),
))]
async fn delete_webhook(request: ApiRequest<CanAdmin, Uuid>) -> Result<StatusCode> {
    let webhooks = &request.app.webhooks;
    let deleted = webhooks.delete(&request.by.user, request.ids).await;
    if !deleted.map_err(|_| ApiError::draining())? {
        return Err(ApiError::not_found());
    }
    let event = WebhookDeleted {
        webhook_id: request.ids.to_string(),
    };
    request.app.audit.append(&request.by.author(), event);
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the secret that signs deliveries.
///
/// A receiver verifies deliveries with it and a library of Standard Webhooks.
#[utoipa::path(get, path = "/v1/webhooks/secret", responses(
    (status = 200, body = WebhookSecret, description = "The secret."),
))]
async fn get_webhook_secret(request: ApiRequest<CanAdmin>) -> Result<Json<WebhookSecret>> {
    let secret = request.app.webhooks.signing_secret(&request.by.user);
    let disabled = || ApiError::new(ProblemCode::Forbidden, CreateError::Disabled.to_string());
    Ok(Json(WebhookSecret {
        secret: secret.ok_or_else(disabled)?,
    }))
}

/// Lists deliveries, newest first.
///
/// The gateway keeps finished deliveries for seven days, and at most 1,000 of them.
#[utoipa::path(get, path = "/v1/webhooks/deliveries", responses(
    (status = 200, body = WebhookDeliveryList, description = "A page of deliveries."),
))]
async fn list_deliveries(
    mut request: ApiRequest<CanAdmin, (), Params>,
) -> Result<Json<WebhookDeliveryList>> {
    let params = &mut request.params;
    let before = params.parsed("cursor", "the `nextCursor` of a page")?;
    let limit = params.limit(DEFAULT_DELIVERIES, MAX_DELIVERIES)?;
    params.finish()?;
    let webhooks = &request.app.webhooks;
    let found = webhooks.deliveries(&request.by.user, before, limit).await;
    let found = found.map_err(ApiError::internal)?;
    let next = found.next.as_deref().and_then(newest_first_id);
    Ok(Json(WebhookDeliveryList {
        next_cursor: next.map(|id| id.to_string()),
        deliveries: found.entries,
    }))
}

/// Sends a delivery again.
///
/// A pending delivery is sent now. A finished one begins again with its first attempt. The `webhook-id` stays the same.
#[utoipa::path(post, path = "/v1/webhooks/deliveries/{delivery}/retry", responses(
    (status = 202, body = WebhookDelivery, description = "The delivery is pending."),
))]
async fn retry_delivery(request: ApiRequest<CanAdmin, Uuid>) -> Result<Response> {
    let webhooks = &request.app.webhooks;
    let repeated = webhooks.repeat(&request.by.user, request.ids).await;
    let repeated = repeated.map_err(|error| match error {
        RepeatError::Unknown => ApiError::not_found(),
        RepeatError::Deleted => ApiError::invalid("", error.to_string()),
        RepeatError::TooMany => ApiError::new(ProblemCode::QueueFull, error.to_string()),
        RepeatError::Read(error) => ApiError::internal(error),
        RepeatError::Closed(_) => ApiError::draining(),
    })?;
    Ok((StatusCode::ACCEPTED, Json(repeated)).into_response())
}
