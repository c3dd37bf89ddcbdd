//! The start-up summary of `serve`: data folder, agents, workspaces, and how to stop the gateway.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use crate::config::Config;
use crate::types::text::strip_controls;

const STOP: &str = "SIGINT (Ctrl-C) or SIGTERM; a second signal stops at once";

/// Values of the configuration that an operator checks after a start.
#[derive(Debug)]
pub(super) struct Summary {
    data: String,
    agents: String,
    workspaces: String,
}

impl Summary {
    pub(super) fn of(config: &Config) -> Self {
        let agents: Vec<String> = config.agents.keys().map(ToString::to_string).collect();
        let roots = std::iter::once(&config.workspaces.root).chain(&config.workspaces.allow);
        let workspaces: Vec<String> = roots.map(|root| root.display().to_string()).collect();
        let data = config.data.path().display().to_string();
        Self { data, agents: agents.join(", "), workspaces: workspaces.join(", ") }
    }

    /// Writes the summary to stderr: as text on a terminal, else as one record of the log, so that every line stays JSON.
    pub(super) fn report(&self) {
        let Self { data, agents, workspaces } = self;
        if io::stderr().is_terminal() {
            // A start does not fail because its terminal is gone.
            drop(io::stderr().lock().write_all(self.text().as_bytes()));
        } else {
            tracing::info!(%data, %agents, %workspaces, stop = STOP, "the gateway accepts connections");
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let lines = [
            ("data", &*self.data),
            ("agents", &self.agents),
            ("workspaces", &self.workspaces),
            ("stop", STOP),
        ];
        for (name, value) in lines {
            let value = strip_controls(value).replace(['\n', '\t'], " ");
            writeln!(text, "{name:<12}{value}").expect("writing to a string does not fail");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_one_line_for_each_value() {
        let summary = Summary {
            data: "/data".to_owned(),
            agents: "claude, demo".to_owned(),
            workspaces: "/data/workspaces, /home/me/\u{1b}[2Jcode".to_owned(),
        };
        let expected = "\
data        /data
agents      claude, demo
workspaces  /data/workspaces, /home/me/code
stop        SIGINT (Ctrl-C) or SIGTERM; a second signal stops at once
";
        assert_eq!(summary.text(), expected);
    }
}
