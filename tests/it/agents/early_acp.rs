//! Agents that speak the early protocol (`dialect = "early-acp"`), as `tests/agents/early_agent.py` does.

mod early_names;
mod variations;

use serde_json::Value;

use crate::support::places::project;
use crate::support::{Gateway, Setup};

/// A gateway with the agent, and the lines that the agent received.
struct Early {
    gateway: Gateway,
    log: tempfile::TempDir,
}

impl Early {
    fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, "")
    }

    fn start_with(flags: &[&str], settings: &str) -> Self {
        Self::start_entry(flags, "", settings)
    }

    fn start_entry(flags: &[&str], entry: &str, settings: &str) -> Self {
        let log = tempfile::tempdir().expect("a temporary folder");
        let file = log.path().join("lines");
        let file = file.to_str().expect("UTF-8");
        let agent = project().join("tests/agents/early_agent.py");
        let agent = agent.to_str().expect("UTF-8");
        let args: Vec<&str> = [agent, file]
            .into_iter()
            .chain(flags.iter().copied())
            .collect();
        // The interpreter can be in a home that isolation hides.
        // A process that starts ahead would add its lines.
        let more = "dialect = \"early-acp\"\nisolation = \"off\"\npool = { min_idle = 0 }";
        let gateway = Setup::default()
            .agent("early", "python3", &args, &format!("{more}\n{entry}"))
            .settings(settings)
            .start();
        Self { gateway, log }
    }

    /// The lines that all processes of the agent received.
    fn received(&self) -> Vec<Value> {
        let lines = std::fs::read_to_string(self.log.path().join("lines")).unwrap_or_default();
        lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// The methods that the agent received, except `initialized`: either side may send it first.
    fn methods(&self) -> Vec<String> {
        let method = |line: &Value| line["method"].as_str().map(ToOwned::to_owned);
        self.received()
            .iter()
            .filter_map(method)
            .filter(|method| method != "initialized")
            .collect()
    }

    async fn session(&self) -> String {
        self.gateway.session("early").await
    }

    /// Runs a turn. Returns it with the updates of its events.
    async fn turn(&self, session: &str, text: &str) -> (Value, Vec<Value>) {
        let turn = self.gateway.turn(session, text).await;
        let events = self.gateway.lawful(session).await;
        let of_turn = events
            .iter()
            .filter(|event| event["promptId"] == turn["promptId"]);
        (
            turn.clone(),
            of_turn
                .map(|event| event["update"].clone())
                .filter(Value::is_object)
                .collect(),
        )
    }
}
