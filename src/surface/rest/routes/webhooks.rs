//! `/v1/webhooks`: webhooks, their signing secret and their deliveries.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use uuid::Uuid;

use crate::surface::http::{
    ApiError, ApiRequest, CanAdmin, Gateway, IdempotencyHeader, JsonBody, Params, set_replayed,
};
use base::types::{Author, Principal};
use events::api::{
    CreateWebhook, ProblemCode, Webhook, WebhookDelivery, WebhookDeliveryList,
    WebhookDeliveryState, WebhookList, WebhookSecret,
};
use events::event::{WebhookCreated, WebhookDeleted};
use log::eventlog::newest_first_id;
use sessions::webhooks::{self, CreateError, DeliveryState, RepeatError};

const DEFAULT_DELIVERIES: usize = 50;
const MAX_DELIVERIES: usize = 200;

/// Lists the webhooks.
///
/// Entries are sorted by id, the oldest first. Without `limit` the page has all webhooks.
#[utoipa::path(get, path = "/v1/webhooks", responses(
    (status = 200, body = WebhookList, description = "A page of webhooks."),
))]
pub(super) async fn list_webhooks(
    mut request: ApiRequest<CanAdmin, (), Params>,
) -> Result<Json<WebhookList>, ApiError> {
    let page = request.params.page::<Uuid>()?;
    request.params.finish()?;
    let webhooks = request.gateway.webhooks.list(&request.by.tenant);
    let webhooks = webhooks.into_iter().map(webhook).collect();
    let (webhooks, next_cursor) = page.select(webhooks, |webhook: &Webhook| webhook.webhook_id);
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
pub(super) async fn create_webhook(
    request: ApiRequest<CanAdmin>,
    key: IdempotencyHeader,
    body: JsonBody<CreateWebhook>,
) -> Result<Response, ApiError> {
    let key = key.bind(&body.bytes);
    let principal = Principal::clone(&request.by);
    let author = request.by.author();
    let gateway = request.gateway.clone();
    let wanted = body.value;
    let act = move || async move { create(&gateway, &principal, &author, wanted).await };
    let context = request.gateway.sessions.context();
    let created = context.respond_once(&request.by, key, act).await?;
    let location = format!("/v1/webhooks/{}", created.response.webhook_id);
    let location = HeaderValue::try_from(location).expect("ids are plain ASCII");
    let headers = [(header::LOCATION, location)];
    let mut response = (StatusCode::CREATED, headers, Json(created.response)).into_response();
    set_replayed(&mut response, created.replayed);
    Ok(response)
}

async fn create(
    gateway: &Gateway,
    principal: &Principal,
    author: &Author,
    wanted: CreateWebhook,
) -> Result<Webhook, ApiError> {
    let created = gateway
        .webhooks
        .create(&principal.tenant, &wanted.url, wanted.events)
        .await;
    let created = created.map_err(|error| {
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
        webhook_id: created.id.to_string(),
        url: created.url.clone(),
    };
    gateway.audit.append(author, event);
    Ok(webhook(created))
}

/// Gets a webhook.
///
/// `gone` is true after its URL answered with 410: the gateway then sends no further events to it.
#[utoipa::path(get, path = "/v1/webhooks/{webhook}", responses(
    (status = 200, body = Webhook, description = "The webhook."),
))]
pub(super) async fn get_webhook(
    request: ApiRequest<CanAdmin, Uuid>,
) -> Result<Json<Webhook>, ApiError> {
    let webhooks = request.gateway.webhooks.list(&request.by.tenant);
    let found = webhooks.into_iter().find(|found| found.id == request.ids);
    Ok(Json(webhook(found.ok_or_else(ApiError::not_found)?)))
}

