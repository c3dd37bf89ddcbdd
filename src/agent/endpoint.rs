//! How the gateway reaches an agent.
//!
//! The record of a session states whether its folders are on another host. A changed entry must never move a path from
//! one host to another. The gateway does not replace a local folder by a remote one in messages: paths in updates
//! would be wrong, and clients could not serve files.

use std::ffi::OsString;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use http::{HeaderMap, Uri};

use crate::types::AgentKind;

/// The operator's definition of the way to an agent.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A child process with its program resolved.
    Command {
        program: PathBuf,
        args: Vec<OsString>,
    },
    /// A process of the member of the fleet with the name of the entry, and the roots of the member.
    Member(RemoteFolders),
    /// An agent on another host.
    Remote(Arc<RemoteEndpoint>),
    /// The entry of the configuration has an error, so there is no way to the agent.
    Invalid,
}

/// An agent that serves the remote transport of ACP.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteEndpoint {
    pub url: Uri,
    /// The headers of every request, with the credentials.
    pub headers: HeaderMap,
    /// Certificates in PEM that are trusted in addition to those of the system.
    pub ca_certificates: Option<Vec<u8>>,
    pub folders: RemoteFolders,
}

/// The folders of another host in which sessions may work. The first one is the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteFolders(pub Vec<String>);

impl Endpoint {
    pub fn kind(&self) -> AgentKind {
        match self {
            Self::Command { .. } | Self::Invalid => AgentKind::Local,
            Self::Remote(_) => AgentKind::Remote,
            Self::Member(_) => AgentKind::Fleet,
        }
    }

    /// The endpoint of an agent on another host.
    pub fn remote(&self) -> Option<&Arc<RemoteEndpoint>> {
        match self {
            Self::Remote(remote) => Some(remote),
            Self::Command { .. } | Self::Member(_) | Self::Invalid => None,
        }
    }

    /// The folders of an agent on another host. `None` if the agent runs on the host of the gateway.
    pub fn remote_folders(&self) -> Option<&RemoteFolders> {
        match self {
            Self::Remote(remote) => Some(&remote.folders),
            Self::Member(roots) => Some(roots),
            Self::Command { .. } | Self::Invalid => None,
        }
    }
}

impl RemoteEndpoint {
    /// The host with its port, for texts.
    pub fn host(&self) -> &str {
        self.url
            .authority()
            .map_or("", |authority| authority.as_str())
    }

    pub fn uses_tls(&self) -> bool {
        matches!(self.url.scheme_str(), Some("https" | "wss"))
    }

    /// Whether the agent is reached over HTTP with Server-Sent Events, and not over a WebSocket.
    pub fn uses_http(&self) -> bool {
        matches!(self.url.scheme_str(), Some("http" | "https"))
    }
}

impl RemoteFolders {
    /// The folder of a session: the requested one, or the first one. `None` if the requested folder is not below one of
    /// these folders. Compares names only, because the gateway cannot read the other host.
    pub fn folder(&self, requested: Option<&str>) -> Option<String> {
        let Some(requested) = requested else {
            return self.0.first().cloned();
        };
        let mut folder = PathBuf::new();
        for part in Path::new(requested).components() {
            match part {
                Component::RootDir | Component::Normal(_) => folder.push(part),
                Component::CurDir => {}
                Component::ParentDir | Component::Prefix(_) => return None,
            }
        }
        let allowed =
            !requested.contains('\0') && self.0.iter().any(|allowed| folder.starts_with(allowed));
        if allowed {
            folder.into_os_string().into_string().ok()
        } else {
            None
        }
    }
}

impl fmt::Debug for Endpoint {
    /// Omits arguments and headers, because they may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { program, .. } => f
                .debug_struct("Command")
                .field("program", program)
                .finish_non_exhaustive(),
            Self::Member(roots) => f.debug_tuple("Member").field(roots).finish(),
            Self::Remote(remote) => fmt::Debug::fmt(remote, f),
            Self::Invalid => f.write_str("Invalid"),
        }
    }
}

impl fmt::Debug for RemoteEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteEndpoint")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_of_a_session_lies_below_a_folder_of_the_entry() {
        let endpoint = RemoteEndpoint {
            url: Uri::from_static("wss://agent.example/acp"),
            headers: HeaderMap::new(),
            ca_certificates: None,
            folders: RemoteFolders(vec!["/srv/project".to_owned(), "/data".to_owned()]),
        };
        for (requested, folder) in [
            (None, "/srv/project"),
            (Some("/srv/project"), "/srv/project"),
            (Some("/srv/project/./a//b/"), "/srv/project/a/b"),
            (Some("/data"), "/data"),
        ] {
            assert_eq!(
                endpoint.folders.folder(requested).as_deref(),
                Some(folder),
                "{requested:?}"
            );
        }
        for outside in [
            "/",
            "/srv",
            "/srv/project-secret",
            "/srv/project/../x",
            "srv/project",
            "",
            "a",
            "/data/\0",
        ] {
            assert_eq!(endpoint.folders.folder(Some(outside)), None, "{outside}");
        }
        assert_eq!(
            (endpoint.host(), endpoint.uses_tls()),
            ("agent.example", true)
        );
        for (url, uses_tls, uses_http) in [
            ("wss://a/acp", true, false),
            ("ws://a/acp", false, false),
            ("https://a/acp", true, true),
            ("http://a/acp", false, true),
        ] {
            let endpoint = RemoteEndpoint {
                url: Uri::from_static(url),
                ..endpoint.clone()
            };
            assert_eq!(
                (endpoint.uses_tls(), endpoint.uses_http()),
                (uses_tls, uses_http),
                "{url}"
            );
        }
    }
}
