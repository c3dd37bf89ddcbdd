//! The output of `serve` when it accepts connections: its URL on stdout, and a summary on stderr with configuration file,
//! data folder, agents, workspaces, and how to stop the gateway.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net;
use std::time::Duration;

use rustix::process::geteuid;

use super::link::{browser_url, link, page_url};
use super::lock::{self, DataLock};
use super::output::{self, Failure};

use crate::app::Gateway;
use crate::auth::CreateKeyError;
use crate::config::Config;
use base::types::text::one_line;
use base::types::{Isolation, Mechanism};
use children::NO_ROOT_AGENTS;

const STOP: &str = "SIGINT (Ctrl-C) or SIGTERM; a second signal stops at once";

/// Starts the control socket, and prints the summary and the URL. The URL has a new key, unless the configuration sets the
/// operator's key or the output is recorded.
pub(super) fn announce(
    gateway: &Gateway,
    address: SocketAddr,
    recorder: Option<Recorder>,
    lock: &DataLock,
    exit_when_idle: Option<Duration>,
) -> Result<(), Failure> {
    let config = gateway.config();
    let public_url = config.public_url.as_ref();
    lock::publish_url(lock, &page_url(address, public_url))?;
    let url = browser_url(address, public_url);
    if let Err(error) = gateway.serve_local(url.clone(), exit_when_idle) {
        tracing::warn!(%error, "no control socket in the data folder: attach needs --url and a key");
    }
    Summary::of(config).report(gateway);
    let line = match recorder {
        _ if config.admin_key.is_some() => format!("{url}/"),
        None => match gateway.create_link_key() {
            Ok(key) => link(&url, &key),
            // A start must not fail because people use their links.
            Err(error @ CreateKeyError::TooManyLinks(_)) => {
                tracing::warn!(%error, "the start prints no link with a key");
                format!("{url}/")
            }
            Err(error) => return Err(error.into()),
        },
        Some(recorder) => {
            tracing::info!(
                "{recorder} keeps this output, so it has no key: run `acp-gateway link` for a link with a key, or \
                 start with --print-link"
            );
            format!("{url}/")
        }
    };
    Ok(output::write_line(&line)?)
}

/// Reports to the service manager that the gateway has started, see `sd_notify(3)`. `socket` is the value of `NOTIFY_SOCKET`.
pub(super) fn report_ready(socket: &OsStr) {
    let sent = || {
        let address = match socket.as_bytes().strip_prefix(b"@") {
            Some(name) => net::SocketAddr::from_abstract_name(name)?,
            None => net::SocketAddr::from_pathname(socket)?,
        };
        net::UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address)
    };
    if let Err(error) = sent() {
        tracing::warn!(%error, "could not report the start to the service manager");
    }
}

struct Summary {
    config: String,
    data: String,
    agents: String,
    workspaces: String,
    run_as: Option<String>,
}

impl Summary {
    fn of(config: &Config) -> Self {
        let agents: Vec<String> = config.agents.keys().map(ToString::to_string).collect();
        let roots = std::iter::once(&config.workspaces.root).chain(&config.workspaces.allow);
        let workspaces: Vec<String> = roots.map(|root| root.display().to_string()).collect();
        let file = config.file.path.as_ref();
        let file = file.map(|path| path.display().to_string());
        let data = config.data.path().display().to_string();
        let run_as = match config.isolation.run_as {
            Some(users) => Some(users.to_string()),
            None if starts_no_agents(config) => Some(format!("not set: {NO_ROOT_AGENTS}")),
            None => None,
        };
        Self {
            config: file.unwrap_or_else(|| "no file".to_owned()),
            data,
            agents: agents.join(", "),
            workspaces: workspaces.join(", "),
            run_as,
        }
    }

    /// Writes the summary to stderr: as text on a terminal, else as one record of the log, so that every line stays JSON.
    fn report(&self, gateway: &Gateway) {
        let sandbox = gateway.isolation().sandbox();
        let isolation = sandbox.applied(Isolation::Private).mechanism;
        if io::stderr().is_terminal() {
            let text = self.text(&isolation_text(isolation, sandbox.shortcoming()));
            // A start does not fail because its terminal is gone.
            let _ = io::stderr().write_all(text.as_bytes());
        } else {
            let control_groups = gateway.isolation().groups();
            tracing::info!(
                config = %self.config,
                data = %self.data,
                agents = %self.agents,
                workspaces = %self.workspaces,
                %isolation,
                %control_groups,
                run_as = self.run_as.as_deref(),
                stop = STOP,
                "the gateway accepts connections"
            );
        }
    }

