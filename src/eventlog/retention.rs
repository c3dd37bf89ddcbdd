//! Drops the oldest events when a log is too large or too old. It never drops the last run of a session: seq goes on
//! from there. When all logs together are too large the largest give first, so that a session which writes much drives
//! out nobody but itself.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::{Batch, Cut, Delete, LogUsage, ReadError, RunHeader, Table};
use crate::types::{Limits, SessionId, Timestamp};

use super::Shared;

/// Between two looks at all logs.
const PASS_INTERVAL: Duration = Duration::from_mins(1);
/// Between two looks at what erased sessions left.
const TOMBSTONE_INTERVAL: Duration = Duration::from_hours(1);
/// Logs, runs or records that one step takes, so that no commit waits for long.
const STEP: usize = 64;

/// What was written since the last look, as it is stored: what the limits are about.
#[derive(Debug, Default)]
pub(super) struct Growth {
    bytes: AtomicU64,
    threshold_reached: Notify,
}

impl Growth {
    /// The next look does not wait for its time once so much was written that a limit may be far behind.
    pub(super) fn add(&self, bytes: u64, limits: &Limits) {
        const PART: u64 = 8;
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes >= limits.session_log_bytes.min(limits.logs_bytes) / PART {
            self.bytes.store(0, Ordering::Relaxed);
            self.threshold_reached.notify_one();
        }
    }

    async fn wait_for_threshold(&self) {
        self.threshold_reached.notified().await;
    }
}

/// Keeps the logs within their limits until the log closes.
pub(super) async fn run(shared: Arc<Shared>) {
    // All of what erased sessions left is read each time, and most of it stays for days.
    let tombstones = (shared.limits.tombstone / 24).min(TOMBSTONE_INTERVAL);
    let mut tombstones_at = Instant::now();
    loop {
        tokio::select! {
            () = shared.closed.cancelled() => return,
            () = shared.shutdown.drain_started() => return,
            () = shared.growth.wait_for_threshold() => {}
            () = tokio::time::sleep(PASS_INTERVAL.min(shared.limits.log_age / 2)) => {}
        }
        shared.read_cache().evict_if_unused();
        let forget = Instant::now() >= tombstones_at;
        if forget {
            tombstones_at = Instant::now() + tombstones;
        }
        let passed = tokio::select! {
            passed = pass(&shared, forget) => passed,
            () = shared.shutdown.drain_started() => return,
        };
        if let Err(error) = passed {
            tracing::warn!(%error, "retention could not read the log");
        }
    }
}

/// One look at all logs, and at what erased ones left.
pub(super) async fn pass(shared: &Shared, tombstones: bool) -> Result<(), ReadError> {
    if tombstones {
        delete_tombstones(shared).await?;
    }
    drop_old(shared).await;
    drop_from_large(shared, shared.limits.session_log_bytes).await?;
    if let Some(level) = target_log_bytes(shared) {
        drop_from_large(shared, level).await?;
    }
    while shared.run_maintenance(|store| store.compact()).await == Some(true) {}
    Ok(())
}

/// What is left of erased sessions goes when nobody can ask for it any more.
async fn delete_tombstones(shared: &Shared) -> Result<(), ReadError> {
    let old = shared.expired_before(shared.limits.tombstone);
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
        if !batch.erase.is_empty()
            && shared.run_maintenance(move |store| store.commit(&batch)).await.is_none()
        {
            return Ok(());
        }
    }
}

async fn drop_old(shared: &Shared) {
    let old = shared.expired_before(shared.limits.log_age);
    loop {
        let logs = shared.store.usages(STEP, &|log| log.runs > 1 && log.last_time < old);
        let cuts: Vec<Cut> = logs.iter().map(all_but_the_last).collect();
        if cuts.is_empty() || !prune(shared, cuts).await {
            return;
        }
    }
}

async fn drop_from_large(shared: &Shared, limit: u64) -> Result<(), ReadError> {
    loop {
        let logs = shared.store.usages(STEP, &|log| log.runs > 1 && log.bytes > limit);
        let mut cuts = Vec::with_capacity(logs.len());
        for log in &logs {
            let heads = run_headers(shared, log.session).await?;
            let through = oldest_with_bytes(&heads, log.bytes - limit).last().map(|head| head.last_seq);
            cuts.extend(through.map(|through| Cut { session: log.session, through }));
        }
        if cuts.is_empty() || !prune(shared, cuts).await {
            return Ok(());
        }
    }
}

/// To how many bytes the largest logs have to shrink, so that all together are within their limit.
fn target_log_bytes(shared: &Shared) -> Option<u64> {
    let over = shared.store.total_bytes().checked_sub(shared.limits.logs_bytes).filter(|over| *over > 0)?;
    let sizes = RefCell::new(Vec::new());
    shared.store.usages(1, &|log| {
        sizes.borrow_mut().extend((log.runs > 1).then_some(log.bytes));
        false
    });
    let mut sizes = sizes.into_inner();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0;
    for (at, size) in sizes.iter().enumerate() {
        sum += size;
        let next = sizes.get(at + 1).copied().unwrap_or_default();
        let count = at as u64 + 1;
        // The first logs, cut down to the next one, give enough.
        if sum - next * count >= over {
            return Some((sum - over) / count);
        }
    }
    (!sizes.is_empty()).then_some(0)
}

fn all_but_the_last(log: &LogUsage) -> Cut {
    Cut { session: log.session, through: log.last_seq }
}

/// The first runs that together have at least `bytes`.
fn oldest_with_bytes(heads: &[RunHeader], bytes: u64) -> &[RunHeader] {
    let mut sum = 0;
    let before = heads.iter().map(|head| {
        sum += head.bytes;
        sum - head.bytes
    });
    let count = before.take_while(|before| *before < bytes).count();
    &heads[..count]
}

async fn run_headers(shared: &Shared, session: SessionId) -> Result<Vec<RunHeader>, ReadError> {
    let store = Arc::clone(&shared.store);
    shared.blocking(move || store.run_headers(Some(session), 0, STEP)).await
}

/// False when nothing went: then there is no more to do now.
pub(super) async fn prune(shared: &Shared, cuts: Vec<Cut>) -> bool {
    let sessions: Vec<SessionId> = cuts.iter().map(|cut| cut.session).collect();
    let pruned = shared.run_maintenance(move |store| store.prune(&cuts, STEP)).await;
    let Some(pruned) = pruned.filter(|pruned| pruned.runs > 0) else { return false };
    for session in sessions {
        shared.read_cache().invalidate(session);
    }
    tracing::info!(runs = pruned.runs, bytes = pruned.bytes, "the oldest events were dropped");
    true
}
