//! Uses a mechanism of isolation once, without a child, to show that it works on this machine.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::getpid;

use super::error::SupervisorError;
use super::stage::stage_command;
use super::{namespaces, restrict, user};
use crate::isolation::Confinement;
use base::types::Mechanism;

/// The name of a socket in the folder of the probe. The gateway removes the folder.
const PROBED_SOCKET: &str = "socket";

/// Runs a stage of the probe, for a child of another user if there is one.
pub(super) fn run(stage: &str, user: Option<u32>) -> Result<(), SupervisorError> {
    let is_partial = stage.ends_with("-partial");
    let of = |mechanism| Confinement {
        is_partial,
        user,
        ..confinement(mechanism)
    };
    match stage.strip_suffix("-partial").unwrap_or(stage) {
        "probe-namespaces" => probe_namespaces(&of(Mechanism::Namespaces)),
        "probe-init" => probe_init(&of(Mechanism::Namespaces)),
        "probe-landlock" => probe_landlock(&Confinement {
            user: None,
            ..of(Mechanism::Landlock)
        }),
        "probe-landlock-sockets" => probe_sockets(),
        _ => Err(SupervisorError::other("probe", "there is no such stage")),
    }
}

/// A confinement that hides `/etc`, because that folder exists on all machines and this process can list it.
fn confinement(mechanism: Mechanism) -> Confinement {
    Confinement {
        mechanism,
        hidden: vec![PathBuf::from("/etc")],
        ..Confinement::default()
    }
}

fn probe_namespaces(confinement: &Confinement) -> Result<(), SupervisorError> {
    namespaces::enter(confinement)?;
    let mut init = stage_command(if confinement.is_partial {
        "probe-init-partial"
    } else {
        "probe-init"
    });
    init.args(confinement.user.map(|user| user.to_string()));
    let init = init.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let init = init.map_err(SupervisorError::at("init process"))?;
    if init.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&init.stderr);
    Err(SupervisorError::other("init process", text.trim()))
}

fn probe_init(confinement: &Confinement) -> Result<(), SupervisorError> {
    let foreign = AbstractSocket::open()?;
    namespaces::complete(confinement)?;
    user::become_user(confinement)?;
    restrict::apply(confinement)?;
    if !confinement.is_partial {
        foreign.check_is_closed()?;
    }
    let is_init = getpid().as_raw_pid() == 1
        && fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == "1");
    if !is_init {
        return Err(SupervisorError::other(
            "PID namespace",
            "/proc shows other processes",
        ));
    }
    let visible = fs::read_dir("/etc").map_err(SupervisorError::at("mask"))?;
    let visible = visible.count();
    if visible == 0 {
        Ok(())
    } else {
        Err(SupervisorError::other("mask", "the content is visible"))
    }
}

fn probe_landlock(confinement: &Confinement) -> Result<(), SupervisorError> {
    let foreign = AbstractSocket::open()?;
    restrict::apply(confinement)?;
    if !confinement.is_partial {
        foreign.check_is_closed()?;
    }
    let tried = fs::read_dir("/etc");
    check_denied(tried, "the content of a closed folder is visible")
}

fn check_denied<T>(tried: io::Result<T>, shortcoming: &'static str) -> Result<(), SupervisorError> {
    match tried {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        _ => Err(SupervisorError::other("landlock", shortcoming)),
    }
}

/// A socket in the abstract namespace. It is created before this process restricts itself, so for Landlock the socket
/// belongs to another domain.
struct AbstractSocket {
    address: SocketAddr,
    _listener: UnixListener,
}

impl AbstractSocket {
    fn open() -> Result<Self, SupervisorError> {
        let number = getrandom::u64()
            .map_err(|error| SupervisorError::other("random number", error.to_string()))?;
        let opened = SocketAddr::from_abstract_name(format!("acp-gateway-probe-{number:016x}"))
            .and_then(|address| {
                Ok(Self {
                    _listener: UnixListener::bind_addr(&address)?,
                    address,
                })
            });
        opened.map_err(SupervisorError::at("abstract socket"))
    }

    fn check_is_closed(&self) -> Result<(), SupervisorError> {
        let tried = UnixStream::connect_addr(&self.address);
        check_denied(
            tried,
            "an abstract socket of another process accepts connections",
        )
    }
}

/// Tries to connect to a socket file in a closed folder, the working directory. The short path fits in an address.
fn probe_sockets() -> Result<(), SupervisorError> {
    let folder = std::env::current_dir().map_err(SupervisorError::at("folder"))?;
    let _listener = UnixListener::bind(PROBED_SOCKET).map_err(SupervisorError::at("socket"))?;
    restrict::apply(&Confinement {
        mechanism: Mechanism::Landlock,
        hidden: vec![folder],
        ..Confinement::default()
    })?;
    let tried = UnixStream::connect(PROBED_SOCKET);
    check_denied(
        tried,
        "a socket file in a closed folder accepts connections",
    )
}
