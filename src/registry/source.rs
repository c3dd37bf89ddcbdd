//! The file of a registry and its archives: at a URL, or in a folder of this machine.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::outgoing::{Client, RequestError, read_body};

/// The registry of the ACP project.
pub const DEFAULT_SOURCE: &str =
    "https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json";
/// The size of a registry, and of an archive.
const MAX_INDEX_BYTES: usize = 8 << 20;
const MAX_ARCHIVE_BYTES: u64 = 1 << 30;
/// The number of redirects. Releases of GitHub redirect to another host.
const MAX_REDIRECTS: usize = 5;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time without a byte of an archive.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("could not read {}", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("could not write {}", .path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{url:?} is not a URL with https, or with http of this machine")]
    Url { url: String },
    #[error("could not load {url}")]
    Request { url: String, source: RequestError },
    #[error("{url} answered with status {status}")]
    Status { url: String, status: u16 },
    #[error("{url} did not answer in time")]
    Timeout { url: String },
    #[error("{url} redirects too often")]
    Redirects { url: String },
    #[error("{name} is larger than the limit of {limit} bytes")]
    TooLarge { name: String, limit: u64 },
}

/// Where a registry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Url(String),
    File(PathBuf),
}

impl Source {
    pub fn parse(text: &str) -> Self {
        if text.contains("://") {
            Self::Url(text.to_owned())
        } else {
            Self::File(text.into())
        }
    }

    /// Whether it needs TLS.
    pub fn uses_tls(&self) -> bool {
        matches!(self, Self::Url(url) if url.starts_with("https:"))
    }

    /// The file of the registry.
    pub async fn load(&self, client: &Client) -> Result<Bytes, SourceError> {
        match self {
            Self::Url(url) => {
                let response = get(client, url).await?;
                let read = timeout(SILENCE_TIMEOUT, read_body(response, MAX_INDEX_BYTES)).await;
                let read = read.map_err(|_| SourceError::Timeout { url: url.clone() })?;
                read.map_err(|source| SourceError::Request {
                    url: url.clone(),
                    source,
                })
            }
            Self::File(path) => {
                let read = |source| SourceError::Read {
                    path: path.clone(),
                    source,
                };
                let mut file = open_regular(path, MAX_INDEX_BYTES as u64)?;
                let mut content = Vec::new();
                file.read_to_end(&mut content).map_err(read)?;
                Ok(content.into())
            }
        }
    }

    /// Copies an archive to a file. Returns its SHA-256. An archive of a registry on this machine can be a path relative to
    /// the registry.
    pub(super) async fn fetch(
        &self,
        client: &Client,
        archive: &str,
        to: &Path,
    ) -> Result<[u8; 32], SourceError> {
        if archive.contains("://") {
            return download(client, archive, to).await;
        }
        let Self::File(registry) = self else {
            return Err(SourceError::Url {
                url: archive.to_owned(),
            });
        };
        let from = registry.parent().unwrap_or(Path::new("")).join(archive);
        let read = |source| SourceError::Read {
            path: from.clone(),
            source,
        };
        let mut file = open_regular(&from, MAX_ARCHIVE_BYTES)?;
        let mut copy = File::create(to).map_err(read)?;
        std::io::copy(&mut file, &mut copy).map_err(read)?;
        let mut file = File::open(to).map_err(read)?;
        let mut hash = Sha256::new();
        std::io::copy(&mut file, &mut HashWriter(&mut hash)).map_err(read)?;
        Ok(hash.finalize().into())
    }
}

/// Opens a file of this machine. The path can be in the file of a registry, and a FIFO or a device would block the read or
/// never end.
fn open_regular(path: &Path, limit: u64) -> Result<File, SourceError> {
    let read = |source| SourceError::Read {
        path: path.to_owned(),
        source,
    };
    let mut options = OpenOptions::new();
    // Opening a FIFO waits for its writer otherwise.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = options.read(true).custom_flags(nonblock).open(path);
    let file = file.map_err(read)?;
    let metadata = file.metadata().map_err(read)?;
    if !metadata.is_file() {
        return Err(read(Error::new(
            ErrorKind::InvalidInput,
            "it is not a regular file",
        )));
    }
    if metadata.len() > limit {
        let name = path.display().to_string();
        return Err(SourceError::TooLarge { name, limit });
    }
    Ok(file)
}

