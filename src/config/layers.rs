//! Merges file, environment and flags into one tree that records the origin of each value.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::admin_key;
use super::environment::{self, Environment};
use super::error::{ConfigError, closest};
use super::node::{Node, Value, parse_file, parse_text};
use super::origin::Origin;

// The flags of all subcommands. (A doc comment would replace the help text of the program.)
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Flags {
    /// The configuration file (TOML); by default, no file is read
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder for the log, keys, workspaces and homes of agents [default: ~/.local/share/acp-gateway]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1:8080 or the next free port]
    #[arg(long, global = true, value_name = "ADDR")]
    pub listen: Option<String>,
    /// A folder in which sessions may work, in addition to the workspaces in the data folder; repeatable
    #[arg(long = "workspace", global = true, value_name = "DIR")]
    pub workspaces: Vec<PathBuf>,
    /// Listen on a non-loopback address without TLS; anyone who can read the traffic can use the keys
    #[arg(long, global = true)]
    pub insecure_http: bool,
    /// Print the link with a key also if a journal, the log of a container or a file records the output
    #[arg(long, global = true)]
    pub print_link: bool,
}

impl Flags {
    /// The same flags as arguments of another process.
    pub fn to_args(&self) -> Vec<OsString> {
        let Self {
            config,
            data,
            listen,
            workspaces,
            insecure_http,
            print_link,
        } = self;
        let paths = [("--config", config), ("--data", data)];
        let paths = paths
            .into_iter()
            .filter_map(|(flag, path)| Some((flag, path.as_deref()?.as_os_str())));
        let listen = listen.iter().map(|listen| ("--listen", listen.as_ref()));
        let workspaces = workspaces
            .iter()
            .map(|folder| ("--workspace", folder.as_os_str()));
        let pairs = paths.chain(listen).chain(workspaces);
        let mut args: Vec<OsString> = pairs
            .flat_map(|(flag, value)| [OsStr::new(flag).to_owned(), value.to_owned()])
            .collect();
        args.extend(insecure_http.then(|| "--insecure-http".into()));
        args.extend(print_link.then(|| "--print-link".into()));
        args
    }
}

/// The prefix of variables for keys of the file: `ACP_GATEWAY__SECTION__NAME`.
const KEY_PREFIX: &str = "ACP_GATEWAY__";
const VARIABLE_PREFIX: &str = "ACP_GATEWAY_";
const LOG_FILTER: &str = "telemetry.log_filter";
/// Variables with a short name, and their keys.
const SHORT_VARIABLES: [(&str, &str); 3] = [
    ("ACP_GATEWAY_DATA", "server.data_dir"),
    ("ACP_GATEWAY_LISTEN", "server.listen"),
    ("ACP_GATEWAY_LOG", LOG_FILTER),
];
/// Variables that set no key.
const OTHER_VARIABLES: [&str; 4] = [
    environment::CONFIG_VARIABLE,
    admin_key::FILE_VARIABLE,
    admin_key::HASH_VARIABLE,
    environment::CLIENT_KEY_VARIABLE,
];
/// The prefixes of the variables that Kubernetes sets for a service named `acp-gateway`.
const SERVICE_LINKS: [&str; 2] = ["ACP_GATEWAY_SERVICE_", "ACP_GATEWAY_PORT"];

/// Merges all layers. Flags that set a key of the file become part of the tree. `--workspace` adds to the
/// file's list and is read separately.
pub(super) fn merge_layers(flags: &Flags, environment: &Environment) -> Result<Node, ConfigError> {
    let mut tree = Node::table(Origin::Default);
    let file = flags
        .config
        .as_deref()
        .or_else(|| environment.get(environment::CONFIG_VARIABLE).map(Path::new));
    if let Some(path) = file {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        tree.merge(parse_file(&text, path)?);
    }
    tree.merge(from_environment(environment)?);
    tree.merge(from_flags(flags)?);
    Ok(tree)
}

