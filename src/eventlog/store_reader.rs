//! Blocking reads of the store. A semaphore limits the number of concurrent reads.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::shutdown::{Shutdown, lock_or_abort};
use crate::store::{EventStore, Maintenance, ReadError};
use crate::types::SessionId;

/// The ports that the log uses.
pub(super) trait Store: EventStore + Maintenance {}

impl<S: EventStore + Maintenance> Store for S {}

#[derive(Debug)]
pub(super) struct StoreReader {
    store: Arc<dyn Store>,
    shutdown: Shutdown,
    permits: Arc<Semaphore>,
    /// Last seqs of the damaged ranges that were logged, so that each range is logged once.
    reported_damage: Mutex<HashSet<(SessionId, u64)>>,
}

impl StoreReader {
    pub(super) fn new(store: Arc<dyn Store>, shutdown: Shutdown, max_reads: usize) -> Self {
        let permits = Arc::new(Semaphore::new(max_reads.max(1)));
        Self {
            store,
            shutdown,
            permits,
            reported_damage: Mutex::default(),
        }
    }

    /// Waits for a permit and starts a blocking read.
    pub(super) async fn start<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, ReadError> + Send + 'static,
    ) -> JoinHandle<Result<T, ReadError>> {
        let permits = Arc::clone(&self.permits);
        let permit = permits
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let store = Arc::clone(&self.store);
        self.shutdown.spawn_blocking(move || {
            let result = read(&*store);
            drop(permit);
            result
        })
    }

    /// Runs a blocking read to its end.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        self.start(read)
            .await
            .await
            .map_err(|lost| ReadError::Failed(lost.into()))?
    }

    /// Logs a damaged range of events, once for each range.
    pub(super) fn report_damage(&self, session: SessionId, first_seq: u64, last_seq: u64) {
        /// Limits the memory for logged ranges. Further damage is not logged.
        const MAX_REPORTED: usize = 4096;
        let mut known = lock_or_abort(self.reported_damage.lock());
        if known.len() >= MAX_REPORTED || !known.insert((session, last_seq)) {
            return;
        }
        drop(known);
        tracing::error!(%session, first_seq, last_seq, "events are damaged on disk: readers skip them with a reset");
    }
}
