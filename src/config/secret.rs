//! Secret values. They never appear in the output of `check`, in a log or in an error.

use std::collections::BTreeMap;
use std::path::Path;

use http::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::environment::Environment;
use super::error::ConfigError;
use super::node::Value;
use super::section::Field;
use super::toml_text::{quoted, table};

/// No key or certificate is larger.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// A value of an environment variable or a header. `Debug` prints what `check` prints.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("{shown}")]
pub struct Secret {
    text: String,
    /// The value for `check`, in the syntax of the file: the text itself only if it is in plain text in the file.
    shown: String,
    hidden: bool,
}

impl Secret {
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Whether output is masked. A value in plain text in the file is visible to every reader of the file.
    pub fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Hides a value in plain text also where it is shown.
    pub(super) fn withhold(&mut self) {
        if self.shown == quoted(&self.text) {
            self.shown = quoted("[secret]");
        }
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// A value from an environment variable. `check` shows its origin.
    pub(super) fn from_variable(name: &str, text: &str, hidden: bool) -> Self {
        Self {
            text: text.to_owned(),
            shown: table([("from_env", quoted(name))]),
            hidden,
        }
    }

    /// Reads `"text"`, `{ from_env = "NAME" }` or `{ from_file = "/path" }`.
    pub(super) fn read(field: Field) -> Result<Self, ConfigError> {
        match &field.node.value {
            // A value from an environment variable remains secret.
            Value::Untyped(text) if !text.trim_start().starts_with('{') => {
                return Ok(Self::from_variable(
                    &field.origin().to_string(),
                    field.string()?,
                    true,
                ));
            }
            Value::String(_) => {
                let text = field.string()?;
                return Ok(Self {
                    text: text.to_owned(),
                    shown: quoted(text),
                    hidden: false,
                });
            }
            Value::Untyped(_) | Value::Table(_) => {}
            _ => {
                return Err(field
                    .type_error("a string, { from_env = \"NAME\" } or { from_file = \"/path\" }"));
            }
        }
        let mut section = field.section()?;
        let variable = section.take("from_env");
        let file = section.take("from_file");
        let one = section.invalid("needs either from_env or from_file");
        section.finish()?;
        match (variable, file) {
            (Some(variable), None) => read_variable(&variable),
            (None, Some(file)) => {
                let name = file.string()?;
                let text = read_file(Path::new(name))
                    .map_err(|reason| file.invalid(format!("{name}: {reason}")))?;
                Ok(Self {
                    text,
                    shown: table([("from_file", quoted(name))]),
                    hidden: true,
                })
            }
            _ => Err(one),
        }
    }
}

fn read_variable(field: &Field) -> Result<Secret, ConfigError> {
    let name = field.string()?;
    let text = field
        .environment
        .get(name)
        .and_then(|value| value.to_str())
        .filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| {
        field.invalid(format!(
            "the environment variable {name} is empty or not set"
        ))
    })?;
    Ok(Secret::from_variable(name, text, true))
}

/// Reads a secret from a file and removes the newline at its end. Errors never quote the content.
pub(super) fn read_file(path: &Path) -> Result<String, String> {
    use std::io::Read;
    if !path.is_absolute() {
        return Err("not an absolute path".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err("larger than 64 KiB".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        Err("empty".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// Reads a table of named secrets: environment variables or headers.
pub(super) fn read_all(
    field: Field,
    valid: fn(&str) -> bool,
) -> Result<BTreeMap<String, Secret>, ConfigError> {
    let read = |(name, field): (String, Field)| {
        if valid(&name) {
            Ok((name, Secret::read(field)?))
        } else {
            Err(field.invalid("not a valid name in this table"))
        }
    };
    field.entries()?.into_iter().map(read).collect()
}

pub(super) fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'=')
}

/// Reads a table of headers for requests to another host.
pub(super) fn read_headers(field: Field) -> Result<BTreeMap<String, Secret>, ConfigError> {
    let wrong = field.invalid("a value has characters that a header cannot have");
    let headers = read_all(field, is_header)?;
    let mut values = headers.values();
    if values.all(|value| HeaderValue::try_from(value.expose()).is_ok()) {
        Ok(headers)
    } else {
        Err(wrong)
    }
}

/// Headers that the operator may set. The transport sets the others itself.
fn is_header(name: &str) -> bool {
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        return false;
    };
    let own = [
        ACCEPT,
        CONNECTION,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        HOST,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    let starts = ["sec-websocket-", "acp-", "last-event-id", "proxy-"];
    !own.contains(&name) && !starts.iter().any(|start| name.as_str().starts_with(start))
}

/// Describes named secrets as an inline table, without their values.
pub(super) fn show_all(secrets: &BTreeMap<String, Secret>) -> String {
    table(
        secrets
            .iter()
            .map(|(name, secret)| (name.as_str(), secret.shown.clone())),
    )
}

pub(super) const ADMIN_KEY_FILE_VARIABLE: &str = "ACP_GATEWAY_ADMIN_KEY_FILE";
pub(super) const ADMIN_KEY_HASH_VARIABLE: &str = "ACP_GATEWAY_ADMIN_KEY_HASH";
/// The minimum number of characters: 128 bits in hex.
const MIN_KEY_LEN: usize = 32;

pub(super) fn read_admin_key(environment: &Environment) -> Result<Option<[u8; 32]>, ConfigError> {
    let variable = |name| move |reason: String| ConfigError::Variable { name, reason };
    match (
        environment.get(ADMIN_KEY_FILE_VARIABLE),
        environment.get(ADMIN_KEY_HASH_VARIABLE),
    ) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(variable(ADMIN_KEY_HASH_VARIABLE)(format!(
            "cannot be combined with {ADMIN_KEY_FILE_VARIABLE}"
        ))),
        (Some(path), None) => {
            let key = read_file(Path::new(path)).map_err(variable(ADMIN_KEY_FILE_VARIABLE))?;
            if key.len() < MIN_KEY_LEN || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                let reason =
                    format!("the file must contain one key of at least {MIN_KEY_LEN} characters");
                return Err(variable(ADMIN_KEY_FILE_VARIABLE)(reason));
            }
            Ok(Some(Sha256::digest(key).into()))
        }
        (None, Some(hash)) => {
            let bytes = hash.to_str().and_then(parse_hex);
            bytes.map(Some).ok_or_else(|| {
                variable(ADMIN_KEY_HASH_VARIABLE)("not a SHA-256 hash of 64 hex digits".to_owned())
            })
        }
    }
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