/// Deletes a webhook.
///
/// Its pending deliveries are deleted too.
#[utoipa::path(delete, path = "/v1/webhooks/{webhook}", responses(
    (status = 204, description = "The webhook is deleted."),
))]
pub(super) async fn delete_webhook(
    request: ApiRequest<CanAdmin, Uuid>,
) -> Result<StatusCode, ApiError> {
    let webhooks = &request.gateway.webhooks;
    let deleted = webhooks.delete(&request.by.tenant, request.ids).await;
    if !deleted.map_err(|_| ApiError::draining())? {
        return Err(ApiError::not_found());
    }
    let event = WebhookDeleted {
        webhook_id: request.ids.to_string(),
    };
    request.gateway.audit.append(&request.by.author(), event);
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the secret that signs deliveries.
///
/// A receiver verifies deliveries with it and a library of Standard Webhooks.
#[utoipa::path(get, path = "/v1/webhooks/secret", responses(
    (status = 200, body = WebhookSecret, description = "The secret."),
))]
pub(super) async fn get_webhook_secret(
    request: ApiRequest<CanAdmin>,
) -> Result<Json<WebhookSecret>, ApiError> {
    let secret = request.gateway.webhooks.signing_secret(&request.by.tenant);
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
pub(super) async fn list_deliveries(
    mut request: ApiRequest<CanAdmin, (), Params>,
) -> Result<Json<WebhookDeliveryList>, ApiError> {
    let before = request
        .params
        .parsed("cursor", "the `nextCursor` of a page")?;
    let limit = request.params.limit(DEFAULT_DELIVERIES, MAX_DELIVERIES)?;
    request.params.finish()?;
    let webhooks = &request.gateway.webhooks;
    let found = webhooks.deliveries(&request.by.tenant, before, limit).await;
    let found = found.map_err(ApiError::internal)?;
    let next = found.next.as_deref().and_then(newest_first_id);
    Ok(Json(WebhookDeliveryList {
        next_cursor: next.map(|id| id.to_string()),
        deliveries: found.entries.into_iter().map(delivery).collect(),
    }))
}

/// Sends a delivery again.
///
/// A pending delivery is sent now. A finished one begins again with its first attempt. The `webhook-id` stays the same.
#[utoipa::path(post, path = "/v1/webhooks/deliveries/{delivery}/retry", responses(
    (status = 202, body = WebhookDelivery, description = "The delivery is pending."),
))]
pub(super) async fn retry_delivery(
    request: ApiRequest<CanAdmin, Uuid>,
) -> Result<Response, ApiError> {
    let webhooks = &request.gateway.webhooks;
    let repeated = webhooks.repeat(&request.by.tenant, request.ids).await;
    let repeated = repeated.map_err(|error| match error {
        RepeatError::Unknown => ApiError::not_found(),
        RepeatError::Deleted => ApiError::invalid("", error.to_string()),
        RepeatError::TooMany => ApiError::new(ProblemCode::QueueFull, error.to_string()),
        RepeatError::Read(error) => ApiError::internal(error),
        RepeatError::Closed(_) => ApiError::draining(),
    })?;
    Ok((StatusCode::ACCEPTED, Json(delivery(repeated))).into_response())
}

fn webhook(of: webhooks::Webhook) -> Webhook {
    Webhook {
        webhook_id: of.id,
        url: of.url,
        events: of.events,
        created_at: of.created_at,
        gone: of.gone,
    }
}

fn delivery(of: webhooks::Delivery) -> WebhookDelivery {
    let (state, next_attempt_at) = match of.state {
        DeliveryState::Pending { next_attempt_at } => {
            (WebhookDeliveryState::Pending, Some(next_attempt_at))
        }
        DeliveryState::Delivered => (WebhookDeliveryState::Delivered, None),
        DeliveryState::Failed => (WebhookDeliveryState::Failed, None),
    };
    let last = of.last;
    WebhookDelivery {
        delivery_id: of.id,
        webhook_id: of.webhook,
        url: of.url,
        kind: of.kind,
        session_id: of.session,
        state,
        created_at: of.created_at,
        attempts: of.attempts,
        last_attempt_at: last.as_ref().map(|last| last.at),
        last_status: last.as_ref().and_then(|last| last.status),
        last_error: last.and_then(|last| last.error),
        next_attempt_at,
    }
}
