//! The configuration that the flags and the environment select, and the keys of its data folder.

use std::ffi::OsStr;

use super::lock::{self, DataLock};
use super::output::Failure;
use crate::app;
use crate::auth::{Keys, Roles};
use crate::config::{self, Config, Environment, Flags};
use base::types::{Ids, PrincipalLimits};

/// The data folder and the address of a gateway that may run in another process. Reads no secrets.
pub(super) fn local_config(flags: &Flags) -> Result<Config, Failure> {
    Ok(config::load_local(flags, &Environment::from_process())?)
}

/// The same for a process that an editor starts.
pub(super) fn local_config_of_editor(flags: &Flags) -> Result<Config, Failure> {
    let environment = Environment::from_process().without_current_folder();
    Ok(config::load_local(flags, &environment)?)
}

/// Opens the data folder of a gateway that has run, for reads of its log. A running gateway continues. Without one, none
/// starts while the lock is held.
pub(super) fn open_beside_gateway(flags: &Flags) -> Result<(Config, Option<DataLock>), Failure> {
    let gateway = local_config(flags)?;
    lock::check_log(&gateway.data)?;
    let lock = lock::acquire_unless_running(&gateway.data)?;
    Ok((gateway, lock))
}

/// Reads the configuration of the gateway that this process runs, at the start and for every reload.
///
/// The environment of a process does not change, so a reload can change only secrets that come from a file.
#[derive(Clone)]
pub(super) struct ConfigSource {
    pub(super) flags: Flags,
    pub(super) environment: Environment,
}

impl ConfigSource {
    pub(super) fn new(flags: &Flags, environment: Environment) -> Self {
        Self {
            flags: flags.clone(),
            environment,
        }
    }

    pub(super) fn journal_stream(&self) -> Option<&str> {
        self.environment.journal_stream()
    }

    pub(super) fn notify_socket(&self) -> Option<&OsStr> {
        self.environment.notify_socket()
    }

    pub(super) fn load(&self) -> Result<Config, Failure> {
        let path = self.environment.search_path();
        let on_path = |program: &str| children::resolve(program.as_ref(), path).is_ok();
        let mut config = config::load(&self.flags, &self.environment, &on_path)?;
        if config.isolation.run_as.is_none() && !config.isolation.allow_root {
            config.isolation.run_as = children::default_users();
        }
        Ok(config)
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
    let ids = Ids::system_with(gateway.limits.clock.clone());
    let store = app::open_store(&gateway.data, &gateway.limits.log, &ids)?;
    let principals = PrincipalLimits::new(&gateway.limits.per_key);
    let keys = Keys::open(store, ids, &gateway.limits.auth, principals, None)?;
    keys.set_roles(Roles::with(&gateway.roles));
    Ok((keys, lock))
}

pub(super) fn wait_for_reload(config: &Config) {
    let interval = config.limits.auth.key_reload_interval;
    std::thread::sleep(interval + interval / 4);
}
