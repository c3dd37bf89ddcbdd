//! `attach`: finds the gateway and the key, and runs the bridge between an editor and the gateway.
//!
//! Without `--url`, the gateway is the one that owns the data folder, also after it has moved to another port (`local`). If
//! there is none, `attach` starts it.

mod local;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};

use super::lock;
use super::output::{Failure, run_on_pipes};
use super::source::local_config_of_editor;
use super::translate::client_dialects;
use crate::config::{Environment, Flags};
use crate::control::{Access, ControlClient};
use base::telemetry;
use base::types::{AgentName, Ids};
use local::acp_url;
pub(super) use local::{AttachFailure, authorization, parse_url};
use local::{LocalGateway, Starter};
use outgoing::{AddressRule, Client, ClientOptions};
use programs::attach::{self, AllowError, Locator, Mapping, Options, PathMap, SignIn, Target};
use programs::translate::ClientDialect;

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
    #[arg(long, value_name = "DIALECT", default_value = "acp", value_parser = client_dialects())]
    dialect: ClientDialect,
    #[command(subcommand)]
    command: Option<AttachCommand>,
}

#[derive(Debug, Subcommand)]
enum AttachCommand {
    /// Sign in to the agent in this terminal, with a method of type `terminal`
    SignIn {
        /// The id of the method
        #[arg(long, value_name = "ID")]
        method: String,
    },
}

pub(super) fn run(args: &AttachArgs, flags: &Flags) -> Result<ExitCode, Failure> {
    let environment = Environment::from_process();
    telemetry::init(environment.log_filter(), environment.permits_colors())?;
    let key = read_key(args.key_file.as_ref(), &environment)?;
    if let Some(AttachCommand::SignIn { method }) = &args.command {
        let http = client(args, &environment)?;
        return sign_in(args, method, key, http, flags);
    }
    if let Some(url) = &args.url {
        let url = acp_url(url, args.agent.as_ref())?;
        let target = Target {
            url,
            authorization: authorization(&key.ok_or(AttachFailure::NoKey)?)?,
        };
        let gateway = Arc::new(RemoteGateway(target));
        return serve(args, client(args, &environment)?, gateway, false);
    }
    let config = local_config_of_editor(flags)?;
    lock::check_owner(&config.data)?;
    let allow_folders = key.is_none();
    let gateway = LocalGateway::new(config.data, Starter::new(flags), args.agent.clone(), key);
    gateway.find()?;
    let http = client(args, &environment)?;
    serve(args, http, Arc::new(gateway), allow_folders)
}

/// Signs in at the gateway with this URL, or at the running gateway of the data folder, which the editor that offers the
/// sign-in has started.
fn sign_in(
    args: &AttachArgs,
    method: &str,
    key: Option<String>,
    http: Client,
    flags: &Flags,
) -> Result<ExitCode, Failure> {
    // The key of a local gateway ends with the connection.
    let (url, key, _control) = if let Some(url) = &args.url {
        (url.clone(), key, None)
    } else {
        let data = local_config_of_editor(flags)?.data;
        lock::check_owner(&data)?;
        let mut control = ControlClient::connect(&data.private())?;
        let access = match key {
            Some(_) => Access::OwnKey,
            None => Access::SignIn,
        };
        let welcome = control.hello(access)?;
        let key = key.or(welcome.key.map(|key| key.0));
        (welcome.url, key, Some(control))
    };
    let key = key.ok_or(AttachFailure::NoKey)?;
    let (base, named) = split_acp(&url);
    let agent = args.agent.as_ref().map(ToString::to_string).or(named);
    // The check of the URL is that of the bridge.
    acp_url(base, None)?;
    let sign_in = SignIn {
        http,
        target: Target {
            url: base.parse()?,
            authorization: authorization(&key)?,
        },
        agent,
        method: method.to_owned(),
    };
    let ended =
        run_on_pipes(|input, output, stop| sign_in.run(std::io::stdin(), input, output, stop));
    ended.map(ExitCode::from)
}

fn split_acp(url: &str) -> (&str, Option<String>) {
    let url = url.trim_end_matches('/');
    if let Some(base) = url.strip_suffix("/acp") {
        return (base, None);
    }
    match url.rsplit_once("/acp/") {
        Some((base, agent)) if !agent.contains('/') => (base, Some(agent.to_owned())),
        _ => (url, None),
    }
}

/// The client for the gateway. A local gateway has no TLS certificate of its own.
fn client(args: &AttachArgs, environment: &Environment) -> Result<Client, AttachFailure> {
    let url = args.url.as_deref().unwrap_or_default();
    tls_client(
        args.ca_file.as_ref(),
        url.starts_with("https:"),
        environment,
    )
}

pub(super) fn tls_client(
    ca_file: Option<&PathBuf>,
    uses_tls: bool,
    environment: &Environment,
) -> Result<Client, AttachFailure> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| AttachFailure::CaFile(path.clone(), error))
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
            read.map_err(|error| AttachFailure::KeyFile(path.clone(), error))?
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
        protocol: args
            .dialect
            .client(std::env::current_dir().unwrap_or_default()),
        client: Ids::system().uuid().to_string(),
    };
    run_on_pipes(|input, output, stop| attach::run(options, input, output, stop))?;
    Ok(ExitCode::SUCCESS)
}

/// The command of this process. No argument is a key.
fn own_command() -> Vec<String> {
    let program = std::env::current_exe().unwrap_or_else(|_| "acp-gateway".into());
    let words = std::env::args_os().skip(1);
    let words = std::iter::once(program.into_os_string()).chain(words);
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_acp_names_the_gateway_and_the_agent() {
        for (url, base, agent) in [
            ("http://h", "http://h", None),
            ("http://h/", "http://h", None),
            ("http://h/acp", "http://h", None),
            ("http://h/g/acp/fake/", "http://h/g", Some("fake")),
            ("http://h/acp/a/b", "http://h/acp/a/b", None),
        ] {
            assert_eq!(split_acp(url), (base, agent.map(str::to_owned)), "{url}");
        }
    }
}
