//! Sessions that were deleted while the disk accepted no commits.

use super::SessionRegistry;
use crate::eventlog::SessionLog;
use crate::shutdown::sound;

impl SessionRegistry {
    /// Hides the session from all clients now, and erases its log when the disk has space for the commit.
    pub(in crate::session) fn forget_at(&self, log: SessionLog, seq: u64) {
        let (id, registry) = (log.session(), self.clone());
        sound(self.inner.deleted.lock()).insert(id);
        let shutdown = self.context().shutdown.clone();
        self.context().shutdown.spawn_confined(async move {
            let durable = tokio::select! {
                durable = log.wait(seq) => durable.is_ok(),
                () = shutdown.soft() => false,
            };
            if durable {
                registry.forget(id);
                sound(registry.inner.deleted.lock()).remove(&id);
            }
        });
    }
}
