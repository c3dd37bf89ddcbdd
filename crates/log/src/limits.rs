//! The limits of the log.

use std::time::Duration;

/// Calls a macro with the table of limits: see `base::declare_limits`.
#[macro_export]
macro_rules! log_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            log: Limits {
                ["retention"] {
                    /// The maximum stored size of a session's log. The gateway deletes the oldest events above it.
                    max_session_log_bytes as max_session_bytes: u64 = 512 << 20, size;
                    /// The maximum stored size of all logs. The gateway deletes the oldest events of the largest logs
                    /// above it.
                    max_total_log_bytes as max_total_bytes: u64 = 10 << 30, size;
                    /// The age of a session's log after its last event. Older logs are deleted.
                    max_log_age as max_age: Duration = Duration::from_hours(30 * 24), time;
                    /// The age of an event of the audit log. The gateway deletes older events, except the last ones.
                    audit_max_age: Duration = Duration::from_hours(365 * 24), time;
                    /// Free disk space. Below it, prompts, new sessions and /readyz fail with 507.
                    min_free_disk_bytes: u64 = 1 << 30, size_or_zero;
                    /// The same in percent of the disk. The larger value applies.
                    min_free_disk_percent: u64 = 5, percent;
                    /// Disk space that the gateway reserves, to commit the ends of turns on a full disk.
                    disk_reserve_bytes: u64 = 64 << 20, size_or_zero;
                }
                ["cache"] {
                    /// The maximum size of recent events in memory, for all sessions. Readers of other events read from
                    /// the disk.
                    max_tail_bytes: usize = 64 << 20, size;
                    /// The cache for readers of older events.
                    max_read_cache_bytes: usize = 8 << 20, size;
                }
                ["testing"] {
                    /// The size in bytes of a run, and of a transaction. A larger event forms its own run.
                    max_run_bytes: usize = 32 << 10, size;
                    max_transaction_bytes: usize = 4 << 20, size;
                    /// The number of bytes of one session's committed runs in memory. Beyond it, readers read from the
                    /// store.
                    max_session_tail_bytes: usize = 2 << 20, size;
                    /// The number of concurrent reads of the store, and the size in bytes of the page that one read
                    /// returns.
                    max_store_readers: usize = 4, count;
                    store_page_bytes: usize = 32 << 10, size;
                    /// The number of bytes that a sequential reader prefetches from the store, at most a quarter of
                    /// `max_read_cache_bytes`.
                    read_ahead_bytes: usize = 256 << 10, size;
                    /// The number of bytes, on disk and decoded, up to which a log that a crashed gateway left open is
                    /// checked before the start. A larger log is checked in the background while the gateway serves.
                    max_start_check_bytes: u64 = 256 << 20, size;
                    /// The maximum stored size of the audit log. The gateway deletes its oldest events above it.
                    audit_max_bytes: u64 = 1 << 30, size;
                    /// The time for which equal events of the audit log, such as rejected requests of one address, are
                    /// counted. The first one is an event at once, and the others are one event at the end.
                    audit_window: Duration = Duration::from_mins(1), time;
                }
            }
        }
    };
}
log_limits!(base::declare_limits);

/// The number of readers of one thread that are notified before the woken readers run. Their data is then
/// still in the processor's cache, and the first reader does not wait for all others.
pub(crate) const NOTIFY_BATCH: usize = 64;
