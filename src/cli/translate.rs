//! `translate`: an agent in one protocol for a client in another, on stdin and stdout.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::output::{Failure, run_on_pipes};
use crate::config::Environment;
use base::telemetry;
use base::types::AgentDialect;
use programs::stdio::MAX_LINE_BYTES;
use programs::translate::{self, ChildCommand, ClientDialect, Options};

#[derive(Debug, Args)]
pub(super) struct TranslateArgs {
    /// The protocol of the agent
    #[arg(long, value_name = "DIALECT", value_parser = agent_dialects())]
    from: AgentDialect,
    /// The protocol of stdin and stdout
    #[arg(long, value_name = "DIALECT", default_value = "acp", value_parser = client_dialects())]
    to: ClientDialect,
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

/// Parses the protocol of an agent.
pub(super) fn agent_dialects() -> impl TypedValueParser<Value = AgentDialect> {
    PossibleValuesParser::new(["acp", "early-acp", "stream-json"]).try_map(|name| name.parse())
}

/// Parses the protocol of a client.
pub(super) fn client_dialects() -> impl TypedValueParser<Value = ClientDialect> {
    PossibleValuesParser::new(["acp", "early-acp"]).try_map(|name| name.parse())
}

pub(super) fn run(args: &TranslateArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::from_process();
    // The variables for logs belong to the agent, which shares stderr.
    telemetry::init(Some("warn"), environment.permits_colors())?;
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
        from: args.from,
        to: args.to,
        command,
        resume: args.resume.clone(),
        max_line_bytes: args.max_line_bytes,
        record: args.record.clone(),
    };
    let ended = run_on_pipes(|input, output, stop| translate::run(options, input, output, stop))?;
    Ok(ended.map_or(ExitCode::SUCCESS, |exit| exit.repeat()))
}
