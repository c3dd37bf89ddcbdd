//! The configuration that the flags and the environment select, and the keys of its data folder.

use super::lock::{self, DataLock};
use super::output::Failure;
use crate::app;
use crate::auth::{Keys, RELOAD_INTERVAL};
use crate::config::{self, Config, Environment, Flags};
use base::types::Ids;

/// The data folder and the address of a gateway that may run in another process. Reads no secrets.
pub(super) fn local_config(flags: &Flags) -> Result<Config, Failure> {
    Ok(config::load_local(flags, &Environment::from_process())?)
}

/// Reads the configuration of the gateway that this process runs, at the start and for every reload.
///
/// The environment of a process does not change, so a reload can change only secrets that come from a file.
#[derive(Clone)]
pub(super) struct ConfigSource {
    flags: Flags,
    environment: Environment,
}

impl ConfigSource {
    pub(super) fn new(flags: &Flags) -> Self {
        Self {
            flags: flags.clone(),
            environment: Environment::from_process(),
        }
    }

    pub(super) fn journal_stream(&self) -> Option<&str> {
        self.environment.journal_stream()
    }

    pub(super) fn load(&self) -> Result<Config, Failure> {
        let path = self.environment.search_path();
        let on_path = |program: &str| children::resolve(program.as_ref(), path).is_ok();
        Ok(config::load(&self.flags, &self.environment, &on_path)?)
    }
}

/// Opens the keys in a data folder, which is created for the first key. Returns the lock if no gateway runs; hold it while
/// you use the keys.
pub(super) fn open_or_create_keys(gateway: &Config) -> Result<(Keys, Option<DataLock>), Failure> {
    lock::create_layout(&gateway.data)?;
    open_layout(gateway)
}

/// The same for a data folder that a gateway or a command has created.
pub(super) fn open_keys(gateway: &Config) -> Result<(Keys, Option<DataLock>), Failure> {
    lock::check_log(&gateway.data)?;
    open_layout(gateway)
}

fn open_layout(gateway: &Config) -> Result<(Keys, Option<DataLock>), Failure> {
    let lock = lock::acquire_unless_running(&gateway.data)?;
    let ids = Ids::system();
    let store = app::open_store(&gateway.data, &gateway.limits, &ids)?;
    Ok((Keys::open(store, ids, &gateway.limits, None)?, lock))
}

pub(super) fn wait_for_reload() {
    std::thread::sleep(RELOAD_INTERVAL + RELOAD_INTERVAL / 4);
}
