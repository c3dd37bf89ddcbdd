//! The properties of a process that are fixed at its start.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::spec::AgentSpec;
use crate::acp::ClientCapabilities;
use crate::fleet::ChannelId;
use crate::jsonrpc::{CallId, IncomingId};
use crate::types::{Isolation, Tenant};

/// The session for which a process starts, if a process of the agent serves one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStart {
    /// The working directory of the session and of the process.
    pub cwd: PathBuf,
    /// The agent's id of the session to restore. `None` for a new session.
    pub restore: Option<Arc<str>>,
}

/// A process serves only requests with an equal key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessKey {
    pub tenant: Tenant,
    /// The client capabilities that `initialize` offers.
    pub client_capabilities: ClientCapabilities,
    pub isolation: Isolation,
    /// The folders that the process may access. Empty if the isolation does not restrict folders.
    pub folders: Vec<PathBuf>,
    /// `None` if a process of the agent serves any number of sessions, or if the request is for no session.
    pub session: Option<SessionStart>,
    /// The process of an earlier gateway process to continue with. `None` for a new process.
    pub channel: Option<Arc<FormerChannel>>,
}

/// A process of a member that an earlier gateway process has used, and the position of its session.
#[derive(Debug, Clone)]
pub struct FormerChannel {
    pub channel: ChannelId,
    /// The output before this offset is in the log.
    pub offset: u64,
    /// The result of `initialize`.
    pub initialize: Box<RawValue>,
    /// The open call of the prompt.
    pub call: Option<CallId>,
    /// The requests of the agent that are not answered, or whose answer may not have arrived, with the agent's ids.
    pub requests: Vec<(IncomingId, Box<RawValue>)>,
}

impl PartialEq for FormerChannel {
    /// Only one session continues with a channel.
    fn eq(&self, other: &Self) -> bool {
        self.channel == other.channel
    }
}

impl Eq for FormerChannel {}

impl ProcessKey {
    /// The key for a request with these folders. The first one is the working directory of the session. `restore`: the
    /// agent's id of a session with a conversation.
    pub fn new(
        spec: &AgentSpec,
        tenant: Tenant,
        client_capabilities: ClientCapabilities,
        folders: Vec<PathBuf>,
        restore: Option<Arc<str>>,
    ) -> Self {
        let isolation = spec.settings.isolation;
        let cwd = folders
            .first()
            .filter(|_| spec.settings.dialect.has_one_session())
            .cloned();
        let session = cwd.map(|cwd| SessionStart { cwd, restore });
        let folders = if isolation.restricts_folders() {
            folders
        } else {
            Vec::new()
        };
        Self {
            tenant,
            client_capabilities,
            isolation,
            folders,
            session,
            channel: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::AgentDialect;

    #[test]
    fn tenant_isolation_and_folders_are_part_of_the_key() {
        let mut spec = AgentSpec::removed("a".parse().unwrap());
        let folders = || vec![PathBuf::from("/work")];
        let key = |spec: &AgentSpec| {
            ProcessKey::new(
                spec,
                Tenant::default(),
                spec.client_capabilities(),
                folders(),
                None,
            )
        };
        assert_eq!(key(&spec).folders, folders());
        spec.settings.isolation = Isolation::Off;
        let key = key(&spec);
        assert!(
            key.folders.is_empty(),
            "without isolation a process serves every folder"
        );
        assert_ne!(
            key,
            ProcessKey {
                folders: folders(),
                ..key.clone()
            }
        );
        assert_ne!(
            key,
            ProcessKey {
                tenant: Tenant::new("other"),
                ..key.clone()
            }
        );
    }

    #[test]
    fn process_with_one_session_starts_for_its_folder_and_restore() {
        let mut spec = AgentSpec::removed("a".parse().unwrap());
        spec.settings.isolation = Isolation::Off;
        let key = |spec: &AgentSpec, folders: &[&str], restore: Option<&str>| {
            let folders = folders.iter().map(PathBuf::from).collect();
            let capabilities = spec.client_capabilities();
            ProcessKey::new(
                spec,
                Tenant::default(),
                capabilities,
                folders,
                restore.map(Into::into),
            )
        };
        assert_eq!(key(&spec, &["/a"], Some("id")), key(&spec, &["/b"], None));
        spec.settings.dialect = AgentDialect::StreamJson;
        assert_eq!(key(&spec, &["/a", "/x"], None), key(&spec, &["/a"], None));
        assert_ne!(key(&spec, &["/a"], None), key(&spec, &["/b"], None));
        assert_ne!(key(&spec, &["/a"], Some("id")), key(&spec, &["/a"], None));
        assert_eq!(
            key(&spec, &[], None).session,
            None,
            "a call without a session"
        );
    }
}
