//! Access to the store that keys and tickets share.

use std::error::Error;

use bytes::Bytes;

use crate::shutdown::Shutdown;
use crate::store::{ReadError, RecordStore, Table};

const PAGE_SIZE: usize = 500;

/// Reads all records of a table.
pub(super) fn scan_all(
    store: &dyn RecordStore,
    table: Table,
) -> Result<Vec<(Vec<u8>, Bytes)>, ReadError> {
    let mut records: Vec<(Vec<u8>, Bytes)> = Vec::new();
    loop {
        let after = records.last().map(|(key, _)| key.as_slice());
        let page = store.scan(table, b"", after, PAGE_SIZE)?;
        let is_last = page.len() < PAGE_SIZE;
        records.extend(page);
        if is_last {
            return Ok(records);
        }
    }
}

/// Runs blocking work on the store. Logs `failure` if the work fails or panics.
pub(super) async fn run_blocking<E: Error + Send + 'static>(
    shutdown: &Shutdown,
    failure: &'static str,
    work: impl FnOnce() -> Result<(), E> + Send + 'static,
) {
    match shutdown.spawn_blocking(work).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(error = &error as &dyn Error, "{failure}"),
        Err(error) => tracing::error!(%error, "{failure}"),
    }
}
