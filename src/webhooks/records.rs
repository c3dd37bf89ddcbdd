//! The records of webhooks, their deliveries, and the position of a follower. All keys begin with the tenant.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::delivery::Delivery;
use super::webhook::Webhook;
use crate::eventlog::{EventLog, ReadError, Records};
use crate::store::Table;
use crate::types::{Epoch, Tenant};

/// The number of records on a page. A delivery has at most 64 KiB.
const PAGE: usize = 64;

/// The position of a follower in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FollowerPosition {
    pub(super) epoch: Epoch,
    pub(super) pos: u64,
}

pub(super) fn put_webhook(records: Records, tenant: &Tenant, webhook: &Webhook) -> Records {
    records.put(Table::Webhook, key(tenant, webhook.id.as_u128()), json(webhook))
}

pub(super) fn delete_webhook(records: Records, tenant: &Tenant, webhook: Uuid) -> Records {
    records.delete(Table::Webhook, key(tenant, webhook.as_u128()))
}

/// The newest delivery has the first key.
fn delivery_key(tenant: &Tenant, delivery: Uuid) -> Vec<u8> {
    key(tenant, !delivery.as_u128())
}

pub(super) fn put_delivery(records: Records, tenant: &Tenant, delivery: &Delivery) -> Records {
    records.put(Table::WebhookDelivery, delivery_key(tenant, delivery.id), json(delivery))
}

pub(super) fn delete_delivery(records: Records, tenant: &Tenant, delivery: Uuid) -> Records {
    records.delete(Table::WebhookDelivery, delivery_key(tenant, delivery))
}

pub(super) fn put_position(tenant: &Tenant, position: &FollowerPosition) -> Records {
    Records::default().put(Table::WebhookPosition, prefix(tenant), json(position))
}

pub(super) async fn get_position(
    log: &EventLog,
    tenant: &Tenant,
) -> Result<Option<FollowerPosition>, ReadError> {
    Ok(log.get(Table::WebhookPosition, prefix(tenant)).await?.and_then(|value| parse(&value)))
}

pub(super) async fn get_delivery(
    log: &EventLog,
    tenant: &Tenant,
    delivery: Uuid,
) -> Result<Option<Delivery>, ReadError> {
    let value = log.get(Table::WebhookDelivery, delivery_key(tenant, delivery)).await?;
    Ok(value.and_then(|value| parse(&value)))
}

/// Up to `limit` deliveries of a tenant, newest first, that are older than `before`.
pub(super) async fn deliveries(
    log: &EventLog,
    tenant: &Tenant,
    before: Option<Uuid>,
    limit: usize,
) -> Result<Vec<Delivery>, ReadError> {
    let after = before.map(|before| delivery_key(tenant, before));
    let page = log.scan(Table::WebhookDelivery, prefix(tenant), after, limit).await?;
    Ok(page.iter().filter_map(|(_, value)| parse(value)).collect())
}

/// The records of a table, page by page.
#[derive(Debug)]
pub(super) struct Pages<'a> {
    log: &'a EventLog,
    table: Table,
    after: Option<Vec<u8>>,
}

impl<'a> Pages<'a> {
    pub(super) fn of(log: &'a EventLog, table: Table) -> Self {
        Self { log, table, after: None }
    }

    /// The records of the next page with their tenants, or `None` after the last page.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<(Tenant, T)>>, ReadError> {
        let page = self.log.scan(self.table, Vec::new(), self.after.take(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        self.after = Some(last.clone());
        Ok(Some(page.iter().filter_map(|(key, value)| Some((tenant_of(key)?, parse(value)?))).collect()))
    }
}

fn prefix(tenant: &Tenant) -> Vec<u8> {
    [tenant.as_str().as_bytes(), &[0]].concat()
}

fn key(tenant: &Tenant, id: u128) -> Vec<u8> {
    [&prefix(tenant)[..], &id.to_be_bytes()].concat()
}

fn tenant_of(key: &[u8]) -> Option<Tenant> {
    let end = key.iter().position(|byte| *byte == 0)?;
    Some(Tenant::new(std::str::from_utf8(&key[..end]).ok()?))
}

fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record has string keys and serializes")
}

/// A record that cannot be read is skipped: it cannot be repaired.
fn parse<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}
