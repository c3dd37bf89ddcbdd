//! The file of a registry and its archives: at a URL, or in a folder of this machine.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use outgoing::{Client, RequestError, read_body};

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

/// The log and the page show these errors, so their URLs are without credentials, see [`shown`].
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("could not read {}", .0.display())]
    Read(PathBuf, #[source] Error),
    #[error("could not write {}", .0.display())]
    Write(PathBuf, #[source] Error),
    #[error("{0:?} is not a URL with https, or with http of this machine")]
    Url(String),
    #[error("could not load {0}")]
    Request(String, #[source] RequestError),
    #[error("{0} answered with status {1}")]
    Status(String, u16),
    #[error("{0} did not answer in time")]
    Timeout(String),
    #[error("{0} redirects too often")]
    Redirects(String),
    #[error("{0} is larger than the limit of {1} bytes")]
    TooLarge(String, u64),
}

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

    /// The host of a URL, or the file. A URL can have a password.
    pub fn place(&self) -> String {
        match self {
            Self::Url(url) => {
                let url: Option<Uri> = url.parse().ok();
                let host = url.as_ref().and_then(Uri::host);
                host.unwrap_or_default().to_owned()
            }
            Self::File(path) => path.display().to_string(),
        }
    }

    pub fn uses_tls(&self) -> bool {
        matches!(self, Self::Url(url) if url.starts_with("https:"))
    }

    pub async fn load(&self, client: &Client) -> Result<Bytes, SourceError> {
        match self {
            Self::Url(url) => {
                let response = get(client, url).await?;
                within(url, SILENCE_TIMEOUT, read_body(response, MAX_INDEX_BYTES)).await
            }
            Self::File(path) => {
                let mut file = open_regular(path, MAX_INDEX_BYTES as u64)?;
                let mut content = Vec::new();
                let read = file.read_to_end(&mut content);
                read.map_err(|error| SourceError::Read(path.to_owned(), error))?;
                Ok(content.into())
            }
        }
    }

    /// Copies an archive to a file. Returns its SHA-256 in hexadecimal. A download calls `progress` with its bytes so far and
    /// in total. An archive of a registry on this machine can be a path
    /// relative to the registry.
    pub(super) async fn fetch(
        &self,
        client: &Client,
        archive: &str,
        to: &Path,
        progress: &dyn Fn(u64, Option<u64>),
    ) -> Result<String, SourceError> {
        progress(0, None);
        if archive.contains("://") {
            download(client, archive, to, progress).await?;
        } else {
            let Self::File(registry) = self else {
                return Err(SourceError::Url(shown(archive)));
            };
            let from = registry.parent().unwrap_or(Path::new("")).join(archive);
            let mut file = open_regular(&from, MAX_ARCHIVE_BYTES)?;
            let copied = File::create(to).and_then(|mut copy| std::io::copy(&mut file, &mut copy));
            copied.map_err(|error| SourceError::Read(from.clone(), error))?;
        }
        sha256(to).map_err(|error| SourceError::Read(to.to_owned(), error))
    }
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 64 << 10];
    loop {
        match file.read(&mut block)? {
            0 => break,
            read => hash.update(&block[..read]),
        }
    }
    let mut hex = String::new();
    for byte in hash.finalize() {
        hex += &format!("{byte:02x}");
    }
    Ok(hex)
}

