//! Monitors disk space. Raises an alarm when the log cannot accept more events.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;
use crate::store::{Disk, Maintenance};
use base::shutdown::{Shutdown, lock_or_abort};

/// The interval between two checks of the disk.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskSpace {
    #[default]
    Available,
    /// The disk was full, or has no space for the reserve. Commits that end a turn or delete data still
    /// succeed.
    ReserveReleased,
    /// The last commit found no space and is retried.
    Exhausted,
}

impl DiskSpace {
    /// The state if commits find space. The reserve may be missing.
    const fn with_reserve(reserved: bool) -> Self {
        if reserved {
            Self::Available
        } else {
            Self::ReserveReleased
        }
    }
}

#[derive(Debug)]
pub(super) struct Alarms {
    store: Arc<dyn Maintenance>,
    limits: Arc<Limits>,
    disk_space: watch::Sender<DiskSpace>,
    low: AtomicBool,
    /// The free bytes and the size of the disk at the last check.
    free: AtomicU64,
    total: AtomicU64,
    /// Whether the reserve is allocated. Locked while that changes.
    reserved: Mutex<bool>,
}

impl Alarms {
    pub(super) fn new(store: Arc<dyn Maintenance>, limits: Arc<Limits>) -> Self {
        Self {
            store,
            limits,
            disk_space: watch::Sender::default(),
            low: AtomicBool::default(),
            free: AtomicU64::default(),
            total: AtomicU64::default(),
            reserved: Mutex::new(true),
        }
    }

    /// Records whether a commit found the disk full. Returns whether the disk was full before.
    pub(super) fn set_full(&self, full: bool) -> bool {
        if full {
            return self.set_disk_space(|_| DiskSpace::Exhausted) == DiskSpace::Exhausted;
        }
        // Fast path: most commits find the state unchanged.
        if *self.disk_space.borrow() != DiskSpace::Exhausted {
            return false;
        }
        let space = DiskSpace::with_reserve(*lock_or_abort(self.reserved.lock()));
        self.set_disk_space(|_| space) == DiskSpace::Exhausted
    }

    /// Changes the state and returns the previous state.
    fn set_disk_space(&self, change: impl FnOnce(DiskSpace) -> DiskSpace) -> DiskSpace {
        let mut before = DiskSpace::Available;
        self.disk_space.send_if_modified(|room| {
            before = *room;
            *room = change(before);
            *room != before
        });
        before
    }

    pub(super) fn disk_space(&self) -> watch::Receiver<DiskSpace> {
        self.disk_space.subscribe()
    }

    /// Releases the reserve. Returns false if there is none.
    pub(super) fn release_reserve(&self) -> bool {
        let mut reserved = lock_or_abort(self.reserved.lock());
        let released = self.store.release_reserve();
        if released {
            *reserved = false;
            self.set_disk_space(|_| DiskSpace::ReserveReleased);
        }
        released
    }

    pub(super) fn check_disk(&self) {
        let disk = match self.store.disk() {
            Ok(disk) => disk,
            Err(error) => return tracing::warn!(%error, "could not read the free disk space"),
        };
        self.free.store(disk.free, Ordering::Relaxed);
        self.total.store(disk.total, Ordering::Relaxed);
        let low = is_low(disk, &self.limits);
        if self.low.swap(low, Ordering::Relaxed) != low {
            let Disk { free, total, .. } = disk;
            tracing::warn!(
                low,
                free,
                total,
                "free disk space crossed the configured limit"
            );
        }
        self.keep_reserve(disk);
    }

    /// Allocates the reserve if it is missing and the disk has space for it.
    fn keep_reserve(&self, disk: Disk) {
        let bytes = self.limits.disk_reserve_bytes;
        let mut reserved = lock_or_abort(self.reserved.lock());
        let kept = self.store.keep_reserve(bytes, disk.free);
        let kept = kept.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not allocate the disk reserve");
            false
        });
        if std::mem::replace(&mut *reserved, kept) != kept {
            tracing::warn!(kept, bytes, "the disk reserve was allocated or released");
        }
        // A commit that is being retried clears `Exhausted` itself.
        self.set_disk_space(|before| match before {
            DiskSpace::Exhausted => before,
            _ => DiskSpace::with_reserve(kept),
        });
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(super) fn storage_full(&self) -> bool {
        *self.disk_space.borrow() != DiskSpace::Available || self.low.load(Ordering::Relaxed)
    }
}

/// Checks the disk until the log closes or the gateway drains. A draining gateway accepts no new work.
pub(super) async fn watch(alarms: Arc<Alarms>, shutdown: Shutdown, closed: CancellationToken) {
    loop {
        tokio::select! {
            () = closed.cancelled() => return,
            () = shutdown.drain_started() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
        let checked = Arc::clone(&alarms);
        // A system call on a slow disk blocks.
        let check = shutdown.spawn_blocking(move || checked.check_disk());
        if check.await.is_err() {
            return;
        }
    }
}

/// Whether the free space is below the configured limits.
fn is_low(disk: Disk, limits: &Limits) -> bool {
    disk.free < disk.min_free(limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;
    use base::types::Ids;

    #[test]
    fn larger_limit_applies() {
        let limits = Limits {
            min_free_disk_percent: 5,
            min_free_disk_bytes: 1000,
            ..Limits::default()
        };
        assert!(is_low(
            Disk {
                free: 999,
                total: 10_000
            },
            &limits
        ));
        assert!(!is_low(
            Disk {
                free: 1000,
                total: 10_000
            },
            &limits
        ));
        assert!(is_low(
            Disk {
                free: 4_999,
                total: 100_000
            },
            &limits
        ));
        assert!(!is_low(
            Disk {
                free: 5_000,
                total: 100_000
            },
            &limits
        ));
    }

    #[test]
    fn either_cause_raises_alarm() {
        let alarms = Alarms::new(Arc::new(MemoryStore::new(Ids::system())), Arc::default());
        assert!(!alarms.storage_full());
        assert!(!alarms.set_full(true));
        alarms.low.store(true, Ordering::Relaxed);
        assert!(alarms.set_full(false));
        assert!(alarms.storage_full());
        alarms.low.store(false, Ordering::Relaxed);
        assert!(!alarms.storage_full());
    }
}
