//! `translate`: an agent in one protocol for a client in another, on stdin and stdout.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::output::{Failure, current_thread_runtime, pipes, stop_signal};
use crate::config::Environment;
use base::telemetry;
use base::types::AgentDialect;
use programs::translate::{self, ChildCommand, ClientDialect, MAX_LINE_BYTES, Options};

#[derive(Debug, Args)]
pub(super) struct TranslateArgs {
    /// The protocol of the agent
    #[arg(long, value_name = "DIALECT")]
    from: TranslatedDialect,
    /// The protocol of stdin and stdout
    #[arg(long, value_name = "DIALECT", default_value = "acp")]
    to: ClientProtocol,
    /// The session that the client will restore, for an agent whose process starts with its session
    #[arg(long, value_name = "SESSION")]
    resume: Option<String>,
    /// The maximum size of a line of the agent
    #[arg(long, value_name = "BYTES", default_value_t = MAX_LINE_BYTES)]
    max_line_bytes: usize,
    /// Pass all variables to the agent, also `ACP_GATEWAY_*`
    #[arg(long)]
    pass_environment: bool,
    /// Write the lines between this program and the agent to a new file; their content is not masked
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The command of the agent, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The protocols of agents.
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

/// The protocols of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ClientProtocol {
    Acp,
    EarlyAcp,
}

impl From<ClientProtocol> for ClientDialect {
    fn from(protocol: ClientProtocol) -> Self {
        match protocol {
            ClientProtocol::Acp => Self::Acp,
            ClientProtocol::EarlyAcp => Self::EarlyAcp,
        }
    }
}

pub(super) fn run(args: &TranslateArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::from_process();
    // The variables for logs belong to the agent, which shares stderr.
    telemetry::init(Some("warn"))?;
    let (program, arguments) = args.command.split_first().expect("clap requires a command");
    let command = ChildCommand {
        program: children::resolve(program, environment.search_path())?,
        args: arguments.to_vec(),
        env: if args.pass_environment {
            environment.variables(|_| true)
        } else {
            environment.without_gateway_variables()
        },
        cwd: std::env::current_dir()?,
    };
    let options = Options {
        from: args.from.into(),
        to: args.to.into(),
        command,
        resume: args.resume.clone(),
        max_line_bytes: args.max_line_bytes,
        record: args.record.clone(),
    };
    let runtime = current_thread_runtime()?;
    let ended: Result<_, Failure> = runtime.block_on(async {
        let stop = stop_signal()?;
        let (input, output) = pipes()?;
        Ok(translate::run(options, input, output, stop).await?)
    });
    // A thread can be blocked in a read of stdin.
    runtime.shutdown_background();
    Ok(ended?.map_or(ExitCode::SUCCESS, |exit| exit.repeat()))
}