    fn text(&self, isolation: &str) -> String {
        let mut text = String::new();
        let lines = [
            ("config", Some(&*self.config)),
            ("data", Some(&self.data)),
            ("agents", Some(&self.agents)),
            ("workspaces", Some(&self.workspaces)),
            ("isolation", Some(isolation)),
            ("run as", self.run_as.as_deref()),
            ("stop", Some(STOP)),
        ];
        for (name, value) in lines {
            if let Some(value) = value {
                text += &format!("{name:<12}{}\n", one_line(value));
            }
        }
        text
    }
}

/// Whether the gateway runs as root, and the configuration permits agents neither own users nor the rights of root.
pub(super) fn starts_no_agents(config: &Config) -> bool {
    geteuid().is_root() && config.isolation.run_as.is_none() && !config.isolation.allow_root
}

/// The mechanism that isolates agents. If it does not apply all of the levels: also the reason.
fn isolation_text(mechanism: Mechanism, shortcoming: Option<&str>) -> String {
    match shortcoming {
        Some(reason) if !mechanism.is_complete() => format!("{mechanism}: {reason}"),
        _ => mechanism.to_string(),
    }
}

const INIT_OUTPUTS: [&str; 2] = ["/proc/1/fd/1", "/proc/1/fd/2"];

/// The program or file that records the output of this process. A key in a recorded output stays readable after the start.
/// A terminal or the pipe of another program is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub(super) enum Recorder {
    #[display("the journal")]
    Journal,
    #[display("the log of the container")]
    ContainerLog,
    #[display("a file")]
    File,
}

impl Recorder {
    /// The recorder of stdout or stderr; `None` if only their readers see them. `journal_stream` is the value of
    /// `JOURNAL_STREAM`.
    pub(super) fn of_process(journal_stream: Option<&str>) -> Option<Self> {
        let stdout = Output::of(&io::stdout());
        let stderr = Output::of(&io::stderr());
        Self::of(stdout, stderr, journal_stream, &Init::read())
    }

