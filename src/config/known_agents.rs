//! The agents without a configuration file: the built-in demo agent, and known commands on PATH.

use std::collections::BTreeMap;

use super::agent::{Agent, Home, Launch};
use super::environment::Environment;
use super::secret::Secret;
use crate::types::AgentName;
use crate::types::known_agents::{DEMO_NAME, KNOWN, KnownAgent};

/// Returns the default agents. `on_path` returns true if a program exists; no program runs. Commands on PATH
/// are included only if `search` is true.
pub(super) fn default_agents(
    search: bool,
    on_path: &dyn Fn(&str) -> bool,
    environment: &Environment,
) -> BTreeMap<AgentName, Agent> {
    let name = |name: &str| {
        name.parse::<AgentName>()
            .expect("the names in the table are valid agent names")
    };
    let mut agents = BTreeMap::from([(name(DEMO_NAME), Agent::new(Launch::Demo))]);
    if search {
        let found = KNOWN.iter().filter_map(|known| {
            let command = known.commands.iter().find(|command| on_path(command))?;
            Some((
                name(known.name),
                discovered_agent(known, command, environment),
            ))
        });
        agents.extend(found);
    }
    agents
}

fn discovered_agent(known: &KnownAgent, command: &str, environment: &Environment) -> Agent {
    let args = known.args.iter().map(|arg| (*arg).to_owned()).collect();
    let mut agent = Agent::new(Launch::Command {
        command: command.to_owned(),
        args,
    });
    agent.discovered = true;
    // The agent's sign-ins are in the operator's home directory. The operator did not configure the agent, so
    // no process starts ahead of a request.
    agent.home = Home::User;
    agent.settings.pool.min_idle = 0;
    let secrets = known.secrets.iter().map(|name| (*name, true));
    let settings = known.settings.iter().map(|name| (*name, false));
    for (name, secret) in secrets.chain(settings) {
        let value = environment
            .get(name)
            .and_then(|value| value.to_str())
            .filter(|value| !value.is_empty());
        if let Some(value) = value {
            agent
                .env
                .insert(name.to_owned(), inherited_variable(name, value, secret));
        }
    }
    agent
}

/// Reads a variable of the gateway's environment. A URL with user information may contain a password and
/// counts as a secret.
fn inherited_variable(name: &str, value: &str, secret: bool) -> Secret {
    let hidden = secret || (value.contains("://") && value.contains('@'));
    Secret::from_variable(name, value, hidden)
}