fn from_flags(flags: &Flags) -> Result<Node, ConfigError> {
    let mut tree = Node::table(Origin::Default);
    let mut set = |key: &str, flag, value| {
        insert(
            &mut tree,
            &dotted(key),
            &Node {
                value,
                origin: Origin::Flag(flag),
            },
        )
    };
    if let Some(data) = &flags.data {
        let key = "server.data_dir";
        set(
            key,
            "--data",
            Value::String(path_text(data, "--data", key)?),
        )?;
    }
    if let Some(listen) = &flags.listen {
        set("server.listen", "--listen", Value::String(listen.clone()))?;
    }
    if flags.insecure_http {
        set(
            "server.insecure_http",
            "--insecure-http",
            Value::Boolean(true),
        )?;
    }
    Ok(tree)
}

/// Returns the path of a flag as text.
pub(super) fn path_text(path: &Path, flag: &'static str, key: &str) -> Result<String, ConfigError> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| not_utf8(Origin::Flag(flag), key.to_owned()))
}

fn not_utf8(origin: Origin, key: String) -> ConfigError {
    ConfigError::Invalid {
        origin,
        key,
        reason: "not UTF-8".to_owned(),
    }
}

fn from_environment(environment: &Environment) -> Result<Node, ConfigError> {
    let mut tree = Node::table(Origin::Default);
    if let Some(filter) = environment
        .get("RUST_LOG")
        .and_then(|filter| filter.to_str())
    {
        let origin = Origin::Environment("RUST_LOG".into());
        insert(
            &mut tree,
            &dotted(LOG_FILTER),
            &Node {
                value: Value::Untyped(filter.to_owned()),
                origin,
            },
        )?;
    }
    for (name, value) in environment
        .iter()
        .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX))
    {
        if OTHER_VARIABLES.contains(&name)
            || SERVICE_LINKS.iter().any(|link| name.starts_with(link))
        {
            continue;
        }
        let origin = Origin::Environment(Arc::from(name));
        let key = match name.strip_prefix(KEY_PREFIX) {
            Some(key) => segments(key),
            None => SHORT_VARIABLES
                .iter()
                .find(|(short, _)| *short == name)
                .map(|(_, key)| dotted(key)),
        };
        let Some(key) = key else {
            return Err(ConfigError::UnknownVariable {
                origin,
                suggestion: similar_variable(name),
            });
        };
        let Some(text) = value.to_str() else {
            return Err(not_utf8(origin, key.join(".")));
        };
        insert(
            &mut tree,
            &key,
            &Node {
                value: Value::Untyped(text.to_owned()),
                origin,
            },
        )?;
    }
    Ok(tree)
}

/// Returns the known variable with the most similar name. The common prefix does not count, because it would
/// make all names similar.
fn similar_variable(name: &str) -> Option<String> {
    let known = OTHER_VARIABLES
        .into_iter()
        .chain(SHORT_VARIABLES.map(|(short, _)| short));
    let endings = known.filter_map(|name| name.strip_prefix(VARIABLE_PREFIX));
    let ending = closest(name.strip_prefix(VARIABLE_PREFIX)?, endings)?;
    Some(format!("{VARIABLE_PREFIX}{ending}"))
}

/// Converts `SERVER__MAX_BODY_BYTES` to `server.max_body_bytes`. Names below `env` and `headers` keep their case.
fn segments(key: &str) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    let mut rest = Some(key);
    while let Some(text) = rest {
        let verbatim = names.len() == 3 && matches!(names[2].as_str(), "env" | "headers");
        let split = text.split_once("__").filter(|_| !verbatim);
        let name = split.map_or(text, |(name, _)| name);
        if name.is_empty() {
            return None;
        }
        names.push(if verbatim {
            name.to_owned()
        } else {
            name.to_ascii_lowercase()
        });
        rest = split.map(|(_, after)| after);
    }
    Some(names)
}

fn dotted(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

fn insert(tree: &mut Node, key: &[String], node: &Node) -> Result<(), ConfigError> {
    let mut target = tree;
    for name in key {
        if let Value::Untyped(text) = &target.value {
            target.value =
                parse_text(text, &target.origin).unwrap_or(Value::Unsupported("a string"));
        }
        let Value::Table(entries) = &mut target.value else {
            let reason = format!("{} is not a table", target.origin);
            return Err(ConfigError::Invalid {
                origin: node.origin.clone(),
                key: key.join("."),
                reason,
            });
        };
        target = entries
            .entry(name.clone())
            .or_insert_with(|| Node::table(node.origin.clone()));
    }
    *target = node.clone();
    Ok(())
}
