//! Deletes the oldest events of logs that are too large or too old.
//!
//! The last run of a session is never deleted, because its seq continues from there. If all logs together are
//! too large, the largest logs shrink first, so that a session with much output evicts only itself.
//!
//! The audit log is excluded: the module `audit` has its own limits and prunes it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::state::Shared;
use super::store_reader::Store;
use crate::store::{Batch, Cut, LogUsage, Pruned, ReadError, RecordState, RunHeader, Table};
use base::shutdown::Shutdown;
use base::types::{SessionId, Timestamp};

const PASS_INTERVAL: Duration = Duration::from_mins(1);
/// The interval between two passes over tombstones. They live for days, and each pass reads all of them.
const TOMBSTONE_INTERVAL: Duration = Duration::from_hours(1);
/// The time for which `session.deleted` remains on `/v1/events`, at most `Limits::max_log_age`.
const TOMBSTONE_MAX_AGE: Duration = Duration::from_hours(7 * 24);
/// The number of logs, runs or records in one step. It bounds the time for which a commit waits.
const STEP: usize = 64;

/// Keeps the logs within their limits until the log closes.
pub(super) async fn run(shared: Arc<Shared>, shutdown: Shutdown) {
    let mut tombstones_at = Instant::now();
    loop {
        tokio::select! {
            () = shared.queue.closed.cancelled() => return,
            () = shutdown.drain_started() => return,
            () = shared.growth.wait_for_threshold() => {}
            () = tokio::time::sleep(PASS_INTERVAL.min(shared.limits.max_log_age / 2)) => {}
        }
        shared.published.read_cache().evict_if_unused();
        let forget = Instant::now() >= tombstones_at;
        if forget {
            tombstones_at = Instant::now() + TOMBSTONE_INTERVAL;
        }
        let passed = tokio::select! {
            passed = pass(&shared, forget) => passed,
            () = shutdown.drain_started() => return,
        };
        if let Err(error) = passed {
            tracing::warn!(%error, "retention could not read the log; it tries again in the next pass");
        }
    }
}

/// One pass over all logs, and over tombstones if requested.
pub(super) async fn pass(shared: &Shared, tombstones: bool) -> Result<(), ReadError> {
    if tombstones {
        delete_tombstones(shared).await?;
    }
    drop_old(shared).await;
    drop_from_large(shared, shared.limits.max_session_log_bytes).await?;
    if let Some(level) = target_log_bytes(shared) {
        drop_from_large(shared, level).await?;
    }
    loop {
        if shared.queue.run_maintenance(|store| store.compact()).await != Some(true) {
            return Ok(());
        }
    }
}

/// Deletes expired tombstones, together with the last events of their sessions.
async fn delete_tombstones(shared: &Shared) -> Result<(), ReadError> {
    let old = shared.expired_before(TOMBSTONE_MAX_AGE);
    let mut after = None;
    loop {
        let from: Option<Vec<u8>> = after.take();
        let scan =
            move |store: &dyn Store| store.scan(Table::Tombstone, b"", from.as_deref(), STEP);
        let found = shared.reads.blocking(scan).await?;
        let Some((last, _)) = found.last() else {
            return Ok(());
        };
        after = Some(last.clone());
        let mut batch = Batch::default();
        for (key, value) in found {
            let (Ok(id), Ok(millis)) = (key[..].try_into(), value[..].try_into()) else {
                continue;
            };
            if Timestamp::from_millis(i64::from_be_bytes(millis)) < old {
                let id = SessionId::from_uuid(uuid::Uuid::from_bytes(id));
                batch.erase.push(id);
                let gone = RecordState::absent(Table::Tombstone, key);
                batch.records.push(gone);
            }
        }
        if batch.erase.is_empty() {
            continue;
        }
        let erase = move |store: &dyn Store| store.commit(&batch);
        if shared.queue.run_maintenance(erase).await.is_none() {
            return Ok(());
        }
    }
}

fn is_prunable(log: &LogUsage) -> bool {
    log.runs > 1 && log.session != SessionId::AUDIT
}

