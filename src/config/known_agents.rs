//! The agents without a configuration file: the built-in demo agent, and known commands on PATH.

use std::collections::BTreeMap;

use super::agent::{Agent, Home, Launch};
use super::environment::Environment;
use super::secret::{Secret, SecretText};
use crate::types::AgentName;
use crate::types::known_agents::{KNOWN, KnownAgent};

/// Returns the default agents. `on_path` returns true if a program exists; no program runs. Commands on PATH
/// are included only if `search` is true.
pub(super) fn default_agents(
    search: bool,
    on_path: &dyn Fn(&str) -> bool,
    environment: &Environment,
) -> BTreeMap<AgentName, Agent> {
    let name = |name: &str| name.parse::<AgentName>().expect("the names in the table are valid agent names");
    let mut agents = BTreeMap::from([(name("demo"), Agent::new(Launch::Demo))]);
    for known in KNOWN.iter().filter(|known| search && on_path(known.command)) {
        agents.entry(name(known.name)).or_insert_with(|| discovered_agent(known, environment));
    }
    agents
}

fn discovered_agent(known: &KnownAgent, environment: &Environment) -> Agent {
    let args = known.args.iter().map(|arg| (*arg).to_owned()).collect();
    let mut agent = Agent::new(Launch::Command { command: known.command.to_owned(), args });
    agent.discovered = true;
    // The agent's sign-ins are in the operator's home directory. The operator did not configure the agent, so
    // no process starts ahead of a request.
    agent.home = Home::User;
    agent.settings.pool.min_idle = 0;
    let secrets = known.secrets.iter().map(|name| (*name, true));
    let settings = known.settings.iter().map(|name| (*name, false));
    for (name, secret) in secrets.chain(settings) {
        let value = environment.get(name).and_then(|value| value.to_str()).filter(|value| !value.is_empty());
        if let Some(value) = value {
            agent.env.insert(name.to_owned(), inherited_variable(name, value, secret));
        }
    }
    agent
}

/// Reads a variable of the gateway's environment. A URL with user information may contain a password and
/// counts as a secret.
fn inherited_variable(name: &str, value: &str, secret: bool) -> Secret {
    let from = format!("{{ from_env = \"{name}\" }}");
    if secret || (value.contains("://") && value.contains('@')) {
        Secret::Hidden { from, text: SecretText::new(value) }
    } else {
        Secret::Setting { from, text: value.to_owned() }
    }
}
