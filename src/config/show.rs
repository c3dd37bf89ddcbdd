//! Prints the effective configuration as a file that the gateway can read again, without secrets.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};

use serde::{Serialize, Serializer};

use super::agent::{self, Agent, Launch};
use super::error::Origin;
use super::file::ConfigFile;
use super::key::{DescribedDefault, Key};
use super::mcp::McpServer;
use super::toml_text::{self, quoted};
use super::{Config, keys, secret};
use base::types::Scope;
use events::api::ConfigurationValue;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The values that the file, the environment or flags set, and what identifies each agent.
    Set,
    All,
}

/// The configuration without secrets. Its text is TOML that the gateway can read again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownConfig {
    file: ConfigFile,
    warnings: Vec<String>,
    /// Whether the environment sets an admin key.
    admin_key: bool,
    #[serde(serialize_with = "by_name")]
    settings: Vec<Setting>,
    #[serde(skip)]
    shown: Shown,
}

#[derive(Debug, Serialize)]
struct Setting {
    #[serde(skip)]
    section: String,
    #[serde(skip)]
    name: &'static str,
    /// In the syntax of the file.
    #[serde(serialize_with = "toml_value")]
    value: String,
    origin: String,
    /// For readers of the text.
    #[serde(skip)]
    comment: Option<String>,
}

fn by_name<S: Serializer>(settings: &[Setting], serializer: S) -> Result<S::Ok, S::Error> {
    let named = settings
        .iter()
        .map(|setting| (format!("{}.{}", setting.section, setting.name), setting));
    serializer.collect_map(named)
}

fn toml_value<S: Serializer>(value: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match format!("value = {value}").parse::<toml::Table>() {
        Ok(table) => table["value"].serialize(serializer),
        Err(error) => Err(serde::ser::Error::custom(error)),
    }
}

impl ShownConfig {
    pub(super) fn into_values(self) -> Vec<ConfigurationValue> {
        let settings = self.settings.into_iter();
        let values = settings.map(|setting| ConfigurationValue {
            key: format!("{}.{}", setting.section, setting.name),
            value: setting.value,
            source: setting.origin,
        });
        values.collect()
    }
}

impl Display for ShownConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Configuration file: {}", self.file)?;
        for warning in &self.warnings {
            writeln!(f, "# warning: {warning}")?;
        }
        if self.admin_key {
            let note = "# The environment sets an admin key; the gateway creates no link key.";
            writeln!(f, "{note}")?;
        }
        let mut section: &str = "";
        for setting in &self.settings {
            if setting.section != section {
                section = &setting.section;
                writeln!(f, "\n[{section}]")?;
            }
            if let Some(comment) = &setting.comment {
                writeln!(f, "# {comment}")?;
            }
            let Setting {
                name,
                value,
                origin,
                ..
            } = setting;
            writeln!(f, "{name} = {value}  # {origin}")?;
        }
        if self.shown == Shown::Set {
            let note =
                "# All other keys have their defaults. `acp-gateway check --all` prints them.";
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}

/// Returns the values with their origins.
pub fn show(config: &Config, shown: Shown) -> ShownConfig {
    let mut list = SettingList {
        settings: Vec::new(),
        origins: &config.origins,
        section: String::new(),
        comment: None,
        shown,
    };
    for (section, _) in keys::SECTIONS {
        list.section(section);
        for key in keys::of_section(section) {
            list.add(key.name, &(key.show)(config));
        }
    }
    for (name, scopes) in &config.roles {
        list.section(&format!("roles.{name}"));
        let scopes = toml_text::list(scopes.iter().map(Scope::name));
        list.add_required("scopes", &scopes);
    }
    for (name, agent) in &config.agents {
        list.section(&format!("agents.{name}"));
        list.add_agent(agent);
    }
    for (name, server) in &config.mcp {
        list.section(&format!("mcp.{name}"));
        list.add_mcp_server(server);
    }
    ShownConfig {
        file: config.file.clone(),
        warnings: config.warnings.clone(),
        admin_key: config.admin_key.is_some(),
        settings: list.settings,
        shown,
    }
}

struct SettingList<'a> {
    settings: Vec<Setting>,
    origins: &'a BTreeMap<String, Origin>,
    section: String,
    /// A comment on the next setting.
    comment: Option<String>,
    shown: Shown,
}

impl SettingList<'_> {
    fn section(&mut self, name: &str) {
        name.clone_into(&mut self.section);
    }

    /// Adds a value if it is set, or if all values are wanted. An empty text is no value.
    fn add(&mut self, name: &'static str, value: &str) {
        let origin = self.origin(&format!("{}.{name}", self.section));
        if !value.is_empty() && (origin.is_some() || self.shown == Shown::All) {
            self.settings.push(Setting {
                section: self.section.clone(),
                name,
                value: value.to_owned(),
                origin: origin.unwrap_or_else(|| Origin::Default.to_string()),
                comment: self.comment.take(),
            });
        }
    }

    /// Adds a value also if it is not set, because other keys of the section need it.
    fn add_required(&mut self, name: &'static str, value: &str) {
        let shown = std::mem::replace(&mut self.shown, Shown::All);
        self.add(name, value);
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

    fn add_mcp_server(&mut self, server: &McpServer) {
        match server {
            McpServer::Remote { sse, url, headers } => {
                self.add("type", if *sse { "\"sse\"" } else { "\"http\"" });
                self.add_required("url", &quoted(url));
                self.add("headers", &secret::show_all(headers));
            }
            McpServer::Stdio { command, args, env } => {
                self.add_required("command", &quoted(command));
                self.add("args", &toml_text::list(args));
                self.add("env", &secret::show_all(env));
            }
        }
    }

    fn add_agent(&mut self, agent: &Agent) {
        if agent.inherited.is_some() {
            let passed = agent
                .inherited_variables()
                .unwrap_or_else(|| "none".to_owned());
            let source = if agent.discovered {
                "Found on PATH. "
            } else {
                ""
            };
            self.comment = Some(format!(
                "{source}The agent receives these variables from the gateway's environment: {passed}"
            ));
        }
        match &agent.launch {
            Launch::Demo => self.add_required("builtin", "\"demo\""),
            Launch::Remote(remote) => {
                self.add_required("url", &quoted(&remote.url.to_string()));
                for (name, value) in agent::shown_remote(remote) {
                    self.add(name, &value);
                }
            }
            Launch::Command { command, args } => {
                self.add_required("command", &quoted(command));
                self.add_required("args", &toml_text::list(args));
            }
        }
        let is_child = agent.launch.is_child();
        for key in agent::KEYS {
            if !is_child && agent::KEYS_OF_CHILDREN.contains(&key.name) {
                continue;
            }
            let value = (key.show)(agent);
            if agent.discovered && matches!(key.name, "env" | "home") {
                self.add_required(key.name, &value);
            } else {
                self.add(key.name, &value);
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
