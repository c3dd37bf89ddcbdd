//! Webhooks and their deliveries.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use uuid::Uuid;

use crate::event::webhook_types;
use base::types::{SessionId, Timestamp};

/// A request for a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWebhook {
    /// An `https` URL of a host in `webhooks.allowed_hosts`.
    #[schema(max_length = 2048, format = "uri")]
    pub url: String,
    /// The event types that the webhook receives, each once.
    #[schema(schema_with = selected_types)]
    pub events: Vec<String>,
}

/// The types are in the description and not in an `enum`, because clients of an earlier version must accept later types.
fn selected_types() -> Schema {
    let types = webhook_types();
    let names: Vec<String> = types.iter().map(|name| format!("`{name}`")).collect();
    let description = format!(
        "The event types that the webhook receives, each once. Possible are {}.",
        names.join(", ")
    );
    ArrayBuilder::new()
        .items(ObjectBuilder::new().schema_type(Type::String))
        .min_items(Some(1))
        .max_items(Some(types.len()))
        .description(Some(description))
        .into()
}

/// A webhook.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    pub webhook_id: Uuid,
    pub url: String,
    pub events: Vec<String>,
    pub created_at: Timestamp,
    /// True if the receiver has answered 410. The webhook gets no more deliveries.
    pub gone: bool,
}

/// The webhooks, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookList {
    pub webhooks: Vec<Webhook>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// The secret that signs all deliveries.
#[derive(Clone, derive_more::Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookSecret {
    /// `whsec_` and 32 bytes in base64, for a library of Standard Webhooks.
    #[debug(skip)]
    pub secret: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebhookDeliveryState {
    /// The delivery waits for its next attempt.
    Pending,
    /// The receiver has answered with a status from 200 to 299.
    Delivered,
    /// All 13 attempts have failed, or the receiver has answered 410.
    Failed,
}

/// A delivery: one event for one webhook, or the end of a task for its `callbackUrl`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookDelivery {
    /// Also the header `webhook-id`. It is the same for all attempts.
    pub delivery_id: Uuid,
    /// Null for the `callbackUrl` of a task.
    #[schema(required)]
    pub webhook_id: Option<Uuid>,
    pub url: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// Null for a task that ended before its session was created.
    #[schema(required)]
    pub session_id: Option<SessionId>,
    pub state: WebhookDeliveryState,
    pub created_at: Timestamp,
    /// The number of attempts since the creation or the last retry of a client.
    pub attempts: u32,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub last_attempt_at: Option<Timestamp>,
    /// The status of the last response. Null if there was none.
    #[schema(required)]
    pub last_status: Option<u16>,
    /// Why the last attempt has no response.
    #[schema(required)]
    pub last_error: Option<String>,
    /// Null if the delivery is not pending.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub next_attempt_at: Option<Timestamp>,
}

/// A page of deliveries, newest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookDeliveryList {
    pub deliveries: Vec<WebhookDelivery>,
    /// The cursor of the next page. Null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}
