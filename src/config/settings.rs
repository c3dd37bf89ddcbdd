//! The keys that are not limits: addresses, origins, directories and the log filter.

use std::path::{Path, PathBuf};

use super::DataDir;
use super::error::ConfigError;
use super::key::{Key, KeyDefault};
use super::origin::Origin;
use super::section::Field;
use super::toml_text::{list, path, quoted};
use super::{listen, web_origin};

pub(super) const KEYS: &[Key] = &[
    Key {
        section: "server",
        name: "listen",
        comment: "The address. If you set it, the gateway uses this port or fails. Also --listen, ACP_GATEWAY_LISTEN.",
        default: KeyDefault::Described {
            text: "127.0.0.1:8080, or the next free port",
            example: "\"127.0.0.1:8080\"",
        },
        local: true,
        read: |config, field| listen::read(&field).map(|value| config.listen = value),
        show: |config| Some(quoted(&config.listen.address.to_string())),
    },
    Key {
        section: "server",
        name: "data_dir",
        comment: "The absolute path of the data directory. Also --data, ACP_GATEWAY_DATA.",
        default: KeyDefault::Described {
            text: "$XDG_DATA_HOME/acp-gateway, or ~/.local/share/acp-gateway",
            example: "\"/var/lib/acp-gateway\"",
        },
        local: true,
        read: |config, field| read_folder(&field).map(|value| config.data = DataDir::new(value)),
        show: |config| Some(path(config.data.path())),
    },
    Key {
        section: "server",
        name: "public_url",
        comment: "The URL of the gateway behind a proxy. The gateway accepts its host and origin.",
        default: KeyDefault::Described { text: "none", example: "\"https://gateway.example\"" },
        local: false,
        read: |config, field| {
            web_origin::read_public_url(&field).map(|value| config.public_url = Some(value))
        },
        show: |config| config.public_url.as_deref().map(quoted),
    },
    Key {
        section: "server",
        name: "trusted_proxies",
        comment: "Addresses or ranges (\"10.0.0.0/8\") of TLS proxies. Beyond loopback, only they may connect.",
        default: KeyDefault::Fixed,
        local: false,
        read: |config, field| parse_each(field, Field::parse).map(|value| config.trusted_proxies = value),
        show: |config| Some(list(&config.trusted_proxies)),
    },
    Key {
        section: "server",
        name: "insecure_http",
        comment: "Allows plain HTTP on a non-loopback address, with a warning. Also --insecure-http.",
        default: KeyDefault::Fixed,
        local: false,
        read: |config, field| field.boolean().map(|value| config.insecure_http = value),
        show: |config| Some(config.insecure_http.to_string()),
    },
    Key {
        section: "auth",
        name: "allowed_origins",
        comment: "The origins of other web pages that may use the gateway.",
        default: KeyDefault::Fixed,
        local: false,
        read: |config, field| parse_each(field, web_origin::read).map(|value| config.allowed_origins = value),
        show: |config| Some(list(&config.allowed_origins)),
    },
    Key {
        section: "workspaces",
        name: "root",
        comment: "The parent directory of new workspaces. The `cwd` of a session is below it.",
        default: KeyDefault::Described {
            text: "the directory workspaces in the data directory",
            example: "\"/srv/workspaces\"",
        },
        local: false,
        read: |config, field| read_folder(&field).map(|value| config.workspaces.root = value),
        show: |config| Some(path(&config.workspaces.root)),
    },
    Key {
        section: "workspaces",
        name: "allow",
        comment: "Further existing directories in which sessions may work. --workspace DIR adds one.",
        default: KeyDefault::Fixed,
        local: false,
        read: |config, field| {
            parse_each(field, read_existing_folder).map(|value| config.workspaces.allow = value)
        },
        show: |config| {
            let folders = config.workspaces.allow.iter().map(|folder| folder.display().to_string());
            Some(list(&folders.collect::<Vec<_>>()))
        },
    },
    Key {
        section: "telemetry",
        name: "log_filter",
        comment: "The log filter in the syntax of RUST_LOG. Also RUST_LOG, ACP_GATEWAY_LOG.",
        default: KeyDefault::Described { text: "info", example: "\"info\"" },
        local: false,
        read: |config, field| field.string().map(|value| config.log_filter = Some(value.to_owned())),
        show: |config| config.log_filter.as_deref().map(quoted),
    },
];

fn parse_each<T>(
    field: Field,
    read: impl Fn(&Field) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    field.list()?.iter().map(read).collect()
}

/// Reads a directory. A file requires an absolute path; a path on the command line is relative to the current
/// directory.
fn read_folder(field: &Field) -> Result<PathBuf, ConfigError> {
    let path = Path::new(field.string()?);
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    if matches!(field.origin(), Origin::File { .. }) || path.as_os_str().is_empty() {
        return Err(field.invalid("must be an absolute path"));
    }
    std::path::absolute(path).map_err(|error| field.invalid(error.to_string()))
}

pub(super) fn read_existing_folder(field: &Field) -> Result<PathBuf, ConfigError> {
    let path = read_folder(field)?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err(field.invalid(format!("{} is not a directory", path.display())))
    }
}
