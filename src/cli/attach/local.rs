//! The gateway of the local data folder: its address, its start, and the key of this process, through the control socket.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use http::{HeaderValue, Uri};

use crate::cli::lock::{self, DataDirError};
use crate::cli::output::Failure;
use crate::config::{CLIENT_KEY_VARIABLE, DataDir, Flags};
use crate::control::{Access, ClientError, ControlClient, Secret, Welcome};
use base::shutdown::lock_or_abort;
use base::telemetry::ErrorChain;
use base::types::AgentName;
use base::types::text::strip_controls;
use outgoing::{TlsError, url_port};
use programs::attach::{AllowError, Locator, Target};

pub(super) struct LocalGateway {
    data: DataDir,
    agent: Option<AgentName>,
    /// The key of the person. Without it, the gateway creates a key that ends with the connection.
    own_key: Option<Secret>,
    state: Mutex<State>,
}

struct State {
    control: Option<ControlClient>,
    key: Option<Secret>,
    starter: Starter,
    /// Whether a gateway may be started. A gateway that a person has started and stopped stays stopped.
    may_start: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LocalError {
    #[error("no gateway uses the data folder now")]
    Stopped(#[source] ClientError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the gateway sent an invalid address or key")]
    Invalid(#[source] Failure),
}

impl LocalGateway {
    pub(super) fn new(
        data: DataDir,
        starter: Starter,
        agent: Option<AgentName>,
        key: Option<String>,
    ) -> Self {
        let state = State {
            control: None,
            key: None,
            starter,
            may_start: true,
        };
        Self {
            data,
            agent,
            own_key: key.map(Secret),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.state.lock())
    }

    /// Finds the gateway, or starts it. Blocks.
    pub(super) fn find(&self) -> Result<Target, LocalError> {
        let mut state = self.state();
        let welcome = self.welcome(&mut state)?;
        state.may_start = welcome.exits_when_idle;
        if welcome.key.is_some() {
            state.key = welcome.key;
        }
        drop(state);
        let key = self.own_key.clone().or_else(|| self.state().key.clone());
        let target = || -> Result<Target, Failure> {
            Ok(Target {
                url: acp_url(&welcome.url, self.agent.as_ref())?,
                authorization: authorization(&key.ok_or(AttachFailure::NoKey)?.0)?,
            })
        };
        target().map_err(LocalError::Invalid)
    }

    fn welcome(&self, state: &mut State) -> Result<Welcome, LocalError> {
        let access = match &self.own_key {
            Some(_) => Access::OwnKey,
            None => Access::Editor(state.key.clone()),
        };
        if let Some(control) = &mut state.control
            && let Ok(welcome) = control.hello(access.clone())
        {
            return Ok(welcome);
        }
        // The gateway revokes the key of a connection after its end, so the previous connection ends first.
        state.control = None;
        let connect = || {
            let mut control = ControlClient::connect(&self.data.private())?;
            let welcome = control.hello(access.clone())?;
            Ok((control, welcome))
        };
        let (control, welcome) = if state.may_start {
            state.starter.connect_or_start(&self.data, connect)?
        } else {
            connect().map_err(LocalError::Stopped)?
        };
        state.control = Some(control);
        Ok(welcome)
    }
}

pub(in crate::cli) fn authorization(
    key: &str,
) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {key}"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Locator for LocalGateway {
    fn locate(&self, renew_key: bool) -> Result<Target, String> {
        if renew_key {
            let mut state = self.state();
            // The gateway revokes the key of a connection after its end.
            state.control = None;
            state.key = None;
        }
        self.find().map_err(|error| ErrorChain(&error).to_string())
    }

    fn renews_keys(&self) -> bool {
        self.own_key.is_none()
    }

    fn allow(&self, folders: &[String]) -> Result<(), AllowError> {
        let mut state = self.state();
        let lost = || AllowError::Failed("the control socket of the gateway is closed".to_owned());
        let control = state.control.as_mut().ok_or_else(lost)?;
        for folder in folders {
            control.allow(folder).map_err(|error| match error {
                ClientError::Rejected(reason) => AllowError::Rejected(reason),
                error => AllowError::Failed(ErrorChain(&error).to_string()),
            })?;
        }
        Ok(())
    }
}

/// A gateway that no editor, browser or turn uses ends after this time.
const IDLE_TIME: &str = "10m";
/// The time in which a gateway must accept connections. A start after an unclean shutdown checks the log first.
const START_TIMEOUT: Duration = Duration::from_mins(1);
const INTERVAL: Duration = Duration::from_millis(25);
const SHOWN_LINES: usize = 8;
const SHOWN_BYTES: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Data(#[from] DataDirError),
    #[error("could not start the gateway {}", .0.display())]
    Spawn(PathBuf, #[source] io::Error),
    #[error("could not open the log {}", .0.display())]
    Log(PathBuf, #[source] io::Error),
    #[error("the gateway could not start ({status}); the end of its log {}:\n{tail}", log.display())]
    Ended {
        status: ExitStatus,
        log: PathBuf,
        tail: String,
    },
    #[error(
        "the gateway that uses the data folder does not accept connections of editors; the end of the log {}:\n{tail}",
        log.display()
    )]
    Timeout {
        log: PathBuf,
        tail: String,
        source: ClientError,
    },
}

pub(super) struct Starter {
    flags: Vec<OsString>,
    child: Option<Child>,
}

impl Starter {
    pub(super) fn new(flags: &Flags) -> Self {
        Self {
            flags: flags.to_args(),
            child: None,
        }
    }

    /// Connects to the gateway of the data folder. Starts one if none holds the lock. If another process starts one at the
    /// same time, the lock decides between both, and this connects to the one that has the lock. Blocks.
    pub(super) fn connect_or_start<T>(
        &mut self,
        data: &DataDir,
        connect: impl Fn() -> Result<T, ClientError>,
    ) -> Result<T, StartError> {
        let deadline = Instant::now() + START_TIMEOUT;
        let log = data.gateway_log();
        let mut started = false;
        let mut log_start = 0;
        loop {
            let error = match connect() {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            };
            let ended = self.ended();
            let is_starting = self.child.is_some() || lock::is_held(data)?;
            if !is_starting {
                if started && let Some(status) = ended {
                    let tail = tail(&log, log_start);
                    return Err(StartError::Ended { status, log, tail });
                }
                log_start = fs::metadata(&log).map_or(0, |found| found.len());
                self.child = Some(self.spawn(data, &log)?);
                started = true;
            }
            if Instant::now() >= deadline {
                let tail = tail(&log, log_start);
                return Err(StartError::Timeout {
                    log,
                    tail,
                    source: error,
                });
            }
            sleep(INTERVAL);
        }
    }

    /// The exit status of the gateway that this process has started, if it has ended since the last call.
    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        Some(status)
    }

    fn spawn(&self, data: &DataDir, log: &Path) -> Result<Child, StartError> {
        lock::create_layout(data)?;
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(log);
        let opened = opened.map_err(|error| StartError::Log(log.to_owned(), error))?;
        // After an update of the program, this is the new one.
        let program = std::env::current_exe().unwrap_or_else(|_| "acp-gateway".into());
        let serve = ["serve", "--detached", "--exit-when-idle", IDLE_TIME];
        let mut args = serve.map(OsString::from).to_vec();
        args.extend_from_slice(&self.flags);
        let spawned = children::spawn_detached(&program, &args, CLIENT_KEY_VARIABLE, opened);
        spawned.map_err(|error| StartError::Spawn(program, error))
    }
}

fn tail(log: &Path, start: u64) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let size = file.metadata()?.len();
        let start = if start > size { 0 } else { start };
        file.seek(SeekFrom::Start(start.max(size.saturating_sub(SHOWN_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(SHOWN_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_else(|error| format!("could not read the log: {error}"));
    let lines: Vec<_> = text.lines().map(strip_controls).collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

/// Parses the URL of a gateway with one of these schemes. `None` if it is invalid.
pub(in crate::cli) fn parse_url(
    url: &str,
    schemes: [&str; 2],
) -> Result<Option<Uri>, AttachFailure> {
    if url.contains(['#', '@']) {
        return Err(AttachFailure::KeyInUrl);
    }
    let is_valid = |url: &Uri| {
        url.scheme_str()
            .is_some_and(|scheme| schemes.contains(&scheme))
            && url.authority().is_some()
            && url.query().is_none()
            && url_port(url).is_ok()
    };
    Ok(url.parse().ok().filter(is_valid))
}

/// The URL of `/acp` of a gateway, which can be below a path. The URL can name `/acp` itself too.
pub(super) fn acp_url(url: &str, agent: Option<&AgentName>) -> Result<Uri, AttachFailure> {
    let invalid = || AttachFailure::Url(url.to_owned());
    let parsed = parse_url(url, ["http", "https"])?.ok_or_else(invalid)?;
    let path = parsed.path().trim_end_matches('/');
    let names_agent = path
        .rsplit_once('/')
        .is_some_and(|(folder, _)| folder.ends_with("/acp"));
    let mut path = match path {
        path if names_agent && agent.is_none() => path.to_owned(),
        path if path.ends_with("/acp") => path.to_owned(),
        path => format!("{path}/acp"),
    };
    if let Some(agent) = agent {
        path = format!("{path}/{agent}");
    }
    let mut parts = parsed.into_parts();
    parts.path_and_query = path.parse().ok();
    Uri::from_parts(parts).map_err(|_| invalid())
}

#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AttachFailure {
    #[error("no key: set ACP_GATEWAY_KEY or --key-file FILE")]
    NoKey,
    #[error("the key is empty, or has characters that no key has")]
    InvalidKey,
    #[error("could not read the key file {}", .0.display())]
    KeyFile(PathBuf, #[source] io::Error),
    #[error("could not read the file with certificates {}", .0.display())]
    CaFile(PathBuf, #[source] io::Error),
    #[error("could not prepare TLS for --url")]
    Tls(#[from] TlsError),
    #[error("--url must not contain a key: set ACP_GATEWAY_KEY or --key-file FILE")]
    KeyInUrl,
    #[error("invalid --url {0:?}: expected http://HOST or https://HOST")]
    Url(String),
    #[error(
        "invalid --url {0:?}: expected ws://HOST/v1/fleet/connect or wss://HOST/v1/fleet/connect"
    )]
    FleetUrl(String),
}

#[cfg(test)]
mod gateway_url_tests {
    use super::*;

    #[test]
    fn url_of_acp_is_derived_from_the_url_of_the_gateway() {
        let agent = "fake".parse().unwrap();
        for (url, without, with) in [
            (
                "http://127.0.0.1:8080",
                "http://127.0.0.1:8080/acp",
                "http://127.0.0.1:8080/acp/fake",
            ),
            (
                "https://g.example/",
                "https://g.example/acp",
                "https://g.example/acp/fake",
            ),
            (
                "https://g.example/gateway",
                "https://g.example/gateway/acp",
                "https://g.example/gateway/acp/fake",
            ),
            (
                "http://[::1]:80/acp/",
                "http://[::1]:80/acp",
                "http://[::1]:80/acp/fake",
            ),
        ] {
            assert_eq!(acp_url(url, None).unwrap(), without);
            assert_eq!(acp_url(url, Some(&agent)).unwrap(), with);
        }
        assert_eq!(
            acp_url("http://h/acp/other", None).unwrap(),
            "http://h/acp/other"
        );
        for wrong in [
            "",
            "g.example",
            "ftp://g.example",
            "http://",
            "http://h/?agent=x",
            "/acp",
        ] {
            assert!(
                matches!(acp_url(wrong, None), Err(AttachFailure::Url(_))),
                "{wrong}"
            );
        }
        for wrong in ["http://h/#key=acpg_x", "http://key@h"] {
            assert!(
                matches!(acp_url(wrong, None), Err(AttachFailure::KeyInUrl)),
                "{wrong}"
            );
        }
    }
}
