//! The properties of a process that are fixed at its start.

use std::path::PathBuf;

use super::spec::AgentSpec;
use crate::acp::ClientCapabilities;
use crate::types::{Isolation, Tenant};

/// A process serves only requests with an equal key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessKey {
    pub tenant: Tenant,
    /// The client capabilities that `initialize` offers.
    pub client_capabilities: ClientCapabilities,
    pub isolation: Isolation,
    /// The folders that the process may access. Empty if the isolation does not restrict folders.
    pub folders: Vec<PathBuf>,
}

impl ProcessKey {
    /// The key for a request with these folders.
    pub fn new(
        spec: &AgentSpec,
        tenant: Tenant,
        client_capabilities: ClientCapabilities,
        folders: Vec<PathBuf>,
    ) -> Self {
        let isolation = spec.settings.isolation;
        let folders = if isolation.restricts_folders() { folders } else { Vec::new() };
        Self { tenant, client_capabilities, isolation, folders }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_isolation_and_folders_are_part_of_the_key() {
        let mut spec = AgentSpec::removed("a".parse().unwrap());
        let folders = || vec![PathBuf::from("/work")];
        let key = |spec: &AgentSpec| {
            ProcessKey::new(spec, Tenant::default(), spec.client_capabilities(), folders())
        };
        assert_eq!(key(&spec).folders, folders());
        spec.settings.isolation = Isolation::Off;
        let key = key(&spec);
        assert!(key.folders.is_empty(), "without isolation a process serves every folder");
        assert_ne!(key, ProcessKey { folders: folders(), ..key.clone() });
        assert_ne!(key, ProcessKey { tenant: Tenant::new("other"), ..key.clone() });
    }
}
