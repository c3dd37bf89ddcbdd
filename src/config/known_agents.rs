//! Agents that are offered when the file names none: what is built in, and known commands on PATH.

use std::collections::BTreeMap;

use super::agent::{Agent, Home, Launch};
use crate::types::AgentName;

struct Known {
    name: &'static str,
    command: &'static str,
    args: &'static [&'static str],
}

/// Of several commands of one name the first that is there.
const KNOWN: [Known; 13] = [
    Known { name: "claude", command: "claude-agent-acp", args: &[] },
    Known { name: "claude", command: "claude-code-acp", args: &[] },
    Known { name: "codex", command: "codex-acp", args: &[] },
    Known { name: "gemini", command: "gemini", args: &["--experimental-acp"] },
    Known { name: "opencode", command: "opencode", args: &["acp"] },
    Known { name: "goose", command: "goose", args: &["acp"] },
    Known { name: "vibe", command: "vibe-acp", args: &[] },
    Known { name: "qwen", command: "qwen", args: &["--experimental-acp"] },
    Known { name: "kimi", command: "kimi", args: &["acp"] },
    Known { name: "copilot", command: "copilot", args: &["--acp"] },
    Known { name: "cursor", command: "cursor-agent", args: &["acp"] },
    Known { name: "auggie", command: "auggie", args: &["--acp"] },
    Known { name: "fast-agent", command: "fast-agent-acp", args: &[] },
];

/// `on_path` says whether a program is there; nothing is run. Commands are only looked for if `search`.
pub(super) fn offered(search: bool, on_path: &dyn Fn(&str) -> bool) -> BTreeMap<AgentName, Agent> {
    let name = |name: &str| name.parse::<AgentName>().expect("the names above are agents' names");
    let mut agents = BTreeMap::from([(name("demo"), Agent::new(Launch::Demo))]);
    for known in KNOWN.iter().filter(|known| search && on_path(known.command)) {
        agents.entry(name(known.name)).or_insert_with(|| {
            let args = known.args.iter().map(|arg| (*arg).to_owned()).collect();
            let mut agent = Agent::new(Launch::Command { command: known.command.to_owned(), args });
            // The sign-ins that it has are in the operator's home, and nobody asked for it to run ahead.
            agent.home = Home::User;
            agent.pool.warm = 0;
            agent
        });
    }
    agents
}
