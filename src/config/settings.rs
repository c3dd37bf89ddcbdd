//! The keys that are not limits: addresses, origins, directories and the log filter.

use std::path::{Path, PathBuf};

use super::ca_file::{self, CaFile};
use super::error::ConfigError;
use super::key::{Key, key_table};
use super::kinds::{Kind, switch};
use super::listen::{self, Listen};
use super::origin::Origin;
use super::section::Field;
use super::toml_text::{list, path, quoted};
use super::{Config, web_origin};
use crate::types::{HostPattern, Network, PublicUrl, UserRange};

pub(super) const KEYS: &[Key<Config>] = key_table! { Config:
    ["server", local: true] {
        /// The address. If you set it, the gateway uses this port or fails. 127.0.0.1 includes ::1. Also --listen, ACP_GATEWAY_LISTEN.
        listen: address => listen,
            default "127.0.0.1:8080, or the next free port", example "\"127.0.0.1:8080\"";
        /// The absolute path of the data directory. Also --data, ACP_GATEWAY_DATA.
        data_dir: folder => data.0,
            default "$XDG_DATA_HOME/acp-gateway, or ~/.local/share/acp-gateway", example "\"/var/lib/acp-gateway\"";
        /// The URL of the gateway behind a proxy, which can have a path that the proxy removes. The gateway accepts its host and origin.
        public_url: public_url => public_url, default "none", example "\"https://gateway.example\"";
    }
    ["server", local: false] {
        /// Further host names of the gateway, such as "gateway" or "*.svc.cluster.local", with any port. A page in a browser also needs its origin in public_url or auth.allowed_origins.
        allowed_hosts: hosts => allowed_hosts;
        /// Addresses or ranges ("10.0.0.0/8") of TLS proxies. Beyond loopback, only they may connect.
        trusted_proxies: networks => trusted_proxies;
        /// Allows plain HTTP on a non-loopback address, with a warning. Also --insecure-http.
        insecure_http: switch => insecure_http;
    }
    ["auth", local: false] {
        /// The origins of other web pages that may use the gateway.
        allowed_origins: origins => allowed_origins;
        /// The origins of web pages that may show the chat page in a frame.
        frame_ancestors: origins => frame_ancestors;
    }
    ["workspaces", local: true] {
        /// The parent directory of new workspaces. The `cwd` of a session is below it.
        root: folder => workspaces.root,
            default "the directory workspaces in the data directory", example "\"/srv/workspaces\"";
    }
    ["workspaces", local: false] {
        /// Further existing directories in which sessions may work. --workspace DIR adds one.
        allow: existing_folders => workspaces.allow;
    }
    ["isolation", local: true] {
        /// Refuses to start an agent if the machine cannot apply its isolation level completely.
        required: switch => isolation.required;
        /// Allows agents to run as root if the gateway runs as root.
        allow_root_agents: switch => isolation.allow_root;
        /// The first and the last user id for agents, if the gateway runs as root. Each agent gets its own user.
        run_as: users => isolation.run_as, default "none", example "\"100000-165535\"";
    }
    ["webhooks", local: false] {
        /// The hosts to which webhooks may send, such as "hooks.example" or "*.example.org". Without one, webhooks are disabled.
        allowed_hosts: hosts => webhooks.allowed_hosts;
        /// A file with certificate authorities in PEM that webhooks trust in addition to those of the system.
        ca_file: certificates => webhooks.ca_file, default "none", example "\"/etc/acp-gateway/ca.pem\"";
    }
    ["registry", local: true] {
        /// The registry of `acp-gateway agent`, and of the list of installable agents on the page: an https URL or a file. Without it, the page has no such list.
        source: log_filter => registry_source,
            default "none; the command uses the registry of the ACP project",
            example "\"https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json\"";
    }
    ["telemetry", local: false] {
        /// The log filter in the syntax of RUST_LOG. Also RUST_LOG, ACP_GATEWAY_LOG.
        log_filter: log_filter => log_filter, default "info", example "\"info\"";
    }
};

fn address() -> Kind<Listen> {
    Kind {
        read: |field| listen::read(&field),
        show: |listen| quoted(&listen.address.to_string()),
    }
}

fn public_url() -> Kind<Option<PublicUrl>> {
    Kind {
        read: |field| web_origin::read_public_url(&field).map(Some),
        show: |url| {
            url.as_ref()
                .map(|url| quoted(&url.to_string()))
                .unwrap_or_default()
        },
    }
}

fn log_filter() -> Kind<Option<String>> {
    Kind {
        read: |field| Ok(Some(field.string()?.to_owned())),
        show: |value| value.as_deref().map(quoted).unwrap_or_default(),
    }
}

fn users() -> Kind<Option<UserRange>> {
    Kind {
        read: |field| field.parse().map(Some),
        show: |range| {
            range
                .map(|range| quoted(&range.to_string()))
                .unwrap_or_default()
        },
    }
}

fn hosts() -> Kind<Vec<HostPattern>> {
    Kind {
        read: |field| field.each(Field::parse),
        show: |value| list(value),
    }
}

fn certificates() -> Kind<Option<CaFile>> {
    Kind {
        read: |field| ca_file::read(&field).map(Some),
        show: |file| {
            file.as_ref()
                .map(|file| path(&file.path))
                .unwrap_or_default()
        },
    }
}

fn networks() -> Kind<Vec<Network>> {
    Kind {
        read: |field| field.each(Field::parse),
        show: |value| list(value),
    }
}

fn origins() -> Kind<Vec<String>> {
    Kind {
        read: |field| field.each(web_origin::read),
        show: |value| list(value),
    }
}

fn folder() -> Kind<PathBuf> {
    Kind {
        read: |field| read_folder(&field),
        show: |value| path(value),
    }
}

pub(super) fn existing_folders() -> Kind<Vec<PathBuf>> {
    Kind {
        read: |field| field.each(read_existing_folder),
        show: |value| list(value.iter().map(|folder| folder.display())),
    }
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

/// Folders without symbolic links: an agent could replace a link later.
pub(super) fn real_folders() -> Kind<Vec<PathBuf>> {
    Kind {
        read: |field| field.each(read_real_folder),
        ..existing_folders()
    }
}

fn read_real_folder(field: &Field) -> Result<PathBuf, ConfigError> {
    let path = read_existing_folder(field)?;
    path.canonicalize()
        .map_err(|error| field.invalid(format!("{}: {error}", path.display())))
}

pub(super) fn read_existing_folder(field: &Field) -> Result<PathBuf, ConfigError> {
    let path = read_folder(field)?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err(field.invalid(format!("{} is not a directory", path.display())))
    }
}
