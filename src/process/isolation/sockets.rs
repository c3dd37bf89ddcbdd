//! Sockets of services that would start programs outside of an agent's isolation: service managers and container
//! engines.
//!
//! Landlock denies connections to socket files from ABI 9 on (Linux 7.1). Before, an agent can connect to every socket
//! file that the rights of files permit, also in hidden folders.
//!
//! The search runs at the start of the gateway and at each start of a child, if a probed socket file in a closed
//! folder accepts a connection. A service that accepts all users checks its clients itself, so only its container
//! engines count. With `isolation.run_as`, only container engines that accept all users count.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

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
    collect(
        &PathBuf::from(format!("/tmp/tmux-{}", geteuid().as_raw())),
        0,
        &mut left,
        &mut found,
    );
    let outside = OUTSIDE
        .iter()
        .flat_map(|(folder, names)| names.iter().map(|name| Path::new(folder).join(name)));
    found.extend(outside);
    found.extend(
        home.into_iter()
            .flat_map(|home| IN_HOME.map(|name| home.join(name))),
    );
    let starts_programs = |path: &PathBuf| {
        if own_users {
            is_engine(path) && permits_all(path)
        } else {
            is_engine(path) || !permits_all(path)
        }
    };
    found
        .into_iter()
        .find(|path| starts_programs(path) && accepts(path))
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
