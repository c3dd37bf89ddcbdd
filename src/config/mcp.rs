//! `[mcp.<name>]`: the MCP servers that clients may select.

use std::collections::BTreeMap;

use super::environment::Environment;
use super::error::ConfigError;
use super::secret::{self, Secret};
use super::section::Field;

/// An MCP server as an agent receives it. Clients select a server by name; only the operator defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpServer {
    Http { url: String, headers: BTreeMap<String, Secret> },
    Sse { url: String, headers: BTreeMap<String, Secret> },
    Stdio { command: String, args: Vec<String>, env: BTreeMap<String, Secret> },
}

#[derive(Clone, Copy)]
enum Transport {
    Http,
    Sse,
}

pub(super) fn read(field: Field, environment: &Environment) -> Result<McpServer, ConfigError> {
    let mut section = field.section()?;
    let server = match (section.take("url"), section.take("command")) {
        (Some(url), None) => {
            let transport = section.take("type").map_or(Ok(Transport::Http), |t| {
                t.choice(&[("http", Transport::Http), ("sse", Transport::Sse)])
            })?;
            let headers = section.take("headers").map_or(Ok(BTreeMap::new()), |headers| {
                secret::read_all(headers, environment, is_header_name)
            })?;
            let url = read_url(&url)?;
            match transport {
                Transport::Http => McpServer::Http { url, headers },
                Transport::Sse => McpServer::Sse { url, headers },
            }
        }
        (None, Some(command)) => McpServer::Stdio {
            command: command.program()?,
            args: section.take("args").map_or(Ok(Vec::new()), Field::strings)?,
            env: section.take("env").map_or(Ok(BTreeMap::new()), |env| {
                secret::read_all(env, environment, secret::is_variable_name)
            })?,
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

fn read_url(field: &Field) -> Result<String, ConfigError> {
    let text = field.string()?;
    let url: Option<http::Uri> = text.parse().ok();
    let web = url.is_some_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty())
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
