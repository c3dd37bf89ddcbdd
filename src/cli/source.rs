//! The sources of the configuration: the file, the command line and the environment.

use super::Failure;
use crate::config::{self, Config, Environment, Flags};
use crate::process;

/// Reads the configuration, at the start and for every reload.
///
/// The environment of a process does not change, so a reload can change only secrets that come from a file.
#[derive(Debug, Clone)]
pub(super) struct ConfigSource {
    pub(super) flags: Flags,
    pub(super) environment: Environment,
}

impl ConfigSource {
    pub(super) fn load(&self) -> Result<Config, Failure> {
        let path = self.environment.search_path();
        let on_path = |program: &str| process::resolve(program.as_ref(), path).is_ok();
        Ok(config::load(&self.flags, &self.environment, &on_path)?)
    }
}
