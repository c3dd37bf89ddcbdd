//! The keys of a data folder, for commands, also while a gateway runs.

use super::failure::Failure;
use super::lock::{self, DataLock};
use crate::app;
use crate::auth::{Keys, RELOAD_INTERVAL};
use crate::config::Config;
use crate::types::Ids;

/// Opens the keys in a data folder, which is created for the first key. Returns the lock if no gateway runs; hold it while
/// you use the keys.
pub(super) fn open_or_create(gateway: &Config) -> Result<(Keys, Option<DataLock>), Failure> {
    lock::create_layout(&gateway.data)?;
    open_layout(gateway)
}

/// The same for a data folder that a gateway or a command has created.
pub(super) fn open(gateway: &Config) -> Result<(Keys, Option<DataLock>), Failure> {
    lock::check_log(&gateway.data)?;
    open_layout(gateway)
}

fn open_layout(gateway: &Config) -> Result<(Keys, Option<DataLock>), Failure> {
    let lock = lock::acquire_unless_running(&gateway.data)?;
    let ids = Ids::system();
    let store = app::open_store(&gateway.data, &gateway.limits, &ids)?;
    Ok((Keys::open(store, ids, &gateway.limits, None)?, lock))
}

/// A gateway accepts a new key after it has reloaded the keys.
pub(super) fn wait_for_reload() {
    std::thread::sleep(RELOAD_INTERVAL + RELOAD_INTERVAL / 4);
}
