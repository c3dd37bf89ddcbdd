//! `connect`: offers an agent of this machine to a gateway, as a member of its fleet.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use http::Uri;

use super::attach::{AttachFailure, authorization, parse_url, read_key, tls_client};
use super::output::{Failure, multi_thread_runtime, private_folder, stop_signal};
use super::translate::agent_dialects;
use crate::config::Environment;
use base::shutdown::Shutdown;
use base::telemetry;
use base::types::{AgentDialect, AgentName, Isolation, OWN_PROGRAM};
use children::{ChildIsolation, ChildSpec, Spawner};
use programs::connect::{self, Agent, OfferedTools, Options, Roots};
use programs::stdio::MAX_LINE_BYTES;
use wire::fleet::MemberInfo;

#[derive(Debug, Args)]
pub(super) struct ConnectArgs {
    /// The URL of the fleet of a gateway, with the scheme ws or wss and the path /v1/fleet/connect
    #[arg(long, value_name = "URL")]
    url: String,
    /// The name of the agent at the gateway
    #[arg(long, value_name = "NAME")]
    name: AgentName,
    /// A file with a key that has the scope `fleet` [env: the key itself in `ACP_GATEWAY_KEY`]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A file with certificates in PEM that are trusted in addition to those of the system
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The number of processes that run at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    capacity: u16,
    /// A description of this machine for operators of the gateway, such as `os=linux`. Can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_metadata)]
    metadata: Vec<(String, String)>,
    /// A folder in which sessions may work. Can be repeated; the first one is the default [default: the working directory]
    #[arg(long, value_name = "PATH")]
    root: Vec<PathBuf>,
    /// Serve files below the roots to the agent
    #[arg(long)]
    files: bool,
    /// Run commands for the agent, in folders below the roots
    #[arg(long)]
    terminals: bool,
    /// The protocol of the agent, which is translated to ACP
    #[arg(long, value_name = "DIALECT", default_value = "acp", value_parser = agent_dialects())]
    dialect: AgentDialect,
    /// Give up after so many failed attempts in a row [default: never]
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<NonZeroU32>,
    /// The command of the agent and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn run(args: &ConnectArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::from_process();
    telemetry::init(environment.log_filter(), environment.permits_colors())?;
    let url = fleet_url(&args.url)?;
    let key = read_key(args.key_file.as_ref(), &environment)?.ok_or(AttachFailure::NoKey)?;
    let uses_tls = matches!(url.scheme_str(), Some("wss"));
    let client = tls_client(args.ca_file.as_ref(), uses_tls, &environment)?;
    let folder = std::env::current_dir()?;
    let roots = Roots::open(if args.root.is_empty() {
        std::slice::from_ref(&folder)
    } else {
        &args.root
    })?;
    let (program, arguments) = args.command.split_first().ok_or("a command is required")?;
    let program = children::resolve(program, environment.search_path())?;
    let (program, arguments) =
        args.dialect
            .command(program, arguments.to_vec(), None, MAX_LINE_BYTES);
    let child = ChildSpec {
        program,
        args: arguments,
        env: environment.without_gateway_variables(),
        home: environment.home().unwrap_or_else(|| folder.clone()),
        cwd: Some(folder),
        secrets: vec![key.clone()],
        isolation: ChildIsolation {
            level: Isolation::Off,
            ..ChildIsolation::default()
        },
    };
    let shutdown = Shutdown::new();
    let run_files = private_folder("acp-gateway-connect-", &std::env::temp_dir())?;
    let spawner = Spawner::new(
        OWN_PROGRAM.into(),
        run_files.path().to_owned(),
        shutdown.clone(),
        Arc::default(),
    );
    let info = MemberInfo {
        capacity: args.capacity.into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        dialect: args.dialect,
        roots: roots.names(),
        metadata: args.metadata.iter().cloned().collect(),
    };
    let options = Options {
        url,
        authorization: authorization(&key)?,
        client,
        name: args.name.clone(),
        info,
        max_attempts: args.max_attempts,
        agent: Agent {
            child,
            spawner,
            roots,
            serves: OfferedTools {
                files: args.files,
                terminals: args.terminals,
            },
        },
        shutdown,
    };
    let runtime = multi_thread_runtime()?;
    runtime.block_on(async {
        let stop = stop_signal()?;
        Ok::<_, Failure>(Box::pin(connect::run(options, stop)).await?)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn parse_metadata(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn fleet_url(url: &str) -> Result<Uri, AttachFailure> {
    parse_url(url, ["ws", "wss"])?.ok_or_else(|| AttachFailure::FleetUrl(url.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_names_a_websocket_without_a_key() {
        assert!(fleet_url("wss://g.example/v1/fleet/connect").is_ok());
        for wrong in [
            "",
            "g.example",
            "https://g.example/v1/fleet/connect",
            "ws://",
            "ws://h/?key=x",
        ] {
            assert!(
                matches!(fleet_url(wrong), Err(AttachFailure::FleetUrl(_))),
                "{wrong}"
            );
        }
        assert!(matches!(
            fleet_url("ws://key@h/"),
            Err(AttachFailure::KeyInUrl)
        ));
    }
}
