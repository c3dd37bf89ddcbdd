//! The command line: one subcommand, one exit code.
//!
//! It owns what a person types and reads. It must not know how anything is done: each subcommand calls the
//! module that does. 0 is success, 1 a failure that was told on stderr, 2 a command line that cannot be read.

mod backup;
mod check;
mod healthcheck;
mod keys;
mod lock;
mod output;
mod serve;
mod signals;
mod source;
mod startup;

use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use source::Source;

use crate::config::{Beside, Environment, Flags};
use crate::{config, demo_agent, http, process};

/// Runs ACP agents and lets web apps use them over HTTP.
#[derive(Debug, Parser)]
#[command(name = "acp-gateway", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Args)]
struct Options {
    /// A TOML file; without it nothing is read
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where log, keys, workspaces and agents' homes are kept [default: ~/.local/share/acp-gateway]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1:8080 or the next free port]
    #[arg(long, global = true, value_name = "ADDR")]
    listen: Option<String>,
    /// A folder in which sessions may work, besides the data folder's own; repeatable
    #[arg(long = "workspace", global = true, value_name = "DIR")]
    workspaces: Vec<PathBuf>,
    /// Listen beyond this machine without TLS: whoever can listen on the way can use the keys
    #[arg(long, global = true)]
    insecure_http: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway (the default)
    Serve,
    /// Read the configuration and print what holds, with secrets hidden
    Check,
    /// Make, change, list and revoke keys, also while the gateway runs
    #[command(subcommand)]
    Key(keys::KeyCommand),
    /// Copy the log to a new file, also while the gateway runs
    Backup {
        /// The file; - writes to stdout
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Put a backup in the place of the log; the log that is there stays beside it
    Restore {
        /// The file; - reads from stdin
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Be the built-in ACP agent, on stdin and stdout
    DemoAgent {
        #[command(subcommand)]
        command: Option<DemoCommand>,
    },
    /// Ask the gateway that this configuration describes whether it is ready
    Healthcheck,
    /// Print the OpenAPI document of the REST contract
    Openapi,
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Be the process that watches over an agent
    #[command(hide = true, disable_help_flag = true)]
    Keeper {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum DemoCommand {
    /// Sign in to the demo agent at this terminal, where it was told to want that
    SignIn,
}

type Failure = Box<dyn Error + Send + Sync>;

/// Reads the arguments of this process and does what they say.
pub fn main() -> ExitCode {
    let line = CommandLine::parse();
    let command = line.command.unwrap_or(Command::Serve);
    // These two become what an agent is, and have nothing to hide from one. All others may have the gateway's own
    // environment, with secrets in it, beside agents of the same user: nobody may read it out of them.
    if !matches!(command, Command::DemoAgent { .. } | Command::Keeper { .. })
        && let Err(error) = process::undumpable()
    {
        complain(&error);
        return ExitCode::FAILURE;
    }
    let done = match command {
        Command::Serve => serve::run(&line.options),
        Command::Check => check::run(&line.options),
        Command::Key(command) => keys::run(&command, &line.options),
        Command::Backup { file } => backup::backup(&file, &line.options),
        Command::Restore { file } => backup::restore(&file, &line.options),
        Command::Healthcheck => healthcheck::run(&line.options),
        Command::Openapi => openapi(),
        Command::Completions { shell } => completions(shell),
        Command::DemoAgent { command: None } => return demo_agent::main(),
        Command::DemoAgent { command: Some(DemoCommand::SignIn) } => return demo_agent::sign_in(),
        Command::Keeper { args } => return process::keeper::main(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&*failure);
            ExitCode::FAILURE
        }
    }
}

/// Says on stderr what went wrong, with its causes.
fn complain(failure: &dyn Error) {
    // With stderr gone there is nobody left to tell.
    drop(writeln!(std::io::stderr().lock(), "acp-gateway: {}", told(failure)));
}

/// An error and what caused it, on one line.
fn told(failure: &dyn Error) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        // Some errors show their source themselves.
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

fn openapi() -> Result<(), Failure> {
    Ok(output::line(http::document_json().trim_end())?)
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "acp-gateway", &mut script);
    Ok(output::write(&script)?)
}

impl Options {
    /// Where the configuration of a gateway comes from that this process is to be.
    fn source(&self) -> Source {
        Source { flags: self.flags(), environment: Environment::of_this_process() }
    }

    /// Where a gateway is that may run beside this process.
    fn beside(&self) -> Result<Beside, Failure> {
        Ok(config::beside(&self.flags(), &Environment::of_this_process())?)
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
