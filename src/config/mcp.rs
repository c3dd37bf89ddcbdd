//! `[mcp.<name>]`: the MCP servers that clients may select.

use std::collections::BTreeMap;

use super::error::ConfigError;
use super::key::strings;
use super::secret::{self, Secret};
use super::section::Field;

/// An MCP server as an agent receives it. Clients select a server by name; only the operator defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpServer {
    Remote {
        sse: bool,
        url: String,
        headers: BTreeMap<String, Secret>,
    },
    Stdio {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, Secret>,
    },
}

pub(super) fn read(field: Field) -> Result<McpServer, ConfigError> {
    let mut section = field.section()?;
    let server = match (section.take("url"), section.take("command")) {
        (Some(url), None) => McpServer::Remote {
            sse: section.take("type").map_or(Ok(false), |kind| {
                kind.choice(&[("http", false), ("sse", true)])
            })?,
            headers: read_secrets(section.take("headers"), is_header_name)?,
            url: read_url(&url)?,
        },
        (None, Some(command)) => McpServer::Stdio {
            command: command.program()?,
            args: section
                .take("args")
                .map_or(Ok(Vec::new()), strings().read)?,
            env: read_secrets(section.take("env"), secret::is_variable_name)?,
        },
        (url, _) => {
            let both = url.is_some();
            for name in ["url", "command", "type", "headers", "args", "env"] {
                section.take(name);
            }
            return Err(if both {
                section.invalid("has both url and command; remove one of them")
            } else {
                section.missing("url` or `command")
            });
        }
    };
    section.finish()?;
    Ok(server)
}

fn read_secrets(
    field: Option<Field>,
    valid: fn(&str) -> bool,
) -> Result<BTreeMap<String, Secret>, ConfigError> {
    field.map_or(Ok(BTreeMap::new()), |field| secret::read_all(field, valid))
}

fn read_url(field: &Field) -> Result<String, ConfigError> {
    let text = field.string()?;
    let url: Option<http::Uri> = text.parse().ok();
    let web = url.is_some_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.host().is_some_and(|host| !host.is_empty())
    });
    if web {
        Ok(text.to_owned())
    } else {
        Err(field.invalid("not a URL that begins with https:// or http://"))
    }
}

fn is_header_name(name: &str) -> bool {
    http::HeaderName::from_bytes(name.as_bytes()).is_ok()
}
