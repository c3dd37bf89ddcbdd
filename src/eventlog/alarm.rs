//! What keeps the log from taking more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::store::{Disk, EventStore};
use crate::types::Limits;

use super::Shared;

/// Between two looks at the disk.
const LOOK: Duration = Duration::from_secs(5);

/// A state of the log that its users have to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// The disk is full, or has less free room than it should. Reading goes on.
    StorageFull,
}

#[derive(Debug, Default)]
pub(super) struct Alarms {
    full: AtomicBool,
    low: AtomicBool,
}

impl Alarms {
    /// A commit found the disk full, or did not; gives what it was before.
    pub(super) fn set_full(&self, full: bool) -> bool {
        self.full.swap(full, Ordering::Relaxed)
    }

    /// Looks at the store's disk; false when it has none.
    pub(super) fn look(&self, store: &dyn EventStore, limits: &Limits) -> bool {
        let Some(disk) = store.disk() else { return false };
        match disk {
            Ok(disk) => {
                let low = is_low(disk, limits);
                if self.low.swap(low, Ordering::Relaxed) != low {
                    tracing::warn!(low, free = disk.free, total = disk.total, "free room on the disk");
                }
            }
            Err(error) => tracing::warn!(%error, "the disk cannot be looked at"),
        }
        true
    }

    pub(super) fn get(&self) -> Option<Alarm> {
        let raised = self.full.load(Ordering::Relaxed) || self.low.load(Ordering::Relaxed);
        raised.then_some(Alarm::StorageFull)
    }
}

/// Looks at the disk until the log closes or the gateway drains: then nothing new is taken anyway.
pub(super) async fn watch(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.closed.cancelled() => return,
            () = shared.shutdown.soft() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let looking = Arc::clone(&shared);
        // It is a system call on a disk that may be slow just now.
        let look = move || looking.alarms.look(&*looking.store, &looking.limits);
        if !shared.shutdown.spawn_blocking(look).await.unwrap_or(false) {
            return;
        }
    }
}

/// Whether a disk has less free room than the limits ask for.
fn is_low(disk: Disk, limits: &Limits) -> bool {
    let part = disk.total / 100 * limits.free_disk_percent;
    disk.free < part.max(limits.free_disk_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_limit_holds() {
        let limits = Limits { free_disk_percent: 5, free_disk_bytes: 1000, ..Limits::default() };
        assert!(is_low(Disk { free: 999, total: 10_000 }, &limits));
        assert!(!is_low(Disk { free: 1000, total: 10_000 }, &limits));
        assert!(is_low(Disk { free: 4_999, total: 100_000 }, &limits));
        assert!(!is_low(Disk { free: 5_000, total: 100_000 }, &limits));
    }

    #[test]
    fn either_cause_raises_it() {
        let alarms = Alarms::default();
        assert_eq!(alarms.get(), None);
        assert!(!alarms.set_full(true));
        alarms.low.store(true, Ordering::Relaxed);
        assert!(alarms.set_full(false));
        assert_eq!(alarms.get(), Some(Alarm::StorageFull));
        alarms.low.store(false, Ordering::Relaxed);
        assert_eq!(alarms.get(), None);
    }
}
