//! Finds the mechanisms of isolation that work on this machine, by using them once.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use super::policy::UserRange;
use base::types::Mechanism;

/// The longest run of one attempt. Starts of agents wait for the probe.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The mechanism that works, and what is missing for the best one.
#[derive(Debug, Clone, Default)]
pub(super) struct Probed {
    /// The namespaces, Landlock, or nothing.
    pub(super) mechanism: Mechanism,
    /// The mechanism does not apply a part of the levels.
    pub(super) is_partial: bool,
    pub(super) shortcoming: Option<String>,
    /// A child can connect to socket files in hidden folders.
    pub(super) leaves_sockets_open: bool,
}

impl Probed {
    /// The mechanism works, but does not apply a part of the levels.
    pub(super) fn limit(&mut self, shortcoming: &str) {
        self.is_partial = true;
        let known = self.shortcoming.take().map(|known| format!("{known}; "));
        self.shortcoming = Some(format!("{}{shortcoming}", known.unwrap_or_default()));
    }
}

/// Tries the mechanisms for children with these users, the best one first. `folder` is for files of the probe.
pub(super) fn run(supervisor: &Path, folder: &Path, users: Option<UserRange>) -> Probed {
    let user = users.map(|users| users.first().to_string());
    let attempt = |stage| attempt(supervisor, stage, folder, user.as_deref());
    let Err(error) = attempt("probe-namespaces") else {
        return Probed {
            mechanism: Mechanism::Namespaces,
            ..Probed::default()
        };
    };
    let mut partial = Probed {
        mechanism: Mechanism::Namespaces,
        ..Probed::default()
    };
    let namespaces = match attempt("probe-namespaces-partial") {
        Ok(()) => {
            partial.limit(&format!(
                "agents can connect to abstract sockets of other processes: {error}"
            ));
            return partial;
        }
        Err(error) => {
            format!("namespaces: {error}; sandboxes of agents that mount file systems fail")
        }
    };
    let landlock = attempt("probe-landlock");
    let is_partial = landlock.is_err() && attempt("probe-landlock-partial").is_ok();
    Probed {
        mechanism: if landlock.is_ok() || is_partial {
            Mechanism::Landlock
        } else {
            Mechanism::None
        },
        is_partial,
        leaves_sockets_open: landlock.is_err() || attempt("probe-landlock-sockets").is_err(),
        shortcoming: Some(match landlock {
            Ok(()) => namespaces,
            Err(error) => format!("{namespaces}; landlock: {error}"),
        }),
    }
}

/// Runs a stage of the supervisor that uses a mechanism. The error is its first line of output.
#[expect(
    clippy::disallowed_methods,
    reason = "the probe runs before the gateway starts agents"
)]
fn attempt(
    supervisor: &Path,
    stage: &str,
    folder: &Path,
    user: Option<&str>,
) -> Result<(), String> {
    let mut probe = Command::new(supervisor)
        .arg("supervisor")
        .arg(stage)
        .args(user)
        .env_clear()
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    if !ends(&probe, TIMEOUT).unwrap_or(true) {
        probe.kill().map_err(|error| error.to_string())?;
        probe.wait().map_err(|error| error.to_string())?;
        return Err(format!("no result within {TIMEOUT:?}"));
    }
    if probe.wait().map_err(|error| error.to_string())?.success() {
        return Ok(());
    }
    let mut text = String::new();
    if let Some(stderr) = probe.stderr.take() {
        // The text only explains the failure. The exit code reports it.
        let _ = stderr.take(1024).read_to_string(&mut text);
    }
    Err(text.lines().next().unwrap_or("unknown").to_owned())
}

/// Waits until the child ends. Returns false after the timeout.
fn ends(child: &Child, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    Ok(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? > 0)
}

/// The folder of the sockets of services.
const SERVICES: &str = "/run";
/// The levels of folders below [`SERVICES`] in which services have their sockets: `/run/user/1000/systemd/private`.
const MAX_DEPTH: usize = 4;
/// A bound on the number of examined files.
const MAX_ENTRIES: usize = 8192;

/// Container engines below a home, for example Docker Desktop and Colima.
const IN_HOME: [&str; 4] = [
    ".docker/run/docker.sock",
    ".docker/desktop/docker.sock",
    ".colima/default/docker.sock",
    ".rd/docker.sock",
];

/// Services with sockets outside of [`SERVICES`]: their folders, and the paths of the sockets below them. Members of their
/// groups can become root.
pub(super) const OUTSIDE: [(&str, &[&str]); 5] = [
    (
        "/var/snap/lxd",
        &["common/lxd/unix.socket", "common/lxd-user/unix.socket"],
    ),
    ("/var/snap/microk8s", &["common/run/containerd.sock"]),
    ("/var/lib/lxd", &["unix.socket"]),
    ("/var/lib/incus", &["unix.socket", "unix.socket.user"]),
    ("/var/lib/kubelet", &["pod-resources/kubelet.sock"]),
];

