//! Blocking reads of the store. A semaphore limits the number of concurrent reads.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::shutdown::{Shutdown, lock_or_abort};
use crate::store::{EventStore, LogUsage, ReadError};
use crate::types::SessionId;

#[derive(Debug)]
pub(super) struct StoreReader {
    store: Arc<dyn EventStore>,
    shutdown: Shutdown,
    permits: Arc<Semaphore>,
    /// Last seqs of the damaged ranges that were logged, so that each range is logged once.
    reported_damage: Mutex<HashSet<(SessionId, u64)>>,
}

impl StoreReader {
    pub(super) fn new(store: Arc<dyn EventStore>, shutdown: Shutdown, max_reads: usize) -> Self {
        let permits = Arc::new(Semaphore::new(max_reads.max(1)));
        Self { store, shutdown, permits, reported_damage: Mutex::default() }
    }

    /// The store, for commits, for answers from memory and for the closures of reads.
    pub(super) fn port(&self) -> &Arc<dyn EventStore> {
        &self.store
    }

    /// Bounds and size of a session's log, from memory.
    pub(super) fn usage(&self, session: SessionId) -> Option<LogUsage> {
        self.store.usage(session)
    }

    /// Waits for a permit and starts a blocking read.
    pub(super) async fn start<T, F>(&self, read: F) -> JoinHandle<Result<T, ReadError>>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, ReadError> + Send + 'static,
    {
        let permits = Arc::clone(&self.permits);
        let permit = permits.acquire_owned().await.expect("the semaphore is never closed");
        self.shutdown.spawn_blocking(move || {
            let result = read();
            drop(permit);
            result
        })
    }

    /// Runs a blocking read to its end.
    pub(super) async fn blocking<T, F>(&self, read: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, ReadError> + Send + 'static,
    {
        self.start(read).await.await.map_err(|lost| ReadError::Failed(lost.into()))?
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
