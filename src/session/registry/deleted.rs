//! Sessions that were deleted while the disk accepted no commits.

use super::SessionRegistry;
use crate::eventlog::SessionLog;
use crate::shutdown::lock_or_abort;

impl SessionRegistry {
    /// Hides the session from all clients now, and erases its log when the disk has space for the commit.
    pub(in crate::session) fn remove_after_commit(&self, log: SessionLog, seq: u64) {
        let (id, registry) = (log.session(), self.clone());
        lock_or_abort(self.inner.deleted.lock()).insert(id);
        let shutdown = self.context().shutdown.clone();
        self.context().shutdown.spawn_isolated(async move {
            let durable = tokio::select! {
                durable = log.wait(seq) => durable.is_ok(),
                () = shutdown.drain_started() => false,
            };
            if durable {
                registry.remove(id);
                lock_or_abort(registry.inner.deleted.lock()).remove(&id);
            }
        });
    }
}