    fn of(
        stdout: Option<Output>,
        stderr: Option<Output>,
        journal_stream: Option<&str>,
        init: &Init,
    ) -> Option<Self> {
        let any = |is_recorded: &dyn Fn(FileId) -> bool| {
            [stdout, stderr]
                .into_iter()
                .flatten()
                .any(|output| is_recorded(output.id))
        };
        if journal_stream
            .and_then(FileId::parse)
            .is_some_and(|journal| any(&|id| id == journal))
        {
            return Some(Self::Journal);
        }
        let is_container_log = match init {
            Init::Outputs(log) => any(&|id| log.contains(&id)),
            Init::Hidden { same_session } => *same_session,
        };
        if is_container_log {
            return Some(Self::ContainerLog);
        }
        // The link is on stdout. The log may be in a file.
        stdout
            .is_some_and(|stdout| stdout.is_file)
            .then_some(Self::File)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (device, inode) = text.split_once(':')?;
        Some(Self {
            device: device.parse().ok()?,
            inode: inode.parse().ok()?,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Output {
    id: FileId,
    is_file: bool,
}

impl Output {
    /// Returns `None` for a device that discards its input, and for an output that cannot be examined.
    fn of(output: &(impl AsFd + IsTerminal)) -> Option<Self> {
        let file = output.as_fd().try_clone_to_owned().ok()?;
        let found = File::from(file).metadata().ok()?;
        let discards = found.file_type().is_char_device() && !output.is_terminal();
        (!discards).then(|| Self {
            id: FileId::of(&found),
            is_file: found.is_file(),
        })
    }
}

#[derive(Debug)]
enum Init {
    Outputs(Vec<FileId>),
    /// Its outputs are closed to this process. In a container without a process of another session, this
    /// process has the session and the outputs of process 1. On a host, no other process is in that session.
    Hidden {
        same_session: bool,
    },
}

impl Init {
    fn read() -> Self {
        let outputs: io::Result<Vec<FileId>> = INIT_OUTPUTS
            .iter()
            .map(|path| fs::metadata(path).map(|found| FileId::of(&found)))
            .collect();
        if let Ok(outputs) = outputs {
            return Self::Outputs(outputs);
        }
        let ours = session_of("self");
        Self::Hidden {
            same_session: ours.is_some() && ours == session_of("1"),
        }
    }
}

/// The id of the session of a process. `None` if the session began outside of this PID namespace: the kernel shows the id 0
/// for all such sessions. Container runtimes begin a session inside.
fn session_of(process: &str) -> Option<u32> {
    parse_session(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn parse_session(stat: &str) -> Option<u32> {
    // The name of the program can contain parentheses. Then follow the state, the parent and the group.
    let (_, fields) = stat.rsplit_once(')')?;
    fields
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()
        .filter(|session| *session != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_one_line_for_each_value() {
        let summary = Summary {
            config: "/etc/acp-gateway/acp-gateway.toml".to_owned(),
            data: "/data".to_owned(),
            agents: "claude, demo".to_owned(),
            workspaces: "/data/workspaces, /home/me/\u{1b}[2Jcode".to_owned(),
            run_as: Some("100000-165535".to_owned()),
        };
        let expected = "\
config      /etc/acp-gateway/acp-gateway.toml
data        /data
agents      claude, demo
workspaces  /data/workspaces, /home/me/code
isolation   partial: no rules for signals
run as      100000-165535
stop        SIGINT (Ctrl-C) or SIGTERM; a second signal stops at once
";
        let reason = Some("no rules for signals");
        assert_eq!(
            summary.text(&isolation_text(Mechanism::Partial, reason)),
            expected
        );
        assert_eq!(isolation_text(Mechanism::Namespaces, None), "namespaces");
        assert_eq!(isolation_text(Mechanism::Landlock, reason), "landlock");
        assert_eq!(
            isolation_text(Mechanism::None, reason),
            "none: no rules for signals"
        );
    }
}

#[cfg(test)]
mod recorded_tests {
    use super::*;

    fn output(inode: u64, is_file: bool) -> Output {
        Output {
            id: FileId { device: 9, inode },
            is_file,
        }
    }

    #[test]
    fn session_is_read_from_proc() {
        assert_eq!(
            session_of("self"),
            session_of(&std::process::id().to_string())
        );
        assert_eq!(session_of("0"), None);
        assert_eq!(parse_session("7 (a) b) S 1 6 5 0 -1"), Some(5));
        assert_eq!(parse_session("7 (a) S 0 0 0 0 -1"), None);
    }

    #[test]
    fn only_a_journal_a_container_log_and_a_file_record() {
        let host = Init::Hidden {
            same_session: false,
        };
        let container = Init::Outputs([3, 4].map(|inode| FileId { device: 9, inode }).to_vec());
        let hidden = Init::Hidden { same_session: true };
        let pipe = Some(output(1, false));
        let other = Some(output(2, false));
        let file = Some(output(5, true));
        for (stdout, stderr, journal, init, recorder) in [
            (pipe, other, None, &host, None),
            (pipe, file, None, &host, None),
            (None, None, Some("9:1"), &host, None),
            (pipe, other, Some("9:7"), &host, None),
            (pipe, other, Some("8:1"), &host, None),
            (pipe, other, Some("9"), &host, None),
            (pipe, other, Some("9:1"), &host, Some(Recorder::Journal)),
            (pipe, other, Some("9:2"), &host, Some(Recorder::Journal)),
            (pipe, other, None, &container, None),
            (
                Some(output(3, false)),
                other,
                None,
                &container,
                Some(Recorder::ContainerLog),
            ),
            (
                pipe,
                Some(output(4, false)),
                None,
                &container,
                Some(Recorder::ContainerLog),
            ),
            (pipe, other, None, &hidden, Some(Recorder::ContainerLog)),
            (file, pipe, None, &host, Some(Recorder::File)),
        ] {
            assert_eq!(
                Recorder::of(stdout, stderr, journal, init),
                recorder,
                "{stdout:?} {stderr:?} {journal:?} {init:?}"
            );
        }
    }
}
