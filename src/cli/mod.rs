//! The command line: arguments, output and exit codes.
//!
//! Each subcommand calls the module that does its work; this module must not contain that work. Begin with
//! `serve`.
//!
//! `startup` prints the output of `serve`, and decides whether that output can have a key. `link` prints a link later.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | a failure, with a message on stderr |
//! | 2 | an invalid command line |

mod agent;
mod attach;
mod audit;
mod backup;
mod check;
mod connect;
mod keys;
mod link;
mod lock;
mod output;
mod progress;
mod serve;
mod source;
mod startup;
mod transfer;
mod translate;
mod users;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

use output::{Failure, print_error};

use crate::config::Flags;
use crate::surface;
use programs::demo_agent;

/// Runs ACP agents and lets web apps use them over HTTP.
#[derive(Debug, Parser)]
#[command(name = "acp-gateway", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway (the default command)
    Serve(serve::ServeArgs),
    /// Check the configuration, print the values that are set, with secrets hidden, and run the command of each agent with
    /// --version in its isolation
    Check {
        /// Print the defaults too
        #[arg(long)]
        all: bool,
        /// Print a sample file with every key instead
        #[arg(long, conflicts_with_all = ["all", "json"])]
        sample: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Create, change, list and revoke keys, also while the gateway runs
    Key {
        #[command(subcommand)]
        command: keys::KeyCommand,
        /// Print one JSON document
        #[arg(long, global = true, display_order = 100)]
        json: bool,
    },
    /// List users, change their roles and deactivate them, also while the gateway runs
    User {
        #[command(subcommand)]
        command: users::UserCommand,
        /// Print one JSON document
        #[arg(long, global = true, display_order = 100)]
        json: bool,
    },
    /// Install agents by their id in an ACP registry
    Agent {
        #[command(subcommand)]
        command: agent::AgentCommand,
        /// Print one JSON document
        #[arg(long, global = true, display_order = 100)]
        json: bool,
    },
    /// Export or verify the audit log, also while the gateway runs
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Print a link with a new key, for the owner of the data folder, also while the gateway runs
    Link,
    /// Run an ACP agent on stdin and stdout that uses a gateway, for editors
    Attach(attach::AttachArgs),
    /// Offer an agent of this machine to a gateway as a member of its fleet
    Connect(connect::ConnectArgs),
    /// Run an agent in one protocol for a client in another on stdin and stdout
    Translate(translate::TranslateArgs),
    /// Copy the log to a new file, also while the gateway runs
    Backup {
        /// The new file, or - for stdout
        file: PathBuf,
    },
    /// Replace the log with a backup; the previous log is kept under another name
    Restore {
        /// The backup file, or - for stdin
        file: PathBuf,
    },
    /// Write one session to a new file, for its import at another gateway, also while the gateway runs
    Export(transfer::ExportArgs),
    /// Import a session from the file of an export into the running gateway, with a new id
    Import(transfer::ImportArgs),
    /// Run the built-in ACP agent on stdin and stdout
    DemoAgent {
        #[command(subcommand)]
        command: Option<DemoCommand>,
    },
    /// Check whether the gateway with this configuration is ready
    Healthcheck,
    /// Print the OpenAPI document of the REST API
    Openapi,
    /// Print the completion script for a shell
    Completions { shell: clap_complete::Shell },
    /// Write the manual pages to a folder
    Man {
        /// An existing folder
        dir: PathBuf,
    },
    /// Run the supervisor of an agent
    #[command(hide = true, disable_help_flag = true)]
    Supervisor {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum DemoCommand {
    /// Sign in to the demo agent in this terminal, if it requires a sign-in
    SignIn,
}

/// The command line of this program. Only the help of the program lists the options that all commands share.
fn command_line() -> clap::Command {
    let program = CommandLine::command();
    let shared = program.get_arguments().filter(|arg| arg.is_global_set());
    let hidden: Vec<Arg> = shared.map(|arg| arg.clone().hide(true)).collect();
    add_to_subcommands(program, &hidden)
}

/// Adds the options that clap would otherwise copy with their help.
fn add_to_subcommands(command: clap::Command, hidden: &[Arg]) -> clap::Command {
    command.mut_subcommands(|subcommand| {
        add_to_subcommands(subcommand, hidden)
            .args(hidden)
            .after_help("`acp-gateway --help` lists the options of all commands.")
    })
}

pub fn main() -> ExitCode {
    let matches = command_line().get_matches();
    let line = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let command = line
        .command
        .unwrap_or_else(|| Command::Serve(serve::ServeArgs::default()));
    // All other commands may have the environment of the gateway, with its secrets. Agents of the same user
    // must not read it from `/proc`. The demo agent and the supervisor have only the environment of an agent.
    if !matches!(
        command,
        Command::DemoAgent { .. } | Command::Supervisor { .. }
    ) && let Err(error) = children::set_not_dumpable()
    {
        print_error(&error);
        return ExitCode::FAILURE;
    }
    let done = match command {
        Command::Serve(args) => serve::run(&args, &line.flags),
        Command::Check { all, sample, json } => check::run(&line.flags, all, sample, json),
        Command::Key { command, json } => keys::run(&command, &line.flags, json),
        Command::User { command, json } => users::run(&command, &line.flags, json),
        Command::Agent { command, json } => agent::run(&command, &line.flags, json),
        Command::Audit(command) => audit::run(&command, &line.flags),
        Command::Link => link::run(&line.flags),
        Command::Attach(args) => return exit_code(attach::run(&args, &line.flags)),
        Command::Connect(args) => return exit_code(connect::run(&args)),
        Command::Translate(args) => return exit_code(translate::run(&args)),
        Command::Backup { file } => backup::backup(&file, &line.flags),
        Command::Restore { file } => backup::restore(&file, &line.flags),
        Command::Export(args) => transfer::export(&args, &line.flags),
        Command::Import(args) => transfer::import(&args, &line.flags),
        Command::Healthcheck => check::healthcheck(&line.flags),
        Command::Openapi => {
            let document = surface::rest::document_json();
            output::write_line(document.trim_end()).map_err(Into::into)
        }
        Command::Completions { shell } => completions(shell),
        Command::Man { dir } => clap_mangen::generate_to(command_line(), &dir).map_err(|error| {
            format!("could not write manual pages to {}: {error}", dir.display()).into()
        }),
        Command::DemoAgent { command: None } => return demo_agent::main(),
        Command::DemoAgent {
            command: Some(DemoCommand::SignIn),
        } => return demo_agent::sign_in(),
        Command::Supervisor { args } => return children::supervisor::main(args),
    };
    exit_code(done.map(|()| ExitCode::SUCCESS))
}

fn exit_code(done: Result<ExitCode, Failure>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(failure) => {
            print_error(&*failure);
            ExitCode::FAILURE
        }
    }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut CommandLine::command(),
        "acp-gateway",
        &mut script,
    );
    Ok(output::write_stdout(script)?)
}
