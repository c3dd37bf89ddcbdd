//! `translate`: an agent in one protocol for a client in another, on stdin and stdout.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::failure::Failure;
use super::stdio::{pipes, stop_signal};
use crate::config::Environment;
use crate::translate::{self, ChildCommand, Options};
use crate::types::AgentDialect;
use crate::{process, telemetry};

#[derive(Debug, Args)]
pub(super) struct TranslateArgs {
    /// The protocol of the agent, or of the recording
    #[arg(long, value_name = "DIALECT")]
    from: TranslatedDialect,
    /// The protocol of stdin and stdout, or of the result
    #[arg(long, value_name = "DIALECT")]
    to: TranslatedDialect,
    /// Write the lines between this program and the agent to a new file; their content is not masked
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Convert a recording instead of running an agent, and print the result
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "command"])]
    replay: Option<PathBuf>,
    /// The command of the agent, after --
    #[arg(
        last = true,
        required_unless_present = "replay",
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// The protocols on each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TranslatedDialect {
    Acp,
    EarlyAcp,
    StreamJson,
}

impl From<TranslatedDialect> for AgentDialect {
    fn from(dialect: TranslatedDialect) -> Self {
        match dialect {
            TranslatedDialect::Acp => Self::Acp,
            TranslatedDialect::EarlyAcp => Self::EarlyAcp,
            TranslatedDialect::StreamJson => Self::StreamJson,
        }
    }
}

impl TranslatedDialect {
    /// The arguments of this program that translate a command in this protocol to ACP. The command follows.
    pub(super) fn to_acp(self) -> [OsString; 6] {
        let name = self
            .to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default();
        ["translate", "--from", &name, "--to", "acp", "--"].map(OsString::from)
    }
}

pub(super) fn run(args: &TranslateArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::from_process();
    telemetry::init(environment.log_filter())?;
    let (from, to) = (args.from.into(), args.to.into());
    if let Some(recording) = &args.replay {
        let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
        translate::replay(recording, (from, to), &mut stdout)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (program, arguments) = args.command.split_first().expect("clap requires a command");
    let command = ChildCommand {
        program: process::resolve(program, environment.search_path())?,
        args: arguments.to_vec(),
        env: environment.without_gateway_variables(),
        cwd: std::env::current_dir()?,
    };
    let options = Options {
        from,
        to,
        command,
        record: args.record.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended: Result<i32, Failure> = runtime.block_on(async {
        let stop = stop_signal()?;
        Ok(translate::run(options, pipes()?, stop).await?)
    });
    // A thread can be blocked in a read of stdin.
    runtime.shutdown_background();
    Ok(u8::try_from(ended?).map_or(ExitCode::FAILURE, ExitCode::from))
}
