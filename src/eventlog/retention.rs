//! Drops the oldest events when a log is too large or too old. It never drops the last run of a session: seq goes on
//! from there.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Batch, Cut, Delete, LogUsage, ReadError, RunHead, Table};
use crate::types::{SessionId, Timestamp};

use super::Shared;

/// Between two looks at all logs.
const LOOK: Duration = Duration::from_mins(1);
/// Logs, runs or records that one step takes, so that no commit waits for long.
const STEP: usize = 64;

/// Keeps the logs within their limits until the log closes.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.closed.cancelled() => return,
            () = shared.shutdown.soft() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if let Err(error) = pass(&shared).await {
            tracing::warn!(%error, "retention could not read the log");
        }
    }
}

/// One look at all logs.
pub(super) async fn pass(shared: &Shared) -> Result<(), ReadError> {
    forget_tombstones(shared).await?;
    drop_old(shared).await;
    drop_from_large(shared).await?;
    drop_oldest_of_all(shared).await?;
    while shared.upkeep(|store| store.compact()).await == Some(true) {}
    Ok(())
}

/// What is left of erased sessions goes when nobody can ask for it any more.
async fn forget_tombstones(shared: &Shared) -> Result<(), ReadError> {
    let old = shared.old_before(shared.limits.tombstone);
    let mut after = None;
    loop {
        let store = Arc::clone(&shared.store);
        let from: Option<Vec<u8>> = after.clone();
        let found = shared.blocking(move || store.scan(Table::Tombstone, b"", from.as_deref(), STEP)).await?;
        let Some((last, _)) = found.last() else { return Ok(()) };
        after = Some(last.clone());
        let mut batch = Batch::default();
        for (key, value) in found {
            let (Ok(id), Ok(millis)) = (<[u8; 16]>::try_from(&key[..]), <[u8; 8]>::try_from(&value[..]))
            else {
                continue;
            };
            if Timestamp::from_millis(i64::from_be_bytes(millis)) < old {
                batch.erase.push(SessionId::from_uuid(uuid::Uuid::from_bytes(id)));
                batch.deletes.push(Delete { table: Table::Tombstone, key });
            }
        }
        if !batch.erase.is_empty() && shared.upkeep(move |store| store.commit(&batch)).await.is_none() {
            return Ok(());
        }
    }
}

async fn drop_old(shared: &Shared) {
    let old = shared.old_before(shared.limits.log_age);
    loop {
        let logs = shared.store.usages(STEP, &|log| log.runs > 1 && log.last_time < old);
        let cuts: Vec<Cut> = logs.iter().map(all_but_the_last).collect();
        if cuts.is_empty() || !prune(shared, cuts).await {
            return;
        }
    }
}

async fn drop_from_large(shared: &Shared) -> Result<(), ReadError> {
    let limit = shared.limits.session_log_bytes;
    loop {
        let logs = shared.store.usages(STEP, &|log| log.runs > 1 && log.bytes > limit);
        let mut cuts = Vec::with_capacity(logs.len());
        for log in &logs {
            let heads = heads(shared, Some(log.session), 0).await?;
            let through = enough(&heads, log.bytes - limit).last().map(|head| head.last_seq);
            cuts.extend(through.map(|through| Cut { session: log.session, through }));
        }
        if cuts.is_empty() || !prune(shared, cuts).await {
            return Ok(());
        }
    }
}

async fn drop_oldest_of_all(shared: &Shared) -> Result<(), ReadError> {
    let mut after_pos = 0;
    loop {
        let Some(over) =
            shared.store.total_bytes().checked_sub(shared.limits.logs_bytes).filter(|over| *over > 0)
        else {
            return Ok(());
        };
        let heads = heads(shared, None, after_pos).await?;
        let Some(last) = heads.last() else { return Ok(()) };
        after_pos = last.last_pos;
        let is_last =
            |head: &RunHead| shared.store.usage(head.session).is_none_or(|log| log.last_seq == head.last_seq);
        let heads: Vec<RunHead> = heads.into_iter().filter(|head| !is_last(head)).collect();
        let heads = enough(&heads, over);
        let cuts: Vec<Cut> =
            heads.iter().map(|head| Cut { session: head.session, through: head.last_seq }).collect();
        if !cuts.is_empty() && !prune(shared, cuts).await {
            return Ok(());
        }
    }
}

fn all_but_the_last(log: &LogUsage) -> Cut {
    Cut { session: log.session, through: log.last_seq }
}

/// The first runs that together have at least `bytes`.
fn enough(heads: &[RunHead], bytes: u64) -> &[RunHead] {
    let mut sum = 0;
    let before = heads.iter().map(|head| {
        sum += head.bytes;
        sum - head.bytes
    });
    let count = before.take_while(|before| *before < bytes).count();
    &heads[..count]
}

async fn heads(
    shared: &Shared,
    session: Option<SessionId>,
    after_pos: u64,
) -> Result<Vec<RunHead>, ReadError> {
    let store = Arc::clone(&shared.store);
    shared.blocking(move || store.heads(session, after_pos, STEP)).await
}

/// False when nothing went: then there is no more to do now.
async fn prune(shared: &Shared, cuts: Vec<Cut>) -> bool {
    let pruned = shared.upkeep(move |store| store.prune(&cuts, STEP)).await;
    let Some(pruned) = pruned.filter(|pruned| pruned.runs > 0) else { return false };
    tracing::info!(runs = pruned.runs, bytes = pruned.bytes, "the oldest events were dropped");
    true
}
