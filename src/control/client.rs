//! The side of a command: one connection, whose end revokes its key.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::message::{Access, MAX_BYTES, Reply, Request, Secret, Welcome, encode};
use super::socket;

/// The gateway answers after a commit of its store.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the gateway. Its methods block.
#[derive(Debug)]
pub struct ControlClient {
    /// `None` after an error: a late reply must not count as the reply to the next request.
    stream: Option<BufReader<UnixStream>>,
    token: Secret,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("could not use the control socket of the gateway")]
    Io(#[from] io::Error),
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
    /// Connects to the gateway with this private folder.
    pub fn connect(private: &Path) -> Result<Self, ClientError> {
        let (stream, token) = socket::connect(private)?;
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

    /// Grants a folder to the key of this connection.
    pub fn allow(&mut self, folder: &str) -> Result<(), ClientError> {
        match self.request(&Request::Allow {
            folder: folder.to_owned(),
        })? {
            Reply::Allowed => Ok(()),
            _ => Err(ClientError::Unexpected),
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
            Reply::Rejected { reason } => Err(ClientError::Rejected(reason)),
            Reply::Failed { reason } => Err(ClientError::Failed(reason)),
            reply => Ok(reply),
        }
    }
}

/// Sends a request, and reads its reply.
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
mod tests {
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
        drop(gateway.write_all(&encode(&Reply::Allowed)));
        assert!(matches!(client.allow("/two"), Err(ClientError::Io(_))));
        // The gateway sees the end of the connection after the first request.
        let mut sent = String::new();
        gateway.read_to_string(&mut sent).unwrap();
        assert!(sent.contains("/one") && !sent.contains("/two"), "{sent}");
    }
}
