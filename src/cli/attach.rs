//! `attach`: finds the gateway and the key, and runs the bridge between an editor and the gateway.
//!
//! Without `--url`, the gateway is the one that owns the data folder, also after it has moved to another port. Such a
//! bridge creates a key for itself, and revokes it at its end.

use std::fs::File;
use std::future::Future;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;

use clap::Args;
use http::{HeaderValue, Uri};
use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use super::source::local_config;
use super::{keys, lock};
use crate::attach::{self, Endpoint, Mapping, Options, PathMap};
use crate::auth::{KeyId, RELOAD_INTERVAL};
use crate::config::{Config, DataDir, Environment, Flags};
use crate::telemetry;
use crate::types::{AgentName, Ids};

#[derive(Debug, Args)]
pub(super) struct AttachArgs {
    /// The URL of a gateway [default: the gateway that uses the data folder]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
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
}

#[derive(Debug, thiserror::Error)]
enum AttachFailure {
    #[error(
        "no gateway uses the data folder {}: start one with `acp-gateway serve`, or name another one with --url URL", .0.display()
    )]
    NoGateway(PathBuf),
    #[error("no key: set ACP_GATEWAY_KEY or --key-file FILE")]
    NoKey,
    #[error("the key is empty, or has characters that no key has")]
    InvalidKey,
    #[error("could not read the key file {}", path.display())]
    KeyFile { path: PathBuf, source: std::io::Error },
    #[error("--url must not contain a key: set ACP_GATEWAY_KEY or --key-file FILE")]
    KeyInUrl,
    #[error("invalid --url {0:?}: expected http://HOST or https://HOST")]
    Url(String),
}

pub(super) fn run(args: &AttachArgs, flags: &Flags) -> Result<(), Failure> {
    let environment = Environment::from_process();
    telemetry::init(environment.log_filter())?;
    let key = read_key(args.key_file.as_ref(), &environment)?;
    let agent = args.agent.as_ref();
    if let Some(url) = &args.url {
        let url = acp_url(url, agent)?;
        let endpoint: Endpoint = {
            let url = url.clone();
            Arc::new(move || Ok(url.clone()))
        };
        return serve(args, &url, endpoint, &key.ok_or(AttachFailure::NoKey)?);
    }
    let config = local_config(flags)?;
    lock::check_owner(&config.data)?;
    let url = acp_url(&running_url(&config.data)?, agent)?;
    let (data, agent) = (config.data.clone(), args.agent.clone());
    let endpoint: Endpoint = Arc::new(move || {
        let found = running_url(&data).and_then(|url| Ok(acp_url(&url, agent.as_ref())?));
        found.map_err(|error| error.to_string())
    });
    if let Some(key) = key {
        return serve(args, &url, endpoint, &key);
    }
    let (created, lock) = keys::open(&config)?;
    let (key, stored) = created.create_attach_key()?;
    // The bridge can run for days. Another process can replace the store meanwhile.
    drop((created, lock));
    // The gateway accepts the key after it has reloaded the keys.
    sleep(RELOAD_INTERVAL + RELOAD_INTERVAL / 4);
    let served = serve(args, &url, endpoint, key.expose());
    if let Err(error) = revoke(&config, &stored.id) {
        let error = telemetry::ErrorChain(&*error).to_string();
        tracing::warn!(error, "could not revoke the key of this process; it expires without use");
    }
    served
}

fn revoke(config: &Config, key: &KeyId) -> Result<(), Failure> {
    let (keys, _lock) = keys::open(config)?;
    keys.revoke(key.as_str())?;
    Ok(())
}

/// The URL of the gateway that uses the data folder now.
fn running_url(data: &DataDir) -> Result<String, Failure> {
    let is_running = data.lock().exists() && lock::acquire_unless_running(data)?.is_none();
    if is_running {
        return Ok(lock::published_url(data)?);
    }
    // The address of an earlier gateway can belong to another program by now, which must not receive the key.
    Err(AttachFailure::NoGateway(data.path().to_owned()).into())
}

