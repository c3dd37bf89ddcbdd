//! The files of the control socket in the private folder.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::message::Secret;
use crate::types::Ids;

const SOCKET: &str = "control.sock";
const TOKEN: &str = "control.token";
/// A token has 43 bytes.
const MAX_TOKEN_BYTES: u64 = 1024;

/// A socket that accepts no connections yet, and the token that they need.
#[derive(Debug)]
pub struct BoundSocket {
    pub(super) listener: UnixListener,
    pub(super) token: Secret,
    pub(super) files: SocketFiles,
}

/// Removes the files at its drop.
#[derive(Debug)]
pub(super) struct SocketFiles(PathBuf);

impl Drop for SocketFiles {
    fn drop(&mut self) {
        for name in [SOCKET, TOKEN] {
            if let Err(error) = remove(&self.0.join(name)) {
                tracing::warn!(%error, "could not remove a file of the control socket");
            }
        }
    }
}

impl BoundSocket {
    /// Binds the socket in the private folder of a data folder, whose lock the caller holds.
    pub fn bind(private: &Path, ids: &Ids) -> io::Result<Self> {
        let files = SocketFiles(private.to_owned());
        remove(&private.join(SOCKET))?;
        remove(&private.join(TOKEN))?;
        let token = Secret(URL_SAFE_NO_PAD.encode(ids.secret()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(private.join(TOKEN))?;
        file.write_all(token.0.as_bytes())?;
        let (_folder, path) = short_path(private)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(private.join(SOCKET), Permissions::from_mode(0o600))?;
        Ok(Self {
            listener,
            token,
            files,
        })
    }
}

/// Connects to the gateway. Returns the token too.
pub(super) fn connect(private: &Path) -> io::Result<(UnixStream, Secret)> {
    let mut token = String::new();
    let file = File::open(private.join(TOKEN))?;
    io::Read::read_to_string(&mut io::Read::take(file, MAX_TOKEN_BYTES), &mut token)?;
    let (_folder, path) = short_path(private)?;
    Ok((UnixStream::connect(path)?, Secret(token)))
}

/// The path of the socket through the open folder. The address of a socket has at most 107 bytes.
fn short_path(private: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, private, flags, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()));
    Ok((folder, path))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