/// Writes to a hash.
struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn download(client: &Client, url: &str, to: &Path) -> Result<[u8; 32], SourceError> {
    let mut body = get(client, url).await?.into_body();
    let write = |source| SourceError::Write {
        path: to.to_owned(),
        source,
    };
    let mut file = File::create(to).map_err(write)?;
    let (mut hash, mut size) = (Sha256::new(), 0_u64);
    loop {
        let frame = timeout(SILENCE_TIMEOUT, body.frame()).await;
        let frame = frame.map_err(|_| SourceError::Timeout {
            url: url.to_owned(),
        })?;
        let Some(frame) = frame else {
            return Ok(hash.finalize().into());
        };
        let frame = frame.map_err(|error| SourceError::Request {
            url: url.to_owned(),
            source: RequestError::interrupted(&error),
        })?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        size += data.len() as u64;
        if size > MAX_ARCHIVE_BYTES {
            return Err(SourceError::TooLarge {
                name: url.to_owned(),
                limit: MAX_ARCHIVE_BYTES,
            });
        }
        hash.update(data);
        file.write_all(data).map_err(write)?;
    }
}

/// The response to a GET, after redirects.
async fn get(client: &Client, url: &str) -> Result<Response<Incoming>, SourceError> {
    let mut next = url.to_owned();
    for _ in 0..=MAX_REDIRECTS {
        let request = Request::get(checked(&next)?)
            .header(
                header::USER_AGENT,
                concat!("acp-gateway/", env!("CARGO_PKG_VERSION")),
            )
            .body(Full::new(Bytes::new()));
        let request = request.map_err(|_| SourceError::Url { url: next.clone() })?;
        let response = timeout(RESPONSE_TIMEOUT, client.send(request)).await;
        let response = response.map_err(|_| SourceError::Timeout {
            url: url.to_owned(),
        })?;
        let response = response.map_err(|source| SourceError::Request {
            url: url.to_owned(),
            source,
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let location = response
            .headers()
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok());
        match location.filter(|_| status.is_redirection()) {
            Some(location) => next = redirected(&next, location)?,
            None => {
                return Err(SourceError::Status {
                    url: url.to_owned(),
                    status: status.as_u16(),
                });
            }
        }
    }
    Err(SourceError::Redirects {
        url: url.to_owned(),
    })
}

/// The target of a redirect. One from https leads to https.
fn redirected(from: &str, location: &str) -> Result<String, SourceError> {
    let wrong = || SourceError::Url {
        url: location.to_owned(),
    };
    if location.starts_with('/') && !location.starts_with("//") {
        let from: Uri = from.parse().map_err(|_| wrong())?;
        let (scheme, authority) = (
            from.scheme_str().ok_or_else(wrong)?,
            from.authority().ok_or_else(wrong)?,
        );
        return Ok(format!("{scheme}://{authority}{location}"));
    }
    if from.starts_with("https:") && !location.starts_with("https:") {
        Err(wrong())
    } else {
        Ok(location.to_owned())
    }
}

/// A URL with https. A URL with http must name this machine.
fn checked(url: &str) -> Result<Uri, SourceError> {
    let parsed: Option<Uri> = url.parse().ok();
    let is_loopback = |host: &str| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || host
                .parse()
                .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    };
    let allowed = |url: &Uri| match (url.scheme_str(), url.host()) {
        (Some("https"), Some(_)) => true,
        (Some("http"), Some(host)) => is_loopback(host),
        _ => false,
    };
    parsed.filter(allowed).ok_or_else(|| SourceError::Url {
        url: url.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_leaves_this_machine() {
        for url in [
            "https://x.example/a",
            "http://127.0.0.1:8/a",
            "http://[::1]:8/a",
            "http://localhost/a",
        ] {
            assert!(checked(url).is_ok(), "{url}");
        }
        for url in [
            "http://x.example/a",
            "file:///etc/passwd",
            "/a",
            "ftp://localhost/a",
            "",
        ] {
            assert!(checked(url).is_err(), "{url}");
        }
        let from = "https://x.example/a/b";
        assert_eq!(redirected(from, "/c?d").unwrap(), "https://x.example/c?d");
        assert_eq!(
            redirected(from, "https://y.example/c").unwrap(),
            "https://y.example/c"
        );
        for wrong in ["http://127.0.0.1/c", "//y.example/c", "c"] {
            assert!(redirected(from, wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            Source::parse("registry.json"),
            Source::File("registry.json".into())
        );
    }
}
