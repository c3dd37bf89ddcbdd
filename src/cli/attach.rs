//! `attach`: finds the gateway and the key, and runs the bridge between an editor and the gateway.
//!
//! Without `--url`, the gateway is the one that owns the data folder, also after it has moved to another port (`local`). If
//! there is none, `start` starts it.

mod local;
mod sign_in;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::lock;
use super::output::{Failure, current_thread_runtime, pipes, stop_signal};
use super::source::local_config;
use super::translate::ClientProtocol;
use crate::config::{Environment, Flags};
use base::telemetry;
use base::types::{AgentName, Ids};
use local::acp_url;
pub(super) use local::{AttachFailure, authorization};
use local::{LocalGateway, Starter};
use outgoing::{AddressRule, Client, ClientOptions};
use programs::attach::{self, AllowError, Locator, Mapping, Options, PathMap, Target};
use programs::translate::early_client;
use sign_in::{AttachCommand, SignInGateway};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Args)]
pub(super) struct AttachArgs {
    /// The URL of a gateway [default: the gateway that uses the data folder; it is started if there is none]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A PEM file with certificate authorities to trust in addition to those of the system
    #[arg(long, value_name = "FILE", requires = "url")]
    ca_file: Option<PathBuf>,
    /// The agent; required if the gateway has several
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Open this session of the gateway instead of a new one
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// A file with the key [env: the key itself in `ACP_GATEWAY_KEY`]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A folder of the editor and its path at the gateway; repeatable
    #[arg(long = "map", value_name = "LOCAL=REMOTE")]
    mappings: Vec<Mapping>,
    /// The protocol of the editor
    #[arg(long, value_name = "DIALECT", default_value = "acp")]
    dialect: ClientProtocol,
    #[command(subcommand)]
    command: Option<AttachCommand>,
}

pub(super) fn run(args: &AttachArgs, flags: &Flags) -> Result<ExitCode, Failure> {
    let environment = Environment::from_process();
    telemetry::init(environment.log_filter())?;
    let key = read_key(args.key_file.as_ref(), &environment)?;
    if let Some(AttachCommand::SignIn { method }) = &args.command {
        let http = client(args, &environment)?;
        let gateway = match &args.url {
            Some(url) => SignInGateway::remote(url.clone(), key.ok_or(AttachFailure::NoKey)?),
            None => SignInGateway::local(&local_config(flags)?.data, key)?,
        };
        return sign_in::run(args.agent.as_ref(), method, (http, &gateway));
    }
    if let Some(url) = &args.url {
        let url = acp_url(url, args.agent.as_ref())?;
        let target = Target {
            url,
            authorization: authorization(&key.ok_or(AttachFailure::NoKey)?)?,
        };
        return serve(
            args,
            client(args, &environment)?,
            Arc::new(RemoteGateway(target)),
            false,
        );
    }
    let config = local_config(flags)?;
    lock::check_owner(&config.data)?;
    let allow_folders = key.is_none();
    let gateway = LocalGateway::new(config.data, Starter::new(flags), args.agent.clone(), key);
    gateway.find()?;
    serve(
        args,
        client(args, &environment)?,
        Arc::new(gateway),
        allow_folders,
    )
}

/// The client for the gateway. A local gateway has no TLS certificate of its own.
fn client(args: &AttachArgs, environment: &Environment) -> Result<Client, AttachFailure> {
    let uses_tls = args
        .url
        .as_ref()
        .is_some_and(|url| url.starts_with("https:"));
    tls_client(args.ca_file.as_ref(), uses_tls, environment)
}

pub(super) fn tls_client(
    ca_file: Option<&PathBuf>,
    uses_tls: bool,
    environment: &Environment,
) -> Result<Client, AttachFailure> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| AttachFailure::CaFile {
            path: path.clone(),
            source,
        })
    };
    let ca_certificates = ca_file.map(read).transpose()?;
    let proxies = &environment.proxy_variables();
    let options = ClientOptions {
        proxies,
        uses_tls,
        ca_certificates: ca_certificates.as_deref(),
        addresses: AddressRule::Any,
    };
    Ok(Client::new(options)?)
}

pub(super) fn read_key(
    file: Option<&PathBuf>,
    environment: &Environment,
) -> Result<Option<String>, AttachFailure> {
    let key = match file {
        Some(path) => {
            let read = std::fs::read_to_string(path);
            read.map_err(|source| AttachFailure::KeyFile {
                path: path.clone(),
                source,
            })?
        }
        None => match environment.client_key() {
            Some(key) => key.to_str().ok_or(AttachFailure::InvalidKey)?.to_owned(),
            None => return Ok(None),
        },
    };
    let key = key.trim();
    let is_valid = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid {
        Ok(Some(key.to_owned()))
    } else {
        Err(AttachFailure::InvalidKey)
    }
}

struct RemoteGateway(Target);

impl Locator for RemoteGateway {
    fn locate(&self, _renew_key: bool) -> Result<Target, String> {
        Ok(self.0.clone())
    }

    fn renews_keys(&self) -> bool {
        false
    }

    fn allow(&self, _folders: &[String]) -> Result<(), AllowError> {
        Err(AllowError::Rejected(
            "only the gateway of this data folder accepts folders of an editor".to_owned(),
        ))
    }
}

fn serve(
    args: &AttachArgs,
    http: Client,
    locator: Arc<dyn Locator>,
    allow_folders: bool,
) -> Result<ExitCode, Failure> {
    let options = Options {
        locator,
        http,
        allow_folders,
        command: own_command(),
        session: args.session.clone(),
        paths: PathMap::from(args.mappings.clone()),
        // ACP passes unchanged.
        protocol: match args.dialect {
            ClientProtocol::Acp => None,
            ClientProtocol::EarlyAcp => {
                let cwd = std::env::current_dir().unwrap_or_default();
                Some(early_client(cwd, VERSION))
            }
        },
        client: Ids::system().uuid().to_string(),
    };
    let runtime = current_thread_runtime()?;
    let served = runtime.block_on(async {
        let stop = stop_signal()?;
        let (input, output) = pipes()?;
        attach::run(options, input, output, stop).await?;
        Ok(ExitCode::SUCCESS)
    });
    // A thread can be blocked in a read of stdin.
    runtime.shutdown_background();
    served
}

/// The command of this process. No argument is a key.
fn own_command() -> Vec<String> {
    let program = std::env::current_exe().unwrap_or_else(|_| "acp-gateway".into());
    let words = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned());
    std::iter::once(program.to_string_lossy().into_owned())
        .chain(words)
        .collect()
}
