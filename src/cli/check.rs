//! `check`: prints the effective configuration.

use super::failure::Failure;
use super::options::Options;
use super::output;
use crate::config::{self, Config, Launch, Shown};
use crate::process;

pub(super) fn run(options: &Options, all: bool, sample: bool) -> Result<(), Failure> {
    if sample {
        return Ok(output::write_stdout(config::sample().as_bytes())?);
    }
    let mut config = options.config_source().load()?;
    let unresolved = unresolved_commands(&config);
    config.warnings.extend(unresolved);
    let shown = if all { Shown::All } else { Shown::Set };
    Ok(output::write_stdout(config::show(&config, shown).as_bytes())?)
}

/// Returns a warning for each agent whose command the gateway could not start. The other agents still work, so
/// it is no error.
fn unresolved_commands(config: &Config) -> Vec<String> {
    let path = process::trusted_path(&config.child_environment.path);
    let warning = |(name, agent): (_, &config::Agent)| match &agent.launch {
        Launch::Command { command, .. } => {
            let error = process::resolve(command.as_ref(), &path).err()?;
            Some(format!("agents.{name}.command: {command}: {error}"))
        }
        Launch::Demo => None,
    };
    config.agents.iter().filter_map(warning).collect()
}
