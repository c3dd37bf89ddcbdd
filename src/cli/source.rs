//! Where the configuration comes from: the file, and what command line and environment said at the start.

use super::Failure;
use crate::config::{self, Config, Environment, Flags};
use crate::process;

/// Reads the configuration, as often as it is wanted. The environment is that of the start: nothing changes it later,
/// so a secret that came by it stays what it was, and one that is to change comes from a file.
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
