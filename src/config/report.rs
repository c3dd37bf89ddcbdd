//! The configuration for a report that leaves the machine.

use std::collections::BTreeMap;

use super::Config;
use super::agent::Launch;
use super::mcp::McpServer;
use super::secret::Secret;
use super::show::{Shown, show};
use events::api::ConfigurationValue;

const MASK: &str = "[secret]";

/// Returns all values with their origins, as `check --all` prints them. The values of environment variables and headers are hidden
/// also if they are in plain text in the file, and so are the user names, passwords, queries and fragments of URLs.
pub fn report(config: &Config) -> Vec<ConfigurationValue> {
    let mut config = config.clone();
    withhold_secrets(&mut config);
    let mut values = show(&config, Shown::All).into_values();
    for shown in &mut values {
        shown.value = mask_urls(&shown.value);
    }
    values
}

/// Masks the URLs in a value in the syntax of the file.
fn mask_urls(text: &str) -> String {
    text.split_inclusive(ends_url).map(mask_url).collect()
}

fn ends_url(c: char) -> bool {
    c == '"' || c.is_whitespace()
}

/// `word` ends with its separator.
fn mask_url(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    let url = rest.trim_end_matches(ends_url);
    let address = &url[..url.find(['?', '#']).unwrap_or(url.len())];
    let mut masked = scheme.to_owned();
    // A list of URLs can be one word.
    for part in address.split("://") {
        masked.push_str("://");
        let authority = part.split('/').next().unwrap_or_default();
        let user = authority.rfind('@').unwrap_or_default();
        if user > 0 {
            masked.push_str(MASK);
        }
        masked.push_str(&part[user..]);
    }
    if address.len() < url.len() {
        masked.push_str(&url[address.len()..=address.len()]);
        masked.push_str(MASK);
    }
    masked.push_str(&rest[url.len()..]);
    masked
}

fn withhold_secrets(config: &mut Config) {
    let mut tables = vec![&mut config.otlp_headers];
    for agent in config.agents.values_mut() {
        tables.push(&mut agent.env);
        if let Launch::Remote(remote) = &mut agent.launch {
            tables.push(&mut remote.headers);
            if let Some(token) = &mut remote.token {
                token.withhold();
            }
        }
    }
    for server in config.mcp.values_mut() {
        match server {
            McpServer::Remote { headers, .. } => tables.push(headers),
            McpServer::Stdio { env, .. } => tables.push(env),
        }
    }
    let secrets = tables.into_iter().flat_map(BTreeMap::values_mut);
    secrets.for_each(Secret::withhold);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, load};

    #[test]
    fn no_value_of_a_variable_a_header_or_a_token_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        let text = r#"
            server.allowed_hosts = ["shown.example"]
            registry.source = "https://hidden@registry.example/@scope/registry.json#hidden"
            [telemetry]
            otlp_endpoint = "https://collector.example"
            otlp_headers = { key = "hidden" }
            [agents.child]
            command = "agent"
            args = ["shown", "--servers=https://hidden@one.example,https://hidden@two.example/a?hidden"]
            env = { PLAIN = "hidden", VARIABLE = { from_env = "NAME" } }
            [agents.token]
            url = "https://agent.example/acp"
            token = "hidden-token-of-an-agent"
            remote_folders = ["/srv"]
            [agents.headers]
            url = "https://agent.example/acp"
            headers = { key = "hidden" }
            remote_folders = ["/srv"]
            [mcp.web]
            url = "https://user:hidden@mcp.example/path?key=hidden"
            headers = { key = "hidden" }
            [mcp.child]
            command = "server"
            env = { KEY = "hidden" }
        "#;
        std::fs::write(&file, text).unwrap();
        let flags = Flags {
            config: Some(file),
            ..Flags::default()
        };
        let environment = [("HOME", "/"), ("NAME", "hidden")].into_iter().collect();
        let config = load(&flags, &environment, &|_| false).unwrap();
        assert_eq!(config.errors, Vec::<String>::new());
        let values = report(&config);
        assert!(values.iter().all(|value| !value.value.contains("hidden")));
        let find = |key: &str| values.iter().find(|value| value.key == key).unwrap();
        for (key, expected) in [
            ("server.allowed_hosts", r#"["shown.example"]"#),
            ("telemetry.otlp_headers", r#"{ key = "[secret]" }"#),
            (
                "registry.source",
                r#""https://[secret]@registry.example/@scope/registry.json#[secret]""#,
            ),
            (
                "agents.child.args",
                r#"["shown", "--servers=https://[secret]@one.example,https://[secret]@two.example/a?[secret]"]"#,
            ),
            (
                "agents.child.env",
                r#"{ PLAIN = "[secret]", VARIABLE = { from_env = "NAME" } }"#,
            ),
            ("agents.token.token", r#""[secret]""#),
            ("agents.headers.headers", r#"{ key = "[secret]" }"#),
            (
                "mcp.web.url",
                r#""https://[secret]@mcp.example/path?[secret]""#,
            ),
            ("mcp.web.headers", r#"{ key = "[secret]" }"#),
            ("mcp.child.env", r#"{ KEY = "[secret]" }"#),
        ] {
            assert_eq!(find(key).value, expected, "{key}");
        }
        assert!(find("mcp.web.url").source.ends_with("gateway.toml:20"));
        assert_eq!(find("server.listen").source, "default");
    }
}
