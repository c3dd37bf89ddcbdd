//! Garbage collection: erases sessions whose log has expired, and deletes expired idempotency keys.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::IDEMPOTENCY_KEY_MAX_AGE;
use crate::session::context::Context;
use crate::session::entries::ActorEntries;
use crate::session::error::SessionError;
use crate::session::handle::SessionHandle;
use crate::session::record::{self, IdempotencyRecord};
use base::types::{GrantedFolders, Principal, Scopes};
use events::event::ActorKind;
use log::eventlog::{RecordPages, Records};
use log::store::Table;

const INTERVAL: Duration = Duration::from_mins(1);
/// The number of sessions or keys in one batch. Small batches keep commits short.
const BATCH: usize = 64;

pub(super) async fn run(entries: ActorEntries) {
    let context = entries.context();
    let mut keys_at = Instant::now();
    loop {
        tokio::select! {
            () = context.shutdown.drain_started() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        erase_expired_sessions(&entries).await;
        // An expired key is ignored even while it is stored, so the keys need not be read every minute.
        if Instant::now() < keys_at {
            continue;
        }
        keys_at = Instant::now() + IDEMPOTENCY_KEY_MAX_AGE / 24;
        if let Err(error) = delete_expired_keys(context).await {
            tracing::warn!(%error, "could not delete expired idempotency keys");
        }
    }
}

async fn erase_expired_sessions(entries: &ActorEntries) {
    let log = &entries.context().log;
    for (user, id) in log.expired(BATCH) {
        if matches!(entries.entry(id).await, Err(SessionError::NoSuchSession)) {
            // The log of a deleted session contains only its last event.
            if matches!(
                log.get(Table::Tombstone, id.as_bytes().to_vec()).await,
                Ok(None)
            ) {
                tracing::warn!(session = %id, "an expired log belongs to no session; erasing it");
            }
            log.erase_orphan(id).await;
            continue;
        }
        // The retention setting of the operator causes the deletion, in the name of the user.
        let by = Principal {
            user,
            is_local: false,
            scopes: Scopes::default(),
            folders: GrantedFolders::default(),
        };
        let erased = match entries.find(&by.user, id).await {
            Ok(entry) => {
                SessionHandle::new(entries.clone(), entry, by.user.clone())
                    .delete(&by, ActorKind::Gateway, None, None)
                    .await
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = erased {
            tracing::warn!(session = %id, %error, "could not erase an expired session");
        }
    }
}

async fn delete_expired_keys(context: &Context) -> Result<(), SessionError> {
    let mut pages = RecordPages::of(&context.log, Table::Idempotency);
    while let Some(page) = pages.next_raw().await? {
        let now = context.log.expiry().earliest_now();
        let mut records = Records::default();
        for (key, value) in page {
            if !record::decode::<IdempotencyRecord>(&value)
                .is_ok_and(|record| record.expires_at > now)
            {
                records = records.delete(Table::Idempotency, key);
            }
        }
        if !records.is_empty() {
            context.log.write(records).await?;
        }
    }
    Ok(())
}
