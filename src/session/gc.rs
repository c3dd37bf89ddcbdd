//! Garbage collection: erases sessions whose log has expired, and deletes expired idempotency keys.

use std::time::Duration;

use tokio::time::Instant;

use super::record::{self, IdempotencyRecord};
use super::refusal::Refusal;
use super::registry::SessionRegistry;
use crate::eventlog::Records;
use crate::store::Table;
use crate::types::{Principal, Scopes};

/// The interval between two passes.
const INTERVAL: Duration = Duration::from_mins(1);
/// The number of sessions or keys in one batch. Small batches keep commits short.
const BATCH: usize = 64;

/// Runs until the shutdown begins.
pub(super) async fn run(registry: SessionRegistry) {
    let shutdown = registry.context().shutdown.clone();
    let mut keys_at = Instant::now();
    loop {
        tokio::select! {
            () = shutdown.drain_started() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        erase_expired_sessions(&registry).await;
        // An expired key is ignored even while it is stored, so the keys need not be read every minute.
        if Instant::now() < keys_at {
            continue;
        }
        keys_at = Instant::now() + registry.context().limits.idempotency_key_max_age / 24;
        if let Err(refusal) = delete_expired_keys(&registry).await {
            tracing::warn!(%refusal, "could not delete expired idempotency keys");
        }
    }
}

async fn erase_expired_sessions(registry: &SessionRegistry) {
    for (tenant, id) in registry.context().log.expired(BATCH) {
        if matches!(registry.entry(id).await, Err(Refusal::NoSuchSession)) {
            let log = &registry.context().log;
            // The log of a deleted session contains only its last event.
            if matches!(log.get(Table::Tombstone, id.as_bytes().to_vec()).await, Ok(None)) {
                tracing::warn!(session = %id, "an expired log belongs to no session; erasing it");
            }
            log.erase_orphan(id).await;
            continue;
        }
        // The retention setting of the operator causes the deletion, not a client.
        let by = Principal { id: "retention".into(), tenant, scopes: Scopes::default() };
        let erased = match registry.open(&by, id).await {
            Ok(session) => session.delete(&by, None).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = erased {
            tracing::warn!(session = %id, %refusal, "could not erase an expired session");
        }
    }
}

async fn delete_expired_keys(registry: &SessionRegistry) -> Result<(), Refusal> {
    let context = registry.context();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = context.log.scan(Table::Idempotency, Vec::new(), after.take(), BATCH).await;
        let page = page.map_err(|error| Refusal::internal(&error))?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        let now = context.log.expiry().earliest_now();
        let mut records = Records::new();
        for (key, value) in page {
            let kept =
                record::decode::<IdempotencyRecord>(&value).is_ok_and(|record| record.expires_at > now);
            if !kept {
                records = records.delete(Table::Idempotency, key);
            }
        }
        if !records.is_empty() {
            context.log.write(records).await.map_err(|error| Refusal::internal(&error))?;
        }
    }
}
