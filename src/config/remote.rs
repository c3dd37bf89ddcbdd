//! The keys of an agent on another host.

use std::collections::BTreeMap;

use http::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderName, HeaderValue, Uri};

use super::ca_file::{self, CaFile};
use super::error::ConfigError;
use super::kinds::strings;
use super::secret::{self, Secret};
use super::section::{Field, Section};
use crate::types::network::is_loopback_url;
use crate::types::url_port;

/// An agent on another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    pub url: Uri,
    pub headers: BTreeMap<String, Secret>,
    /// The value of `Authorization: Bearer`.
    pub token: Option<Secret>,
    pub ca_file: Option<CaFile>,
    /// Folders of the other host.
    pub folders: Vec<String>,
    pub insecure_http: bool,
}

pub(super) fn read(section: &mut Section, url: &Field) -> Result<Remote, ConfigError> {
    let insecure_http = section
        .take("insecure_http")
        .map_or(Ok(false), |field| field.boolean())?;
    let token = section.take("token").map(read_token).transpose()?;
    let headers = section
        .take("headers")
        .map_or(Ok(BTreeMap::new()), |field| {
            secret::read_all(field, is_header)
        })?;
    if token.is_some()
        && headers
            .keys()
            .any(|name| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()))
    {
        return Err(
            section.invalid("has both token and the header Authorization; remove one of them")
        );
    }
    if let Some((name, _)) = headers
        .iter()
        .find(|(_, value)| HeaderValue::try_from(value.expose()).is_err())
    {
        return Err(section.invalid(format!(
            "the value of the header {name} has invalid characters"
        )));
    }
    let Some(folders) = section.take("remote_folders") else {
        return Err(section.invalid(
            "needs remote_folders, the absolute folders of the agent's host in which sessions may work",
        ));
    };
    Ok(Remote {
        url: read_url(url, insecure_http)?,
        headers,
        token,
        ca_file: section
            .take("ca_file")
            .map(|field| ca_file::read(&field))
            .transpose()?,
        folders: read_folders(folders)?,
        insecure_http,
    })
}

fn read_token(field: Field) -> Result<Secret, ConfigError> {
    let invalid = field.invalid("must have only visible ASCII characters");
    let token = Secret::read(field)?;
    let is_valid =
        !token.expose().is_empty() && token.expose().bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid { Ok(token) } else { Err(invalid) }
}

fn read_folders(field: Field) -> Result<Vec<String>, ConfigError> {
    let wrong = field.invalid("needs at least one folder");
    let folders = field.each(|item| {
        let folder = item.string()?;
        let is_absolute =
            folder.starts_with('/') && !folder.split('/').any(|part| matches!(part, "." | ".."));
        if is_absolute {
            Ok(folder.to_owned())
        } else {
            Err(item.invalid("must be an absolute path without . and .."))
        }
    })?;
    if folders.is_empty() {
        Err(wrong)
    } else {
        Ok(folders)
    }
}

fn read_url(field: &Field, insecure_http: bool) -> Result<Uri, ConfigError> {
    let text = field.string()?;
    if text.contains('@') {
        return Err(field.invalid("must not contain credentials: use token or headers"));
    }
    let invalid =
        || field.invalid("not a URL such as https://HOST/acp or wss://HOST/acp, without a query");
    let url: Uri = text.parse().map_err(|_| invalid())?;
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    if !has_host || url.query().is_some() || text.contains('#') {
        return Err(invalid());
    }
    url_port(&url).map_err(|error| field.invalid(error.to_string()))?;
    match url.scheme_str() {
        Some("wss" | "https") => Ok(url),
        Some("ws" | "http") if insecure_http || is_loopback_url(&url) => Ok(url),
        Some("ws" | "http") => Err(field.invalid(
            "sends everything unencrypted to another host: use https:// or wss://, or set insecure_http = true",
        )),
        _ => Err(invalid()),
    }
}

/// Headers that the operator may set. The transport sets the others itself.
fn is_header(name: &str) -> bool {
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        return false;
    };
    let own = [
        ACCEPT,
        CONNECTION,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        HOST,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    let starts = ["sec-websocket-", "acp-", "last-event-id", "proxy-"];
    !own.contains(&name) && !starts.iter().any(|start| name.as_str().starts_with(start))
}

/// The values for `check`, without secrets. A value that is not set is empty.
pub(super) fn shown(remote: &Remote) -> [(&'static str, String); 5] {
    let token = remote
        .token
        .as_ref()
        .map_or(String::new(), |token| token.shown().to_owned());
    let ca_file = remote
        .ca_file
        .as_ref()
        .map(|file| super::toml_text::quoted(&file.path.to_string_lossy()));
    [
        ("token", token),
        ("headers", secret::show_all(&remote.headers)),
        ("ca_file", ca_file.unwrap_or_default()),
        ("remote_folders", (strings().show)(&remote.folders)),
        ("insecure_http", remote.insecure_http.to_string()),
    ]
}