async fn within<T>(
    url: &str,
    time: Duration,
    step: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, SourceError> {
    match timeout(time, step).await {
        Ok(done) => done.map_err(|error| SourceError::Request(shown(url), error)),
        Err(_) => Err(SourceError::Timeout(shown(url))),
    }
}

/// Opens a file of this machine. The path can be in the file of a registry, and a FIFO or a device would block the read or
/// never end.
fn open_regular(path: &Path, limit: u64) -> Result<File, SourceError> {
    let read = |error| SourceError::Read(path.to_owned(), error);
    let mut options = OpenOptions::new();
    // Opening a FIFO waits for its writer otherwise.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = options.read(true).custom_flags(nonblock).open(path);
    let file = file.map_err(read)?;
    let metadata = file.metadata().map_err(read)?;
    if !metadata.is_file() {
        let detail = "it is not a regular file";
        return Err(read(Error::new(ErrorKind::InvalidInput, detail)));
    }
    if metadata.len() > limit {
        return Err(SourceError::TooLarge(path.display().to_string(), limit));
    }
    Ok(file)
}

async fn download(
    client: &Client,
    url: &str,
    to: &Path,
    progress: &dyn Fn(u64, Option<u64>),
) -> Result<(), SourceError> {
    let mut body = get(client, url).await?.into_body();
    let total = body.size_hint().exact();
    let write = |error| SourceError::Write(to.to_owned(), error);
    let mut file = File::create(to).map_err(write)?;
    let mut size = 0_u64;
    loop {
        let frame = async {
            let frame = body.frame().await.transpose();
            frame.map_err(|error| RequestError::interrupted(&error))
        };
        let Some(frame) = within(url, SILENCE_TIMEOUT, frame).await? else {
            return Ok(());
        };
        let Some(data) = frame.data_ref() else {
            continue;
        };
        size += data.len() as u64;
        if size > MAX_ARCHIVE_BYTES {
            return Err(SourceError::TooLarge(shown(url), MAX_ARCHIVE_BYTES));
        }
        file.write_all(data).map_err(write)?;
        progress(size, total);
    }
}

async fn get(client: &Client, url: &str) -> Result<Response<Incoming>, SourceError> {
    let mut next = url.to_owned();
    for _ in 0..=MAX_REDIRECTS {
        let agent = concat!("acp-gateway/", env!("CARGO_PKG_VERSION"));
        let request = Request::get(checked(&next)?).header(header::USER_AGENT, agent);
        let request = request.body(Full::new(Bytes::new()));
        let request = request.map_err(|_| SourceError::Url(shown(&next)))?;
        let response = within(url, RESPONSE_TIMEOUT, client.send(request)).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let location = response.headers().get(header::LOCATION);
        match location.and_then(|value| value.to_str().ok()) {
            Some(location) if status.is_redirection() => next = redirected(&next, location)?,
            _ => return Err(SourceError::Status(shown(url), status.as_u16())),
        }
    }
    Err(SourceError::Redirects(shown(url)))
}

/// The URL without its user, query and fragment.
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_at(url.find("//").map_or(0, |at| at + 2));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}{host}{path}")
}

/// The target of a redirect. One from https leads to https.
fn redirected(from: &str, location: &str) -> Result<String, SourceError> {
    let wrong = || SourceError::Url(shown(location));
    if location.starts_with('/') && !location.starts_with("//") {
        let from: Uri = from.parse().map_err(|_| wrong())?;
        let scheme = from.scheme_str().ok_or_else(wrong)?;
        let authority = from.authority().ok_or_else(wrong)?;
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
        let address = host.parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    };
    let allowed = |url: &Uri| match (url.scheme_str(), url.host()) {
        (Some("https"), Some(_)) => true,
        (Some("http"), Some(host)) => is_loopback(host),
        _ => false,
    };
    parsed
        .filter(allowed)
        .ok_or_else(|| SourceError::Url(shown(url)))
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
        let secret = "https://user:secret@x.example:8/a@b?secret#secret";
        let error = redirected(from, &secret.replace("https", "http")).unwrap_err();
        assert!(
            error.to_string().contains("\"http://x.example:8/a@b\""),
            "{error}"
        );
        assert_eq!(shown(secret), "https://x.example:8/a@b");
        assert_eq!(shown("//user:secret@x.example"), "//x.example");
        assert_eq!(
            Source::parse("registry.json"),
            Source::File("registry.json".into())
        );
    }
}