/// The end of the oldest runs that together have the excess bytes, or are older than `old`.
fn end_of_excess(heads: &[RunHeader], mut excess: u64, old: Timestamp) -> Option<u64> {
    let oldest = heads.iter().take_while(|head| {
        let exceeds = excess > 0 || head.time < old;
        excess = excess.saturating_sub(head.bytes);
        exceeds
    });
    oldest.last().map(|head| head.last_seq)
}

/// The end of the oldest runs of one log that are older than `max_age` or exceed `max_bytes`: at most one step,
/// without the last run.
pub(super) async fn excess_of(
    shared: &Shared,
    session: SessionId,
    max_age: Duration,
    max_bytes: u64,
) -> Result<Option<u64>, ReadError> {
    let Some(log) = shared.store.usage(session) else {
        return Ok(None);
    };
    let heads = move |store: &dyn Store| store.run_headers(Some(session), 0, STEP);
    let heads = shared.reads.blocking(heads).await?;
    let before_last = heads.partition_point(|head| head.last_seq < log.last_seq);
    let excess = log.bytes.saturating_sub(max_bytes);
    let old = shared.expired_before(max_age);
    Ok(end_of_excess(&heads[..before_last], excess, old))
}

async fn drop_old(shared: &Shared) {
    let old = shared.expired_before(shared.limits.max_log_age);
    loop {
        let is_old = |log: &LogUsage| is_prunable(log) && log.last_time < old;
        let all_but_the_last = |log: &LogUsage| Cut {
            session: log.session,
            through: log.last_seq,
        };
        let logs = shared.store.usages(STEP, &is_old);
        let cuts: Vec<Cut> = logs.iter().map(all_but_the_last).collect();
        if cuts.is_empty() || !prune(shared, cuts).await {
            return;
        }
    }
}

async fn drop_from_large(shared: &Shared, limit: u64) -> Result<(), ReadError> {
    loop {
        let is_large = |log: &LogUsage| is_prunable(log) && log.bytes > limit;
        let logs = shared.store.usages(STEP, &is_large);
        let mut cuts = Vec::with_capacity(logs.len());
        for log in &logs {
            let session = log.session;
            let heads = move |store: &dyn Store| store.run_headers(Some(session), 0, STEP);
            let heads = shared.reads.blocking(heads).await?;
            let never = Timestamp::from_millis(i64::MIN);
            let through = end_of_excess(&heads, log.bytes - limit, never);
            cuts.extend(through.map(|through| Cut { session, through }));
        }
        if cuts.is_empty() || !prune(shared, cuts).await {
            return Ok(());
        }
    }
}

/// The size to which the largest logs must shrink, so that all logs together are within their limit.
fn target_log_bytes(shared: &Shared) -> Option<u64> {
    let limit = shared.limits.max_total_log_bytes;
    let over = shared.store.total_bytes().checked_sub(limit);
    let over = over.filter(|over| *over > 0)?;
    let sizes = RefCell::new(Vec::new());
    shared.store.usages(1, &|log| {
        let size = is_prunable(log).then_some(log.bytes);
        sizes.borrow_mut().extend(size);
        false
    });
    let mut sizes = sizes.into_inner();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0;
    for (at, size) in sizes.iter().enumerate() {
        sum += size;
        let next = sizes.get(at + 1).copied().unwrap_or_default();
        let count = at as u64 + 1;
        // The largest logs, cut to the size of the next one, free enough.
        if sum - next * count >= over {
            return Some((sum - over) / count);
        }
    }
    (!sizes.is_empty()).then_some(0)
}

/// Prunes logs. Returns false if nothing was deleted: further calls would delete nothing either.
pub(super) async fn prune(shared: &Shared, cuts: Vec<Cut>) -> bool {
    let sessions: Vec<SessionId> = cuts.iter().map(|cut| cut.session).collect();
    let prune = move |store: &dyn Store| store.prune(&cuts, STEP);
    let pruned = shared.queue.run_maintenance(prune).await;
    let Some(pruned) = pruned.filter(|pruned| pruned.runs > 0) else {
        return false;
    };
    for session in sessions {
        shared.published.read_cache().invalidate(session);
    }
    let Pruned { runs, bytes, .. } = pruned;
    tracing::info!(
        runs,
        bytes,
        "deleted the oldest events: the logs exceeded their limits"
    );
    true
}
