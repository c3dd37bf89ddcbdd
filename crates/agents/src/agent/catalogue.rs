//! The catalogue: all agents that clients may name, and their current entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::spec::AgentSpec;
use base::types::AgentName;

/// The agents of one version of the configuration. Immutable: a reload replaces it.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    agents: BTreeMap<AgentName, Arc<AgentSpec>>,
}

impl Catalogue {
    pub fn new(agents: impl IntoIterator<Item = AgentSpec>) -> Self {
        Self::default().with_members(agents)
    }

    /// Reuses the entries of `previous` that have not changed. A change of an MCP server changes every entry,
    /// because each entry contains all servers: any session may use them.
    #[must_use]
    pub fn reusing_entries_of(mut self, previous: &Self) -> Self {
        for (name, spec) in &mut self.agents {
            if let Some(old) = previous.agents.get(name).filter(|old| *old == spec) {
                *spec = Arc::clone(old);
            }
        }
        self
    }

    /// Adds the entries of members of the fleet. A configured agent keeps its name.
    #[must_use]
    pub fn with_members(mut self, members: impl IntoIterator<Item = AgentSpec>) -> Self {
        for spec in members {
            self.agents
                .entry(spec.name.clone())
                .or_insert_with(|| Arc::new(spec));
        }
        self
    }

    pub fn agent(&self, name: &AgentName) -> Option<&Arc<AgentSpec>> {
        self.agents.get(name)
    }

    pub fn agents(&self) -> impl Iterator<Item = &Arc<AgentSpec>> {
        self.agents.values()
    }
}

/// A cheap handle of the current catalogue. A caller that has loaded an entry continues with that entry.
#[derive(Debug, Clone)]
pub struct CurrentCatalogue(watch::Receiver<Arc<Catalogue>>);

impl CurrentCatalogue {
    /// Creates the handle, and the only sender that replaces the catalogue.
    pub fn new(catalogue: Arc<Catalogue>) -> (watch::Sender<Arc<Catalogue>>, Self) {
        let (sender, receiver) = watch::channel(catalogue);
        (sender, Self(receiver))
    }

    pub fn load(&self) -> Arc<Catalogue> {
        Arc::clone(&self.0.borrow())
    }

    pub fn agent(&self, name: &AgentName) -> Option<Arc<AgentSpec>> {
        self.load().agent(name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Endpoint;
    use wire::acp::McpServer;

    fn spec(name: &str, arg: &str, mcp: &Arc<BTreeMap<String, McpServer>>) -> AgentSpec {
        let mcp = Arc::clone(mcp);
        let endpoint = Endpoint::Command {
            program: "a".into(),
            args: vec![arg.into()],
        };
        AgentSpec {
            endpoint,
            mcp,
            ..AgentSpec::removed(name.parse().unwrap())
        }
    }

    fn server(command: &str) -> Arc<BTreeMap<String, McpServer>> {
        let server = McpServer::Stdio {
            transport: None,
            name: "docs".into(),
            command: command.into(),
            args: Vec::new(),
            env: Vec::new(),
        };
        Arc::new([("docs".to_owned(), server)].into())
    }

    #[test]
    fn reload_reuses_unchanged_entries() {
        let x = server("x");
        let first = Catalogue::new([spec("a", "1", &x), spec("b", "1", &x), spec("c", "1", &x)]);
        let x = server("x");
        let second =
            Catalogue::new([spec("a", "1", &x), spec("b", "2", &x)]).reusing_entries_of(&first);
        let same = |one: &Catalogue, other: &Catalogue, name: &str| {
            let name: AgentName = name.parse().unwrap();
            Arc::ptr_eq(one.agent(&name).unwrap(), other.agent(&name).unwrap())
        };
        assert!(same(&first, &second, "a"));
        assert!(!same(&first, &second, "b"));
        assert!(second.agent(&"c".parse().unwrap()).is_none());
        let y = server("y");
        let third =
            Catalogue::new([spec("a", "1", &y), spec("b", "2", &y)]).reusing_entries_of(&second);
        assert!(
            !same(&second, &third, "a") && !same(&second, &third, "b"),
            "every entry contains the server"
        );
    }
}
