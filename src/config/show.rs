//! Prints the effective configuration as a file that the gateway can read again, without secrets.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::agent::{self, Agent, Launch};
use super::error::Origin;
use super::key::{DescribedDefault, Key};
use super::mcp::McpServer;
use super::toml_text::{list, quoted};
use super::{Config, keys, secret};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The values that the file, the environment or flags set, and what identifies each agent.
    Set,
    All,
}

/// Returns the configuration as TOML. Each line ends with a comment that names the origin of its value.
pub fn show(config: &Config, shown: Shown) -> String {
    let mut page = TomlWriter {
        text: String::new(),
        origins: &config.origins,
        section: String::new(),
        header: None,
        shown,
    };
    for warning in &config.warnings {
        page.write_line(&format!("# warning: {warning}"));
    }
    if config.admin_key.is_some() {
        page.write_line("# The environment sets an admin key; the gateway creates no link key.");
    }
    for (section, _) in keys::SECTIONS {
        page.section(section);
        for key in keys::of_section(section) {
            page.value_line(key.name, &(key.show)(config));
        }
    }
    for (name, agent) in &config.agents {
        page.section(&format!("agents.{name}"));
        page.agent_lines(agent);
    }
    for (name, server) in &config.mcp {
        page.section(&format!("mcp.{name}"));
        page.mcp_server_lines(server);
    }
    if shown == Shown::Set {
        page.write_line(
            "\n# All other keys have their defaults. `acp-gateway check --all` prints them.",
        );
    }
    page.text
}

struct TomlWriter<'a> {
    text: String,
    origins: &'a BTreeMap<String, Origin>,
    section: String,
    /// The header of the section, until its first line is printed.
    header: Option<String>,
    shown: Shown,
}

impl TomlWriter<'_> {
    fn write_line(&mut self, line: &str) {
        if let Some(header) = self.header.take() {
            writeln!(self.text, "{header}").expect("writing to a string does not fail");
        }
        writeln!(self.text, "{line}").expect("writing to a string does not fail");
    }

    fn section(&mut self, name: &str) {
        self.header = Some(format!("\n[{name}]"));
        name.clone_into(&mut self.section);
    }

    /// Prints a value if it is set, or if all values are wanted. An empty text is no value.
    fn value_line(&mut self, name: &str, value: &str) {
        let origin = self.origin(&format!("{}.{name}", self.section));
        if !value.is_empty() && (origin.is_some() || self.shown == Shown::All) {
            let origin = origin.unwrap_or_else(|| Origin::Default.to_string());
            self.write_line(&format!("{name} = {value}  # {origin}"));
        }
    }

    /// Prints a value also if it is not set, because other keys of the section need it.
    fn required_line(&mut self, name: &str, value: &str) {
        let shown = std::mem::replace(&mut self.shown, Shown::All);
        self.value_line(name, value);
        self.shown = shown;
    }

    /// Returns the origins of the key and of all keys below it. An inline table is one line in the output but
    /// has many keys.
    fn origin(&self, key: &str) -> Option<String> {
        let below = format!("{key}.");
        let mut origins: Vec<_> = self
            .origins
            .iter()
            .filter(|(name, _)| *name == key || name.starts_with(&below))
            .map(|(_, origin)| origin.to_string())
            .collect();
        origins.dedup();
        (!origins.is_empty()).then(|| origins.join(", "))
    }

    fn mcp_server_lines(&mut self, server: &McpServer) {
        match server {
            McpServer::Remote { sse, url, headers } => {
                self.value_line("type", if *sse { "\"sse\"" } else { "\"http\"" });
                self.required_line("url", &quoted(url));
                self.value_line("headers", &secret::show_all(headers));
            }
            McpServer::Stdio { command, args, env } => {
                self.required_line("command", &quoted(command));
                self.value_line("args", &list(args));
                self.value_line("env", &secret::show_all(env));
            }
        }
    }

    fn agent_lines(&mut self, agent: &Agent) {
        if agent.discovered {
            let passed = agent
                .inherited_variables()
                .unwrap_or_else(|| "none".to_owned());
            self.write_line(&format!(
                "# Found on PATH. The agent receives these variables from the gateway's environment: {passed}"
            ));
        }
        match &agent.launch {
            Launch::Demo => self.required_line("builtin", "\"demo\""),
            Launch::Remote(remote) => {
                self.required_line("url", &quoted(&remote.url.to_string()));
                for (name, value) in agent::shown_remote(remote) {
                    self.value_line(name, &value);
                }
            }
            Launch::Command { command, args } => {
                self.required_line("command", &quoted(command));
                self.required_line("args", &list(args));
            }
        }
        let is_child = agent.launch.is_child();
        for key in agent::KEYS {
            if !is_child && agent::KEYS_OF_CHILDREN.contains(&key.name) {
                continue;
            }
            let value = (key.show)(agent);
            if agent.discovered && matches!(key.name, "env" | "home") {
                self.required_line(key.name, &value);
            } else {
                self.value_line(key.name, &value);
            }
        }
    }
}

/// Returns the sample file. Lines that begin with `#` and a key are settings; other comments begin with `# `.
pub fn sample() -> String {
    let config = Config::default();
    let mut sections = String::new();
    for (section, description) in keys::SECTIONS {
        write_line(&mut sections, &format!("\n# {description}\n[{section}]"));
        for key in keys::of_section(section) {
            let setting = match &key.default {
                None => format!("#{} = {}", key.name, (key.show)(&config)),
                Some(DescribedDefault { text, example }) => {
                    format!("# Default: {text}.\n# {} = {example}", key.name)
                }
            };
            write_line(&mut sections, &format!("# {}\n{setting}", key.comment));
        }
    }
    let agent = Agent::new(Launch::Demo);
    let line = |key: &Key<Agent>| {
        format!(
            "# # {}\n# {} = {}\n",
            key.comment,
            key.name,
            (key.show)(&agent)
        )
    };
    let agent_keys: String = agent::KEYS.iter().map(line).collect();
    include_str!("sample.template")
        .replace("{sections}", &sections)
        .replace("{agent_keys}", &agent_keys)
}

/// Returns the tables of the configuration reference in Markdown, without agents and MCP servers.
pub fn reference() -> String {
    let config = Config::default();
    let mut text = String::new();
    for (section, description) in keys::SECTIONS {
        write_line(
            &mut text,
            &format!(
                "### `[{section}]`\n\n{description}\n\n| key | default | meaning |\n|---|---|---|"
            ),
        );
        for key in keys::of_section(section) {
            let default = match &key.default {
                None => format!("`{}`", (key.show)(&config)),
                Some(described) => described.text.to_owned(),
            };
            write_line(
                &mut text,
                &format!("| `{}` | {default} | {} |", key.name, key.comment),
            );
        }
        text.push('\n');
    }
    text
}

fn write_line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string does not fail");
}
