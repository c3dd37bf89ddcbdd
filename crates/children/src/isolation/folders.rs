//! Folders that a running child gets after its start.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

use crate::SpawnError;
use crate::report::{self, Report};
use base::types::FolderError;

/// The supervisor mounts a folder in less than a millisecond.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The answer of a supervisor that has mounted all folders.
pub(crate) const GRANTED_LINE: &str = "granted\n";

pub(crate) fn error_line(error: &io::Error) -> String {
    match FolderError::inside(error) {
        Some(folder) => Report::Folder(folder.clone()).to_string(),
        None => format!("{}\n", error.to_string().replace('\n', " ")),
    }
}

/// A request to the supervisor, one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GrantRequest {
    pub(crate) folders: Vec<PathBuf>,
}

/// Grants folders to a running child. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FolderGrants(Arc<Mutex<BufReader<tokio::net::UnixStream>>>);

impl FolderGrants {
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = BufReader::new(tokio::net::UnixStream::from_std(socket)?);
        Ok(Self(Arc::new(Mutex::new(socket))))
    }

    /// Makes the folders visible to the child, which can then change them. They keep their paths.
    pub async fn grant(&self, folders: Vec<PathBuf>) -> Result<(), SpawnError> {
        let request = serde_json::to_string(&GrantRequest { folders }).map_err(io::Error::from);
        let request = request.map_err(SpawnError::Supervisor)? + "\n";
        let exchange = async {
            let mut socket = self.0.lock().await;
            socket.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            socket.read_line(&mut answer).await?;
            Ok(answer)
        };
        let answer = tokio::time::timeout(TIMEOUT, exchange).await;
        let answer = answer.map_err(|_| SpawnError::Timeout)?;
        match answer.map_err(SpawnError::Supervisor)?.as_str() {
            GRANTED_LINE => Ok(()),
            "" => Err(SpawnError::Supervisor(io::ErrorKind::UnexpectedEof.into())),
            text => Err(match report::parse_folder(text) {
                Some(error) => error.into(),
                None => SpawnError::Setup(text.trim_end().to_owned()),
            }),
        }
    }
}
