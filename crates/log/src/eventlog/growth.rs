//! Stored bytes that were written since the last pass of retention.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use base::types::Limits;

#[derive(Debug, Default)]
pub(super) struct Growth {
    bytes: AtomicU64,
    threshold_reached: Notify,
}

impl Growth {
    /// Adds committed bytes. Triggers an early pass when they exceed an eighth of a limit.
    pub(super) fn add(&self, bytes: u64, limits: &Limits) {
        const PART: u64 = 8;
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes >= limits.max_session_log_bytes.min(limits.max_total_log_bytes) / PART {
            self.bytes.store(0, Ordering::Relaxed);
            self.threshold_reached.notify_one();
        }
    }

    pub(super) async fn wait_for_threshold(&self) {
        self.threshold_reached.notified().await;
    }
}
