//! The configuration that the flags and the environment select.

use super::failure::Failure;
use crate::config::{self, Config, Environment, Flags};
use crate::process;

/// The data folder and the address of a gateway that may run in another process. Reads no secrets.
pub(super) fn local_config(flags: &Flags) -> Result<Config, Failure> {
    Ok(config::load_local(flags, &Environment::from_process())?)
}

/// Reads the configuration of the gateway that this process runs, at the start and for every reload.
///
/// The environment of a process does not change, so a reload can change only secrets that come from a file.
#[derive(Debug, Clone)]
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
        let on_path = |program: &str| process::resolve(program.as_ref(), path).is_ok();
        Ok(config::load(&self.flags, &self.environment, &on_path)?)
    }
}
