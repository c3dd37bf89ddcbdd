//! The options of all subcommands, and the configuration that they select.

use std::path::PathBuf;

use clap::Args;

use super::failure::Failure;
use crate::config::{self, Config, Environment, Flags, LocalConfig};
use crate::process;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The configuration file (TOML); by default, no file is read
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder for the log, keys, workspaces and homes of agents [default: ~/.local/share/acp-gateway]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1:8080 or the next free port]
    #[arg(long, global = true, value_name = "ADDR")]
    listen: Option<String>,
    /// A folder in which sessions may work, in addition to the workspaces in the data folder; repeatable
    #[arg(long = "workspace", global = true, value_name = "DIR")]
    workspaces: Vec<PathBuf>,
    /// Listen on a non-loopback address without TLS; anyone who can read the traffic can use the keys
    #[arg(long, global = true)]
    insecure_http: bool,
}

impl Options {
    /// The sources of the configuration for the gateway that this process runs.
    pub(super) fn config_source(&self) -> ConfigSource {
        ConfigSource { flags: self.flags(), environment: Environment::from_process() }
    }

    /// The data folder and the address of a gateway that may run in another process. Reads no secrets.
    pub(super) fn local_config(&self) -> Result<LocalConfig, Failure> {
        Ok(config::load_local(&self.flags(), &Environment::from_process())?)
    }

    fn flags(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            data: self.data.clone(),
            listen: self.listen.clone(),
            workspaces: self.workspaces.clone(),
            insecure_http: self.insecure_http,
        }
    }
}

/// Reads the configuration, at the start and for every reload.
///
/// The environment of a process does not change, so a reload can change only secrets that come from a file.
#[derive(Debug, Clone)]
pub(super) struct ConfigSource {
    flags: Flags,
    environment: Environment,
}

impl ConfigSource {
    pub(super) fn load(&self) -> Result<Config, Failure> {
        let path = self.environment.search_path();
        let on_path = |program: &str| process::resolve(program.as_ref(), path).is_ok();
        Ok(config::load(&self.flags, &self.environment, &on_path)?)
    }
}