/// The sockets of container engines. Each client can become root, also if the file permits all users to connect.
const ENGINES: [&str; 4] = ["docker.sock", "podman.sock", "containerd.sock", "crio.sock"];

/// The first socket of a service that trusts the user of this process, and that accepts its connection. `home` is the
/// home of the operator.
///
/// A service that permits all users to connect decides itself about the rights of its client, so its socket does not
/// count. With `own_users`, children have other users than this process: then only engines count that permit all users.
pub(super) fn first_reachable(home: Option<&Path>, own_users: bool) -> Option<PathBuf> {
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    collect(Path::new(SERVICES), MAX_DEPTH, &mut left, &mut found);
    // The server of tmux runs the commands of its clients.
    let tmux = PathBuf::from(format!("/tmp/tmux-{}", geteuid().as_raw()));
    collect(&tmux, 0, &mut left, &mut found);
    for (folder, names) in OUTSIDE {
        found.extend(names.iter().map(|name| Path::new(folder).join(name)));
    }
    if let Some(home) = home {
        found.extend(IN_HOME.map(|name| home.join(name)));
    }
    let starts_programs = |path: &PathBuf| {
        if own_users {
            is_engine(path) && permits_all(path)
        } else {
            is_engine(path) || !permits_all(path)
        }
    };
    let mut found = found.into_iter();
    found.find(|path| starts_programs(path) && accepts(path))
}

/// Collects the socket files in a folder and in folders below it. `left` bounds the number of files.
fn collect(folder: &Path, depth: usize, left: &mut usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Some(rest) = left.checked_sub(1) else {
            return;
        };
        *left = rest;
        match entry.file_type() {
            Ok(kind) if kind.is_socket() => found.push(entry.path()),
            Ok(kind) if kind.is_dir() && depth > 0 => {
                collect(&entry.path(), depth - 1, left, found);
            }
            _ => {}
        }
    }
}

fn is_engine(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| ENGINES.iter().any(|engine| name == *engine))
}

/// Whether the rights of files permit every user to connect.
fn permits_all(path: &Path) -> bool {
    let has = |path: &Path, bit| {
        fs::metadata(path).is_ok_and(|file| file.permissions().mode() & bit != 0)
    };
    has(path, 0o002) && path.ancestors().skip(1).all(|folder| has(folder, 0o001))
}

/// Whether a service accepts a connection of this process. Sends nothing.
fn accepts(path: &Path) -> bool {
    let connected = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    // After the check of rights, the queue of the service is full, or the socket has another type.
    matches!(connected(), Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child of the test")]
    fn attempt_without_a_result_ends_at_the_timeout() {
        let mut sleeping = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!ends(&sleeping, Duration::from_millis(20)).unwrap());
        sleeping.kill().unwrap();
        assert!(ends(&sleeping, Duration::from_secs(20)).unwrap());
        sleeping.wait().unwrap();
    }
}

#[cfg(test)]
mod sockets_tests {
    use std::fs::Permissions;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn socket_in_a_closed_folder_trusts_its_user() {
        let home = tempfile::tempdir().unwrap();
        set_mode(home.path(), 0o700);
        let path = home.path().join("service.sock");
        assert!(!accepts(&path), "there is no socket");
        let listener = UnixListener::bind(&path).unwrap();
        set_mode(&path, 0o666);
        assert!(accepts(&path));
        assert!(!permits_all(&path), "other users cannot reach the folder");
        drop(listener);
        assert!(!accepts(&path), "no service listens");
    }

    #[test]
    fn engine_counts_also_if_all_users_may_connect() {
        assert!(is_engine(Path::new("/docker.sock")));
        // Every user can reach and write this file.
        assert!(permits_all(Path::new("/dev/null")));
    }

    #[test]
    fn engine_in_a_home_is_found_while_it_listens() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".docker/run");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("docker.sock");
        assert_ne!(
            first_reachable(Some(home.path()), false).as_ref(),
            Some(&path)
        );
        let _listener = UnixListener::bind(&path).unwrap();
        let mut found = Vec::new();
        collect(home.path(), 1, &mut 100, &mut found);
        assert!(found.is_empty(), "{found:?}");
        collect(home.path(), 2, &mut 100, &mut found);
        assert_eq!(found, std::slice::from_ref(&path));
        // A service of this machine may come first.
        assert!(first_reachable(Some(home.path()), false).is_some());
    }
}
