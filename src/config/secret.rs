//! Values that nobody may see: not in `check`, not in a log, not in an error.

use std::fmt;
use std::path::Path;

use super::environment::Environment;
use super::error::ConfigError;
use super::node::Value;
use super::section::Field;

/// More than any key or certificate.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// A text that shows itself only to [`SecretText::expose`].
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

/// A value of an environment or of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// Stands in the file for everybody who reads it.
    Plain(String),
    /// From the environment or from a file of its own.
    Hidden { from: String, text: SecretText },
    /// A setting from the environment. It is shown by its origin, and not masked in output.
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

    /// `"text"`, `{ from_env = "NAME" }` or `{ from_file = "/path" }`.
    pub(super) fn read(field: Field, environment: &Environment) -> Result<Self, ConfigError> {
        match &field.node.value {
            // What came by an environment variable stays as hidden as the variable is.
            Value::Untyped(text) if !text.trim_start().starts_with('{') => {
                let from = format!("{{ from_env = \"{}\" }}", field.origin());
                return Ok(Self::Hidden { from, text: SecretText(field.string()?.to_owned()) });
            }
            Value::String(_) => return field.string().map(|text| Self::Plain(text.to_owned())),
            Value::Untyped(_) | Value::Table(_) => {}
            _ => return Err(field.type_error("a string, { from_env = \"NAME\" } or { from_file = \"/path\" }")),
        }
        let mut section = field.section()?;
        let (variable, file) = (section.take("from_env"), section.take("from_file"));
        let one = section.invalid("needs from_env or from_file, one of them");
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
    let text = text.ok_or_else(|| field.invalid(format!("the environment has no {name}")))?;
    let shown = toml::Value::from(name);
    Ok(Secret::Hidden { from: format!("{{ from_env = {shown} }}"), text: SecretText(text.to_owned()) })
}

fn from_file(field: &Field) -> Result<Secret, ConfigError> {
    let name = field.string()?;
    let text = read_file(Path::new(name)).map_err(|reason| field.invalid(format!("{name}: {reason}")))?;
    let shown = toml::Value::from(name);
    Ok(Secret::Hidden { from: format!("{{ from_file = {shown} }}"), text: SecretText(text) })
}

/// A secret's file without the newline at its end. The reason never quotes what was read.
pub(super) fn read_file(path: &Path) -> Result<String, String> {
    use std::io::Read;
    if !path.is_absolute() {
        return Err("not an absolute path".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err("larger than 64 KiB".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() { Err("empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// A table of named secrets: an environment, or headers.
pub(super) fn read_all(
    field: Field,
    environment: &Environment,
    valid: fn(&str) -> bool,
) -> Result<std::collections::BTreeMap<String, Secret>, ConfigError> {
    let read = |(name, field): (String, Field)| {
        if valid(&name) {
            Ok((name, Secret::read(field, environment)?))
        } else {
            Err(field.invalid("cannot be a name here"))
        }
    };
    field.entries()?.into_iter().map(read).collect()
}

/// What can be the name of an environment variable.
pub(super) fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=')
}

/// For `check`: where it comes from, never what it is.
pub(super) fn describe(secret: &Secret) -> String {
    match secret {
        Secret::Plain(text) => toml::Value::from(text.as_str()).to_string(),
        Secret::Hidden { from, .. } | Secret::Setting { from, .. } => from.clone(),
    }
}
