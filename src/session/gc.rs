//! What nobody asks for any more goes: sessions past the age of the log, and idempotency keys past theirs.

use std::time::Duration;

use tokio::time::Instant;

use super::idempotency::IdempotencyRecord;
use super::record;
use super::refusal::Refusal;
use super::registry::SessionRegistry;
use crate::eventlog::Records;
use crate::store::Table;
use crate::types::{Principal, Scopes};

/// Between two rounds.
const INTERVAL: Duration = Duration::from_mins(1);
/// Sessions or keys of one step, so that no commit waits for long.
const BATCH: usize = 64;

/// Runs until a stop is asked for.
pub(super) async fn run(registry: SessionRegistry) {
    let shutdown = registry.context().shutdown.clone();
    let mut keys_at = Instant::now();
    loop {
        tokio::select! {
            () = shutdown.drain_started() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        erase_expired_sessions(&registry).await;
        // A key that is kept a little too long is not known any more all the same: all of them are not read each minute.
        if Instant::now() < keys_at {
            continue;
        }
        keys_at = Instant::now() + registry.context().limits.idempotency / 24;
        if let Err(refusal) = delete_expired_keys(&registry).await {
            tracing::warn!(%refusal, "old keys could not be removed");
        }
    }
}

async fn erase_expired_sessions(registry: &SessionRegistry) {
    for (tenant, id) in registry.context().log.expired(BATCH) {
        if matches!(registry.entry(id).await, Err(Refusal::NoSuchSession)) {
            let log = &registry.context().log;
            // That of a session that was deleted is its last event alone.
            if matches!(log.get(Table::Tombstone, id.as_bytes().to_vec()).await, Ok(None)) {
                tracing::warn!(session = %id, "a log past its age belongs to no session; it is erased");
            }
            log.erase_orphan(id).await;
            continue;
        }
        // The age of the log is the operator's word, so it is the operator who deletes.
        let by = Principal { id: "retention".into(), tenant, scopes: Scopes::default() };
        let erased = match registry.open(&by, id).await {
            Ok(session) => session.delete(&by, None).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = erased {
            tracing::warn!(session = %id, %refusal, "a session past its age could not be erased");
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
            let kept = record::decode::<IdempotencyRecord>(&value).is_ok_and(|record| record.expires_at > now);
            if !kept {
                records = records.delete(Table::Idempotency, key);
            }
        }
        if !records.is_empty() {
            context.log.write(records).await.map_err(|error| Refusal::internal(&error))?;
        }
    }
}
