//! `check`: prints the effective configuration.

use super::{Failure, Options, output};
use crate::config;

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let config = options.config_source().load()?;
    Ok(output::write_stdout(config::show(&config).as_bytes())?)
}
