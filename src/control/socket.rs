//! The control socket: its files in the private folder, its messages, and the side of a command.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use base::telemetry::ErrorChain;
use base::types::Ids;

const SOCKET: &str = "control.sock";
const TOKEN: &str = "control.token";
/// A token has 43 bytes.
const MAX_TOKEN_BYTES: u64 = 1024;

pub struct BoundSocket {
    pub(super) listener: UnixListener,
    pub(super) token: Secret,
    pub(super) files: SocketFiles,
}

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

pub(super) fn connect(private: &Path) -> io::Result<(UnixStream, Secret)> {
    let mut token = String::new();
    let file = File::open(private.join(TOKEN))?;
    file.take(MAX_TOKEN_BYTES).read_to_string(&mut token)?;
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

/// The maximum size of a message. A path has at most 4 KiB.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// A text that must not be logged.
#[derive(Clone, PartialEq, Eq, derive_more::Debug, Serialize, Deserialize)]
#[debug("Secret")]
#[serde(transparent)]
pub struct Secret(pub String);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    OwnKey,
    /// A key for an editor. The key of an earlier connection stays in use if it is still valid.
    Editor(Option<Secret>),
    SignIn,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Request {
    /// The first request of each connection. A repetition changes nothing.
    Hello { token: Secret, access: Access },
    /// Grants access to a folder.
    Allow(String),
    /// Imports the session of a file in the private folder.
    Import { file: String, owner: Option<String> },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    pub url: String,
    pub key: Option<Secret>,
    /// Whether the gateway stops when nobody uses it. Then a command may start it again.
    pub exits_when_idle: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Reply {
    Welcome(Welcome),
    Allowed,
    /// The result of the import.
    Imported(Value),
    /// The request cannot succeed without a change.
    Rejected(String),
    Failed(String),
}

impl Reply {
    pub(super) fn failed(error: &dyn std::error::Error) -> Self {
        Self::Failed(ErrorChain(error).to_string())
    }
}

pub(super) fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages have string keys and serialize");
    line.push(b'\n');
    line
}

/// The gateway answers after a commit of its store.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The gateway checks and writes the whole session first.
const IMPORT_TIMEOUT: Duration = Duration::from_mins(10);

/// A connection to the gateway. Its methods block.
pub struct ControlClient {
    /// `None` after an error: a late reply must not count as the reply to the next request.
    stream: Option<BufReader<UnixStream>>,
    token: Secret,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("could not use the control socket of the gateway")]
    Io(#[from] io::Error),
    #[error(
        "the gateway did not answer, and the import may still finish: look for a new session before you import the file again"
    )]
    ImportUnanswered(#[source] io::Error),
    #[error("{0}")]
    Rejected(String),
    #[error("the gateway failed: {0}")]
    Failed(String),
    #[error(
        "the gateway sent an unexpected message on its control socket: it may have another version"
    )]
    Unexpected,
}

impl ControlClient {
    pub fn connect(private: &Path) -> Result<Self, ClientError> {
        let (stream, token) = connect(private)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self {
            stream: Some(BufReader::new(stream)),
            token,
        })
    }

    /// Must be the first call. A repetition checks that the gateway still serves the connection.
    pub fn hello(&mut self, access: Access) -> Result<Welcome, ClientError> {
        let request = Request::Hello {
            token: self.token.clone(),
            access,
        };
        match self.request(&request)? {
            Reply::Welcome(welcome) => Ok(welcome),
            _ => Err(ClientError::Unexpected),
        }
    }

    pub fn allow(&mut self, folder: &str) -> Result<(), ClientError> {
        match self.request(&Request::Allow(folder.to_owned()))? {
            Reply::Allowed => Ok(()),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Imports the session of the file with this name in the private folder.
    pub fn import(&mut self, file: &str, owner: Option<&str>) -> Result<Value, ClientError> {
        if let Some(stream) = &self.stream {
            stream.get_ref().set_read_timeout(Some(IMPORT_TIMEOUT))?;
        }
        let request = Request::Import {
            file: file.to_owned(),
            owner: owner.map(str::to_owned),
        };
        match self.request(&request) {
            Ok(Reply::Imported(imported)) => Ok(imported),
            Ok(_) => Err(ClientError::Unexpected),
            Err(ClientError::Io(error)) => Err(ClientError::ImportUnanswered(error)),
            Err(error) => Err(error),
        }
    }

    fn request(&mut self, request: &Request) -> Result<Reply, ClientError> {
        let mut stream = self
            .stream
            .take()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        let reply = exchange(&mut stream, request)?;
        self.stream = Some(stream);
        match reply {
            Reply::Rejected(reason) => Err(ClientError::Rejected(reason)),
            Reply::Failed(reason) => Err(ClientError::Failed(reason)),
            reply => Ok(reply),
        }
    }
}

fn exchange(stream: &mut BufReader<UnixStream>, request: &Request) -> Result<Reply, ClientError> {
    // The gateway can reject the process before it reads the request. Its reply has the reason.
    let written = stream.get_mut().write_all(&encode(request));
    let mut line = Vec::new();
    stream.take(MAX_BYTES as u64).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        written?;
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    serde_json::from_slice(&line).map_err(|_| ClientError::Unexpected)
}

#[cfg(test)]
mod client_tests {
    use super::*;

    #[test]
    fn late_reply_is_not_the_reply_to_the_next_request() {
        let (own, mut gateway) = UnixStream::pair().unwrap();
        own.set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let token = Secret("token".to_owned());
        let mut client = ControlClient {
            stream: Some(BufReader::new(own)),
            token,
        };
        assert!(
            matches!(client.allow("/one"), Err(ClientError::Io(_))),
            "no reply in time"
        );
        let _ = gateway.write_all(&encode(&Reply::Allowed));
        assert!(matches!(client.allow("/two"), Err(ClientError::Io(_))));
        // The gateway sees the end of the connection after the first request.
        let mut sent = String::new();
        gateway.read_to_string(&mut sent).unwrap();
        assert!(sent.contains("/one") && !sent.contains("/two"), "{sent}");
    }
}
