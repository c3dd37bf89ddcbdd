//! Prints the effective configuration as a file that the gateway can read again, without secrets.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::agent::{Agent, Home, Launch, OnTimeout};
use super::mcp::McpServer;
use super::node::Origin;
use super::secret::{Secret, describe};
use super::units::{duration_text, size_text};
use super::{Config, limits};
use crate::types::ServedBy;

/// Returns the configuration as TOML. Each line ends with a comment that names the origin of its value.
pub fn show(config: &Config) -> String {
    let mut page = TomlWriter { text: String::new(), origins: &config.origins, section: String::new() };
    for warning in &config.warnings {
        page.write_line(&format!("# warning: {warning}"));
    }
    page.value_line("listen", &quoted(&config.listen.address.to_string()));
    page.value_line("data", &path(config.data.path()));
    page.optional_line("public_url", config.public_url.as_deref());
    page.value_line("allowed_origins", &list(&config.allowed_origins));
    page.value_line("behind_proxy", &list(&config.behind_proxy));
    page.value_line("insecure_http", &config.insecure_http.to_string());
    page.optional_line("log", config.log.as_deref());
    if config.admin_key.is_some() {
        page.write_line("# The environment sets an admin key; the gateway creates no link key.");
    }
    page.section("workspaces");
    page.value_line("root", &path(&config.workspaces.root));
    let allow: Vec<_> = config.workspaces.allow.iter().map(|root| root.display().to_string()).collect();
    page.value_line("allow", &list(&allow));
    for (name, server) in &config.mcp {
        page.section(&format!("mcp.{name}"));
        page.mcp_server_lines(server);
    }
    for (name, agent) in &config.agents {
        page.section(&format!("agents.{name}"));
        page.agent_lines(agent);
    }
    page.section("limits");
    for (name, value) in limits::shown(&config.limits) {
        page.value_line(name, &value);
    }
    page.text
}

struct TomlWriter<'a> {
    text: String,
    origins: &'a BTreeMap<String, Origin>,
    section: String,
}

impl TomlWriter<'_> {
    fn write_line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("writing to a string does not fail");
    }

    fn section(&mut self, name: &str) {
        self.write_line(&format!("\n[{name}]"));
        name.clone_into(&mut self.section);
    }

    fn value_line(&mut self, name: &str, value: &str) {
        let key = if self.section.is_empty() { name.to_owned() } else { format!("{}.{name}", self.section) };
        let origin = self.origin(&key);
        self.write_line(&format!("{name} = {value}  # {origin}"));
    }

    fn optional_line(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.value_line(name, &quoted(value));
        }
    }

    /// Returns the origins of the key and of all keys below it. An inline table is one line in the output but
    /// has many keys.
    fn origin(&self, key: &str) -> String {
        let below = format!("{key}.");
        let mut origins: Vec<_> = self
            .origins
            .iter()
            .filter(|(name, _)| *name == key || name.starts_with(&below))
            .map(|(_, origin)| origin.to_string())
            .collect();
        origins.dedup();
        if origins.is_empty() { Origin::Default.to_string() } else { origins.join(", ") }
    }

    fn mcp_server_lines(&mut self, server: &McpServer) {
        let (kind, url, headers) = match server {
            McpServer::Http { url, headers } => ("http", url, headers),
            McpServer::Sse { url, headers } => ("sse", url, headers),
            McpServer::Stdio { command, args, env } => {
                self.value_line("command", &quoted(command));
                self.value_line("args", &list(args));
                self.value_line("env", &table(env));
                return;
            }
        };
        self.value_line("type", &quoted(kind));
        self.value_line("url", &quoted(url));
        self.value_line("headers", &table(headers));
    }

    fn agent_lines(&mut self, agent: &Agent) {
        if agent.discovered {
            let passed = agent.inherited_variables().unwrap_or_else(|| "none".to_owned());
            self.write_line(&format!(
                "# Found on PATH. The agent receives these variables from the gateway's environment: {passed}"
            ));
        }
        match &agent.launch {
            Launch::Demo => self.value_line("builtin", "\"demo\""),
            Launch::Command { command, args } => {
                self.value_line("command", &quoted(command));
                self.value_line("args", &list(args));
            }
        }
        self.value_line("env", &table(&agent.env));
        self.value_line("home", if agent.home == Home::Private { "\"own\"" } else { "\"user\"" });
        self.value_line("files", served_by(agent.files));
        self.value_line("terminals", served_by(agent.terminals));
        let permissions = &agent.permissions;
        let unanswered = if permissions.on_timeout == OnTimeout::Reject { "reject" } else { "wait" };
        let after = duration_text(permissions.timeout);
        let allow = list(&permissions.allow);
        self.value_line(
            "permissions",
            &format!("{{ unanswered = \"{unanswered}\", after = \"{after}\", allow = {allow} }}"),
        );
        self.value_line("meta", &list(&agent.meta));
        self.value_line("rpc", &list(&agent.rpc));
        self.value_line("terminal_auth", &agent.terminal_auth.to_string());
        self.value_line("protocol", &agent.protocol.to_string());
        let (max, warm, idle) =
            (agent.pool.max_size, agent.pool.min_idle, duration_text(agent.pool.idle_timeout));
        let warm_for = duration_text(agent.pool.min_idle_for);
        let idle_processes = format!("warm = {warm}, warm_for = \"{warm_for}\"");
        let no_load_idle = duration_text(agent.pool.no_load_idle_timeout);
        let no_load_reclaim = duration_text(agent.pool.no_load_reclaim_timeout);
        let no_load = format!(
            "no_load_idle_timeout = \"{no_load_idle}\", no_load_reclaim_timeout = \"{no_load_reclaim}\""
        );
        self.value_line(
            "pool",
            &format!("{{ max = {max}, {idle_processes}, idle = \"{idle}\", {no_load} }}"),
        );
        let (start, silence) =
            (duration_text(agent.limits.start_timeout), duration_text(agent.limits.turn_idle_timeout));
        let line = size_text(agent.limits.max_line_bytes as u64);
        self.value_line(
            "limits",
            &format!("{{ start = \"{start}\", line = \"{line}\", silence = \"{silence}\" }}"),
        );
    }
}

fn served_by(served: ServedBy) -> &'static str {
    match served {
        ServedBy::Off => "\"off\"",
        ServedBy::Client => "\"client\"",
        ServedBy::Gateway => "\"gateway\"",
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn path(path: &std::path::Path) -> String {
    quoted(&path.display().to_string())
}

fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(|item| quoted(&item.to_string())).collect();
    format!("[{}]", items.join(", "))
}

fn table(secrets: &BTreeMap<String, Secret>) -> String {
    if secrets.is_empty() {
        return "{}".to_owned();
    }
    let entries: Vec<_> =
        secrets.iter().map(|(name, secret)| format!("{} = {}", key(name), describe(secret))).collect();
    format!("{{ {} }}", entries.join(", "))
}

fn key(name: &str) -> String {
    let bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if bare { name.to_owned() } else { quoted(name) }
}
