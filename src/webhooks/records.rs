//! The records of webhooks, their deliveries, and the position of a follower. All keys begin with the tenant.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::delivery::Delivery;
use super::webhook::Webhook;
use crate::eventlog::{
    EventLog, ReadError, RecordPages, Records, Selected, from_json, tenant_key, tenant_prefix,
    to_json,
};
use crate::store::Table;
use crate::types::{Epoch, Tenant};

/// The position of a follower in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FollowerPosition {
    pub(super) epoch: Epoch,
    pub(super) pos: u64,
}

pub(super) fn put_webhook(records: Records, tenant: &Tenant, webhook: &Webhook) -> Records {
    records.put(
        Table::Webhook,
        tenant_key(tenant, webhook.id.as_u128()),
        to_json(webhook),
    )
}

pub(super) fn delete_webhook(records: Records, tenant: &Tenant, webhook: Uuid) -> Records {
    records.delete(Table::Webhook, tenant_key(tenant, webhook.as_u128()))
}

/// The newest delivery has the first key.
fn delivery_key(tenant: &Tenant, delivery: Uuid) -> Vec<u8> {
    tenant_key(tenant, !delivery.as_u128())
}

pub(super) fn put_delivery(records: Records, tenant: &Tenant, delivery: &Delivery) -> Records {
    records.put(
        Table::WebhookDelivery,
        delivery_key(tenant, delivery.id),
        to_json(delivery),
    )
}

pub(super) fn delete_delivery(records: Records, tenant: &Tenant, delivery: Uuid) -> Records {
    records.delete(Table::WebhookDelivery, delivery_key(tenant, delivery))
}

pub(super) fn put_position(tenant: &Tenant, position: &FollowerPosition) -> Records {
    Records::default().put(
        Table::WebhookPosition,
        tenant_prefix(tenant),
        to_json(position),
    )
}

pub(super) async fn get_position(
    log: &EventLog,
    tenant: &Tenant,
) -> Result<Option<FollowerPosition>, ReadError> {
    Ok(log
        .get(Table::WebhookPosition, tenant_prefix(tenant))
        .await?
        .and_then(|value| from_json(&value)))
}

pub(super) async fn get_delivery(
    log: &EventLog,
    tenant: &Tenant,
    delivery: Uuid,
) -> Result<Option<Delivery>, ReadError> {
    let value = log
        .get(Table::WebhookDelivery, delivery_key(tenant, delivery))
        .await?;
    Ok(value.and_then(|value| from_json(&value)))
}

/// Up to `limit` deliveries of a tenant, newest first, that are older than `before`.
pub(super) async fn deliveries(
    log: &EventLog,
    tenant: &Tenant,
    before: Option<Uuid>,
    limit: usize,
) -> Result<Selected<Delivery>, ReadError> {
    RecordPages::below(log, Table::WebhookDelivery, tenant_prefix(tenant))
        .after(before.map(|before| delivery_key(tenant, before)))
        .select(limit, |value| Ok(from_json(value)))
        .await
}
