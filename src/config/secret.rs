//! Secret values. They never appear in the output of `check`, in a log or in an error.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::environment::Environment;
use super::error::ConfigError;
use super::node::Value;
use super::section::Field;
use super::toml_text::key;

/// No key or certificate is larger.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// A secret text. Only [`SecretText::expose`] returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl fmt::Display for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A value of an environment variable or a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// A value in plain text in the file. Every reader of the file can see it.
    Plain(String),
    /// A secret from an environment variable or from a separate file.
    Hidden { from: String, text: SecretText },
    /// A setting from the environment. `check` shows its origin, and output is not masked.
    Setting { from: String, text: String },
}

impl Secret {
    pub fn expose(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Setting { text, .. } => text,
            Self::Hidden { text, .. } => text.expose(),
        }
    }

    pub fn is_hidden(&self) -> bool {
        matches!(self, Self::Hidden { .. })
    }

    /// Reads `"text"`, `{ from_env = "NAME" }` or `{ from_file = "/path" }`.
    pub(super) fn read(field: Field, environment: &Environment) -> Result<Self, ConfigError> {
        match &field.node.value {
            // A value from an environment variable remains secret.
            Value::Untyped(text) if !text.trim_start().starts_with('{') => {
                let from = format!("{{ from_env = \"{}\" }}", field.origin());
                return Ok(Self::Hidden { from, text: SecretText(field.string()?.to_owned()) });
            }
            Value::String(_) => return field.string().map(|text| Self::Plain(text.to_owned())),
            Value::Untyped(_) | Value::Table(_) => {}
            _ => {
                return Err(
                    field.type_error("a string, { from_env = \"NAME\" } or { from_file = \"/path\" }")
                );
            }
        }
        let mut section = field.section()?;
        let (variable, file) = (section.take("from_env"), section.take("from_file"));
        let one = section.invalid("needs either from_env or from_file");
        section.finish()?;
        match (variable, file) {
            (Some(variable), None) => from_variable(&variable, environment),
            (None, Some(file)) => from_file(&file),
            _ => Err(one),
        }
    }
}

fn from_variable(field: &Field, environment: &Environment) -> Result<Secret, ConfigError> {
    let name = field.string()?;
    let text = environment.get(name).and_then(|value| value.to_str()).filter(|text| !text.is_empty());
    let text =
        text.ok_or_else(|| field.invalid(format!("the environment variable {name} is empty or not set")))?;
    let shown = toml::Value::from(name);
    Ok(Secret::Hidden { from: format!("{{ from_env = {shown} }}"), text: SecretText(text.to_owned()) })
}

fn from_file(field: &Field) -> Result<Secret, ConfigError> {
    let name = field.string()?;
    let text = read_file(Path::new(name)).map_err(|reason| field.invalid(format!("{name}: {reason}")))?;
    let shown = toml::Value::from(name);
    Ok(Secret::Hidden { from: format!("{{ from_file = {shown} }}"), text: SecretText(text) })
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
    if text.is_empty() { Err("empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// Reads a table of named secrets: environment variables or headers.
pub(super) fn read_all(
    field: Field,
    environment: &Environment,
    valid: fn(&str) -> bool,
) -> Result<BTreeMap<String, Secret>, ConfigError> {
    let read = |(name, field): (String, Field)| {
        if valid(&name) {
            Ok((name, Secret::read(field, environment)?))
        } else {
            Err(field.invalid("not a valid name in this table"))
        }
    };
    field.entries()?.into_iter().map(read).collect()
}

/// Returns true for valid names of environment variables.
pub(super) fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=')
}

/// Describes the origin of a secret for `check`, without its value.
fn describe(secret: &Secret) -> String {
    match secret {
        Secret::Plain(text) => toml::Value::from(text.as_str()).to_string(),
        Secret::Hidden { from, .. } | Secret::Setting { from, .. } => from.clone(),
    }
}

/// Describes named secrets as an inline table, without their values.
pub(super) fn table(secrets: &BTreeMap<String, Secret>) -> String {
    if secrets.is_empty() {
        return "{}".to_owned();
    }
    let entries: Vec<_> =
        secrets.iter().map(|(name, secret)| format!("{} = {}", key(name), describe(secret))).collect();
    format!("{{ {} }}", entries.join(", "))
}
