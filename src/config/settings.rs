//! The keys that are not limits: addresses, origins, directories and the log filter.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use http::Uri;

use super::Config;
use super::error::{ConfigError, Origin};
use super::key::{Key, Kind, key_table, switch};
use super::secret::{self, Secret};
use super::section::Field;
use super::toml_text::{list, path, quoted};
use children::UserRange;
use events::api::PublicUrl;
use outgoing::url_port;

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
        allowed_hosts: parsed => allowed_hosts;
        /// Addresses or ranges ("10.0.0.0/8") of TLS proxies. Beyond loopback, only they may connect.
        trusted_proxies: parsed => trusted_proxies;
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
        run_as: users => isolation.run_as, default "1900000000-1900065535 or 20000-60000 as root, unless allow_root_agents is set", example "\"100000-165535\"";
    }
    ["webhooks", local: false] {
        /// The hosts to which webhooks may send, such as "hooks.example" or "*.example.org". Without one, webhooks are disabled.
        allowed_hosts: parsed => webhooks.allowed_hosts;
        /// A file with certificate authorities in PEM that webhooks trust in addition to those of the system.
        ca_file: certificates => webhooks.ca_file, default "none", example "\"/etc/acp-gateway/ca.pem\"";
    }
    ["registry", local: true] {
        /// The registry of `acp-gateway agent` and of installations over HTTP: an https URL or a file. Without it, a gateway with a public_url, allowed_hosts, trusted_proxies or an address that is not loopback installs nothing over HTTP.
        source: log_filter => registry_source,
            default "none; the command uses the registry of the ACP project",
            example "\"https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json\"";
    }
    ["telemetry", local: false] {
        /// The log filter in the syntax of RUST_LOG. Also RUST_LOG, ACP_GATEWAY_LOG.
        log_filter: log_filter => log_filter, default "info", example "\"info\"";
        /// The URL of a collector that accepts OTLP over HTTP. The gateway sends metrics and traces to /v1/metrics and /v1/traces below it. Also OTEL_EXPORTER_OTLP_ENDPOINT.
        otlp_endpoint: collector => otlp_endpoint, default "none", example "\"http://127.0.0.1:4318\"";
        /// Headers for the collector, such as a key. A value is a text, { from_env = "NAME" } or { from_file = "/path" }.
        otlp_headers: headers => otlp_headers;
    }
};

fn optional<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map(show).unwrap_or_default()
}

fn address() -> Kind<Listen> {
    Kind {
        read: |field| read_listen(&field),
        show: |listen| quoted(&listen.address.to_string()),
    }
}

fn public_url() -> Kind<Option<PublicUrl>> {
    Kind {
        read: |field| read_public_url(&field).map(Some),
        show: |url| optional(url.as_ref(), |url| quoted(&url.to_string())),
    }
}

fn log_filter() -> Kind<Option<String>> {
    Kind {
        read: |field| Ok(Some(field.string()?.to_owned())),
        show: |value| optional(value.as_deref(), quoted),
    }
}

fn collector() -> Kind<Option<Uri>> {
    Kind {
        read: |field| read_collector(&field),
        show: |url| optional(url.as_ref(), |url| quoted(&url.to_string())),
    }
}

fn headers() -> Kind<BTreeMap<String, Secret>> {
    Kind {
        read: secret::read_headers,
        show: secret::show_all,
    }
}

fn users() -> Kind<Option<UserRange>> {
    Kind {
        read: |field| field.parse().map(Some),
        show: |range| optional(*range, |range| quoted(&range.to_string())),
    }
}

fn parsed<T: FromStr<Err: Display> + Display>() -> Kind<Vec<T>> {
    Kind {
        read: |field| field.each(Field::parse),
        show: |value| list(value),
    }
}

fn certificates() -> Kind<Option<CaFile>> {
    Kind {
        read: |field| read_ca_file(&field).map(Some),
        show: |file| optional(file.as_ref(), |file| path(&file.path)),
    }
}

fn origins() -> Kind<Vec<String>> {
    Kind {
        read: |field| field.each(read_origin),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    pub address: SocketAddr,
    /// True if the operator configured this address. Otherwise, the gateway may use the next free port.
    pub explicit: bool,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            explicit: false,
        }
    }
}

pub(super) fn read_listen(field: &Field) -> Result<Listen, ConfigError> {
    let text = field.string()?;
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port
            .parse()
            .ok()
            .map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        None => text.parse().ok(),
    };
    let address = address.ok_or_else(|| {
        field.invalid(format!(
            "{text:?} is not an address and a port such as \"127.0.0.1:8080\""
        ))
    })?;
    Ok(Listen {
        address,
        explicit: true,
    })
}

impl Listen {
    /// Whether other machines can reach the address, so that keys and conversations could leave this
    /// machine unencrypted.
    pub fn is_exposed(&self) -> bool {
        !self.address.ip().to_canonical().is_loopback()
    }
}

/// No file with certificates is larger.
const MAX_CA_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaFile {
    pub path: PathBuf,
    pub certificates: Vec<u8>,
}

