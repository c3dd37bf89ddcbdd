//! Blocking reads of the store. A semaphore limits the number of concurrent reads.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::store::{BoxError, EventStore, Maintenance, ReadError};
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::SessionId;

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
        Self {
            store,
            shutdown,
            permits: Arc::new(Semaphore::new(max_reads.max(1))),
            reported_damage: Mutex::default(),
        }
    }

    /// Waits for a permit and starts a blocking read.
    pub(super) async fn start<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, ReadError> + Send + 'static,
    ) -> JoinHandle<Result<T, ReadError>> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let store = Arc::clone(&self.store);
        self.shutdown.spawn_blocking(move || {
            let _permit = permit;
            read(&*store)
        })
    }

    /// Runs a blocking read to its end.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        joined(self.start(read).await.await)
    }
    /// Logs damage that a read found and returns where the read continues.
    pub(super) fn skip_damage<T>(
        &self,
        read: Result<T, ReadError>,
    ) -> Result<Result<T, Damage>, ReadError> {
        match read {
            Err(ReadError::Corrupt {
                session,
                first_seq,
                last_seq,
                after,
            }) => {
                self.report_damage(session, first_seq, last_seq);
                Ok(Err(Damage {
                    session,
                    last_seq,
                    after,
                }))
            }
            read => read.map(Ok),
        }
    }

    /// Logs a damaged range of events, once for each range.
    pub(super) fn report_damage(&self, session: SessionId, first_seq: u64, last_seq: u64) {
        /// Limits the memory for logged ranges. Further damage is not logged.
        const MAX_REPORTED: usize = 4096;
        let mut known = lock_or_abort(self.reported_damage.lock());
        if known.len() >= MAX_REPORTED || !known.insert((session, last_seq)) {
            return;
        }
        tracing::error!(%session, first_seq, last_seq, "events are damaged on disk: readers skip them with a reset");
    }
}
/// The result of a read, also if its task was lost.
pub(super) fn joined<T, E: Into<BoxError>>(
    read: Result<Result<T, ReadError>, E>,
) -> Result<T, ReadError> {
    read.unwrap_or_else(|lost| Err(ReadError::Failed(lost.into())))
}

/// A damaged range of events that a read met. It continues at `after`.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) session: SessionId,
    pub(super) last_seq: u64,
    pub(super) after: u64,
}
