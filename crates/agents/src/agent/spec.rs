//! The operator's definition of an agent. Clients name an agent and never define one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use http::{HeaderMap, Uri};

use crate::agent::{AgentSettings, PoolSettings};
use base::types::{AgentDialect, AgentName, Isolation, Tenant};
use events::api::AgentKind;
use wire::acp::{AcpVersion, ClientCapabilities, KnownAgent, McpServer};

/// One `[agents.<name>]` entry with its endpoint resolved and its secrets read.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("AgentSpec({name}, {endpoint:?})")]
pub struct AgentSpec {
    pub name: AgentName,
    pub known: Option<Known>,
    /// The title in lists. The agent's own `agentInfo.title` has precedence.
    pub title: String,
    pub endpoint: Endpoint,
    /// The complete environment of the process except `HOME`.
    pub env: Vec<(OsString, OsString)>,
    /// Values that are masked in stderr, including those of `mcp`.
    pub secrets: Vec<String>,
    /// The MCP servers that its sessions may use, by name. A process receives only the servers of its own
    /// entry, because it does not mask the secrets of others.
    pub mcp: Arc<BTreeMap<String, McpServer>>,
    pub home: Home,
    pub settings: AgentSettings,
}

/// The reason why an agent cannot start whose entry has an error. Clients do not see the error itself, because it may quote
/// a value of the file.
pub const INVALID_ENTRY: &str = "its entry in the configuration is invalid: `acp-gateway check` and the gateway's log show the error";

impl AgentSpec {
    /// A placeholder for an entry that was removed from the configuration. Its sessions can be read but not prompted.
    pub fn removed(name: AgentName) -> Self {
        let pool = PoolSettings {
            max_size: 0,
            min_idle: 0,
            ..PoolSettings::default()
        };
        Self {
            title: name.to_string(),
            name,
            known: None,
            endpoint: Endpoint::Command {
                program: PathBuf::new(),
                args: Vec::new(),
            },
            env: Vec::new(),
            secrets: Vec::new(),
            mcp: Arc::default(),
            home: Home::Dedicated(PathBuf::new()),
            settings: AgentSettings {
                pool,
                ..AgentSettings::default()
            },
        }
    }

    /// The entry of a member of the fleet. The gateway starts no process for it, and serves neither files nor terminals.
    pub fn member(
        name: AgentName,
        capacity: usize,
        roots: Vec<String>,
        dialect: AgentDialect,
    ) -> Self {
        let mut spec = Self::removed(name);
        spec.endpoint = Endpoint::Member(RemoteFolders(roots));
        spec.settings.pool.max_size = capacity;
        spec.settings.pool.reserved = PoolSettings::default_reserved(capacity);
        spec.settings.isolation = Isolation::Off;
        spec.settings.dialect = dialect;
        spec
    }

    /// The entry of an agent whose configuration has an error. Its sessions can be read; every start fails.
    pub fn invalid(name: AgentName, homes: PathBuf) -> Self {
        let mut spec = Self::removed(name);
        spec.endpoint = Endpoint::Invalid;
        spec.home = Home::Dedicated(homes);
        spec.settings.pool.max_size = PoolSettings::default().max_size;
        spec
    }

    pub fn is_member(&self) -> bool {
        matches!(self.endpoint, Endpoint::Member(_))
    }

    /// The maximum size of a line on a connection. A translation checks the lines of its agent, and can repeat a content of a
    /// line: a file is a diff and the input of its tool.
    pub fn max_connection_line_bytes(&self) -> usize {
        let max = self.settings.max_line_bytes;
        if self.settings.dialect == AgentDialect::Acp {
            max
        } else {
            max.saturating_mul(4).saturating_add(1 << 20)
        }
    }

    pub(super) fn requests_v2(&self) -> bool {
        AcpVersion::from_number(self.settings.protocol) == Some(AcpVersion::V2)
    }

    pub fn has_variable(&self, name: &str) -> bool {
        self.env.iter().any(|(known, _)| known == name)
    }

    /// The home directory of the processes of a tenant.
    pub fn home_of(&self, tenant: &Tenant) -> PathBuf {
        match &self.home {
            Home::Dedicated(folder) => folder.join(tenant.as_str()).join(self.name.as_str()),
            Home::User(path) => path.clone(),
        }
    }

    /// Creates the home directory of a tenant, unless it is the operator's own. Blocks on the file system.
    pub fn create_home(&self, tenant: &Tenant) -> std::io::Result<()> {
        match self.home {
            Home::Dedicated(_) => {
                let mut builder = DirBuilder::new();
                builder.mode(0o700).recursive(true);
                builder.create(self.home_of(tenant))
            }
            Home::User(_) => Ok(()),
        }
    }

    /// The client capabilities that the agent gets if the session does not restrict them.
    pub fn client_capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::new(self.settings.files, self.settings.terminals)
    }
}

/// The row of the table of known agents that describes an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub row: &'static KnownAgent,
    /// The agent receives the variables of its row from the gateway's environment.
    pub inherits: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// `<folder>/<tenant>/<agent>`.
    Dedicated(PathBuf),
    /// The operator's own home: one trust domain with the gateway.
    User(PathBuf),
}

/// The operator's definition of the way to an agent.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// Arguments and headers may contain secrets.
pub enum Endpoint {
    /// A child process with its program resolved.
    #[debug("Command({program:?})")]
    Command {
        program: PathBuf,
        args: Vec<OsString>,
    },
    /// A process of the member of the fleet with the name of the entry, and the roots of the member.
    Member(RemoteFolders),
    Remote(Arc<RemoteEndpoint>),
    /// The entry of the configuration has an error, so there is no way to the agent.
    Invalid,
}

/// An agent that serves the remote transport of ACP.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("RemoteEndpoint({url})")]
pub struct RemoteEndpoint {
    pub url: Uri,
    /// The headers of every request, with the credentials.
    pub headers: HeaderMap,
    /// Certificates in PEM that are trusted in addition to those of the system.
    pub ca_certificates: Option<Vec<u8>>,
    pub folders: RemoteFolders,
}

/// The folders of an agent that is not a child process of the gateway, in which sessions may work. The first one is the default.
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

    pub fn is_child(&self) -> bool {
        self.kind() == AgentKind::Local
    }

    /// The folders of an agent that is not a child process of the gateway. `None` for a child process.
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

#[cfg(test)]
mod endpoint_tests {
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