pub(super) fn read_ca_file(field: &Field) -> Result<CaFile, ConfigError> {
    use std::io::Read as _;
    let path = PathBuf::from(field.string()?);
    if !path.is_absolute() {
        return Err(field.invalid("must be an absolute path"));
    }
    let mut certificates = Vec::new();
    let read_ca_file = std::fs::File::open(&path)
        .and_then(|file| file.take(MAX_CA_BYTES).read_to_end(&mut certificates));
    read_ca_file.map_err(|error| field.invalid(format!("{}: {error}", path.display())))?;
    let marker = b"-----BEGIN CERTIFICATE-----";
    if !certificates
        .windows(marker.len())
        .any(|window| window == marker)
    {
        return Err(field.invalid(format!("{}: not a certificate in PEM", path.display())));
    }
    Ok(CaFile { path, certificates })
}

/// Reads `scheme://host`, with `:port` unless it is the default port of the scheme.
pub(super) fn read_origin(field: &Field) -> Result<String, ConfigError> {
    let written = field.string()?;
    match canonicalize(written) {
        Some(origin) if origin == written => Ok(origin),
        Some(origin) => {
            Err(field.invalid(format!("must have the form of a browser: \"{origin}\"")))
        }
        None => Err(field.invalid(
            "not an origin such as \"https://app.example\"; wildcards and null are not supported",
        )),
    }
}

/// Reads an origin with or without a path, which may end with a slash.
pub(super) fn read_public_url(field: &Field) -> Result<PublicUrl, ConfigError> {
    let written = field.string()?;
    let (origin, path) = split_path(written);
    let url = canonicalize(origin).and_then(|origin| PublicUrl::new(origin, path));
    url.ok_or_else(|| {
        field.invalid(
            "not a URL such as \"https://gateway.example\" or \"https://example.org/gateway\" (scheme, host, port, and a \
             path of letters, digits and -._~)",
        )
    })
}

/// Reads the URL of a collector. `None` for an empty text, because an empty variable of OpenTelemetry is one that is not set.
fn read_collector(field: &Field) -> Result<Option<Uri>, ConfigError> {
    let text = field.string()?;
    if text.is_empty() {
        return Ok(None);
    }
    if text.contains('@') {
        return Err(field.invalid("must not contain credentials: use telemetry.otlp_headers"));
    }
    let invalid = || field.invalid("not a URL such as \"http://127.0.0.1:4318\", without a query");
    let url: Uri = text.parse().map_err(|_| invalid())?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    if !is_http || !has_host || url.query().is_some() || text.contains('#') {
        return Err(invalid());
    }
    url_port(&url).map_err(|error| field.invalid(error.to_string()))?;
    Ok(Some(url))
}

/// The origin of a URL, and the rest.
fn split_path(url: &str) -> (&str, &str) {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let path = url[authority..]
        .find('/')
        .map_or(url.len(), |at| authority + at);
    url.split_at(path)
}

fn canonicalize(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let default = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest).to_ascii_lowercase();
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon of an IPv6 address in brackets does not precede a port.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority.as_str(), None),
    };
    if let Some(port) = port {
        let number: u16 = port.parse().ok()?;
        if number == 0 || port != number.to_string() {
            return None;
        }
    }
    let valid = match host.strip_prefix('[') {
        Some(address) => address
            .strip_suffix(']')?
            .parse::<std::net::Ipv6Addr>()
            .is_ok(),
        None => host.split('.').all(is_host_label),
    };
    let authority = authority.strip_suffix(default).unwrap_or(&authority);
    valid.then(|| format!("{scheme}://{authority}"))
}

fn is_host_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod web_origin_tests {
    use super::*;

    #[test]
    fn public_url_is_split_at_its_path() {
        for (url, origin, path) in [
            ("https://a.example", "https://a.example", ""),
            ("https://a.example/", "https://a.example", "/"),
            ("https://a.example:1/b/c/", "https://a.example:1", "/b/c/"),
            ("http://[::1]:3000/b", "http://[::1]:3000", "/b"),
            ("a/b", "a", "/b"),
        ] {
            assert_eq!(split_path(url), (origin, path));
        }
    }

    #[test]
    fn origins_are_canonicalized() {
        for origin in [
            "https://app.example",
            "http://localhost:3000",
            "http://[::1]:3000",
            "http://10.0.0.1",
        ] {
            assert_eq!(canonicalize(origin).as_deref(), Some(origin));
        }
        assert_eq!(
            canonicalize("HTTPS://App.Example:443/").as_deref(),
            Some("https://app.example")
        );
        assert_eq!(
            canonicalize("http://a:443").as_deref(),
            Some("http://a:443")
        );
        for wrong in [
            "",
            "null",
            "*",
            "app.example",
            "https://",
            "https://*.example",
            "ftp://a",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "https://a:",
            "https://a:0",
            "https://a:080",
            "https://a:99999",
            "https://a.",
            "https://[1]",
            "https://a b",
            "https://a#",
        ] {
            assert_eq!(canonicalize(wrong), None, "{wrong:?}");
        }
    }
}