fn read_key(file: Option<&PathBuf>, environment: &Environment) -> Result<Option<String>, AttachFailure> {
    let key = match file {
        Some(path) => {
            let read = std::fs::read_to_string(path);
            read.map_err(|source| AttachFailure::KeyFile { path: path.clone(), source })?
        }
        None => match environment.client_key() {
            Some(key) => key.to_str().ok_or(AttachFailure::InvalidKey)?.to_owned(),
            None => return Ok(None),
        },
    };
    let key = key.trim();
    let is_valid = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid { Ok(Some(key.to_owned())) } else { Err(AttachFailure::InvalidKey) }
}

/// The URL of `/acp` of a gateway, which can be below a path. The URL can name `/acp` itself too.
fn acp_url(url: &str, agent: Option<&AgentName>) -> Result<Uri, AttachFailure> {
    if url.contains(['#', '@']) {
        return Err(AttachFailure::KeyInUrl);
    }
    let invalid = || AttachFailure::Url(url.to_owned());
    let parsed: Uri = url.parse().map_err(|_| invalid())?;
    let is_http = matches!(parsed.scheme_str(), Some("http" | "https"));
    let (true, Some(authority), None) = (is_http, parsed.authority(), parsed.query()) else {
        return Err(invalid());
    };
    let path = parsed.path().trim_end_matches('/');
    let names_agent = path.rsplit_once('/').is_some_and(|(folder, _)| folder.ends_with("/acp"));
    let mut path = match path {
        path if names_agent && agent.is_none() => path.to_owned(),
        path if path.ends_with("/acp") => path.to_owned(),
        path => format!("{path}/acp"),
    };
    if let Some(agent) = agent {
        path = format!("{path}/{agent}");
    }
    let scheme = parsed.scheme_str().unwrap_or_default();
    format!("{scheme}://{authority}{path}").parse().map_err(|_| invalid())
}

fn serve(args: &AttachArgs, url: &Uri, endpoint: Endpoint, key: &str) -> Result<(), Failure> {
    let mut authorization = HeaderValue::try_from(format!("Bearer {key}"))?;
    authorization.set_sensitive(true);
    let options = Options {
        endpoint,
        uses_tls: url.scheme_str() == Some("https"),
        authorization,
        session: args.session.clone(),
        paths: PathMap::from(args.mappings.clone()),
        client: Ids::system().uuid().to_string(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let stop = stop_signal()?;
        Ok(attach::run(options, pipes()?, stop).await?)
    });
    // A thread can be blocked in a read of stdin.
    runtime.shutdown_background();
    served
}

/// Resolves when a signal asks this process to end. The bridge then ends like at the end of stdin.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// Stdin and stdout without the buffers of the standard library, so that a line is one write.
fn pipes() -> std::io::Result<(tokio::fs::File, tokio::fs::File)> {
    let open =
        |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(|fd| tokio::fs::File::from_std(File::from(fd)));
    Ok((open(std::io::stdin().as_fd())?, open(std::io::stdout().as_fd())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_acp_is_derived_from_the_url_of_the_gateway() {
        let agent = "fake".parse().unwrap();
        for (url, without, with) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/acp", "http://127.0.0.1:8080/acp/fake"),
            ("https://g.example/", "https://g.example/acp", "https://g.example/acp/fake"),
            (
                "https://g.example/gateway",
                "https://g.example/gateway/acp",
                "https://g.example/gateway/acp/fake",
            ),
            ("http://[::1]:80/acp/", "http://[::1]:80/acp", "http://[::1]:80/acp/fake"),
        ] {
            assert_eq!(acp_url(url, None).unwrap(), without);
            assert_eq!(acp_url(url, Some(&agent)).unwrap(), with);
        }
        assert_eq!(acp_url("http://h/acp/other", None).unwrap(), "http://h/acp/other");
        for wrong in ["", "g.example", "ftp://g.example", "http://", "http://h/?agent=x", "/acp"] {
            assert!(matches!(acp_url(wrong, None), Err(AttachFailure::Url(_))), "{wrong}");
        }
        for wrong in ["http://h/#key=acpg_x", "http://key@h"] {
            assert!(matches!(acp_url(wrong, None), Err(AttachFailure::KeyInUrl)), "{wrong}");
        }
    }
}
