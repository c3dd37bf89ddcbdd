//! Reads tables. Reading a key marks it as known, and unknown keys are errors.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use super::environment::Environment;
use super::error::{ConfigError, Origin, closest};
use super::node::{Node, Value, dotted_key, parse_text};
use super::toml_text;

#[derive(Debug)]
pub(super) struct Section {
    /// The table, without its entries.
    table: Field,
    entries: BTreeMap<String, Node>,
    known_keys: Vec<&'static str>,
}

/// A value with its dotted key, and the environment for references to variables.
#[derive(Debug)]
pub(super) struct Field {
    key: String,
    pub(super) node: Node,
    pub(super) environment: Environment,
}

impl Section {
    pub(super) fn take(&mut self, name: &'static str) -> Option<Field> {
        self.known_keys.push(name);
        let node = self.entries.remove(name)?;
        Some(self.table.below(name, node))
    }

    /// Returns the error for a missing required key. If the table has an unknown key, its error is returned
    /// instead, because the key may be misspelt.
    pub(super) fn missing(mut self, name: &'static str) -> ConfigError {
        self.known_keys.push(name);
        let missing = ConfigError::Missing {
            origin: self.table.origin().clone(),
            key: self.table.key.clone(),
            missing: name,
        };
        self.finish().err().unwrap_or(missing)
    }

    pub(super) fn invalid(&self, reason: impl Into<String>) -> ConfigError {
        self.table.invalid(reason)
    }

    /// Rejects keys that were not read.
    pub(super) fn finish(mut self) -> Result<(), ConfigError> {
        let Some((name, node)) = self.entries.pop_first() else {
            return Ok(());
        };
        let suggestion = closest(&name, self.known_keys.iter().copied());
        let field = self.table.below(&name, node);
        Err(ConfigError::Unknown {
            origin: field.node.origin,
            key: field.key,
            suggestion,
        })
    }
}

impl Field {
    pub(super) fn new(key: &str, node: Node, environment: &Environment) -> Self {
        Self {
            key: key.to_owned(),
            node,
            environment: environment.clone(),
        }
    }

    /// A member of this table.
    fn below(&self, name: &str, node: Node) -> Self {
        Self::new(&dotted_key(&self.key, name), node, &self.environment)
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.node.origin
    }

    pub(super) fn invalid(&self, reason: impl Into<String>) -> ConfigError {
        ConfigError::Invalid {
            origin: self.node.origin.clone(),
            key: self.key.clone(),
            reason: reason.into(),
        }
    }

    pub(super) fn type_error(&self, expected: impl Into<String>) -> ConfigError {
        ConfigError::Type {
            origin: self.node.origin.clone(),
            key: self.key.clone(),
            expected: expected.into(),
            found: self.node.type_name(),
        }
    }

    pub(super) fn string(&self) -> Result<&str, ConfigError> {
        match &self.node.value {
            Value::Untyped(text) | Value::String(text) if text.contains('\0') => {
                Err(self.invalid("a NUL byte is not allowed"))
            }
            Value::Untyped(text) | Value::String(text) => Ok(text),
            _ => Err(self.type_error("a string")),
        }
    }

    /// Reads a program: a name to look up on PATH, or an absolute path.
    pub(super) fn program(&self) -> Result<String, ConfigError> {
        let command = self.string()?;
        if command.is_empty() || (command.contains('/') && !Path::new(command).is_absolute()) {
            return Err(self.invalid("must be the name of a program on PATH, or an absolute path"));
        }
        Ok(command.to_owned())
    }

    pub(super) fn boolean(&self) -> Result<bool, ConfigError> {
        match &self.node.value {
            Value::Boolean(value) => Ok(*value),
            Value::Untyped(text) if text == "true" => Ok(true),
            Value::Untyped(text) if text == "false" => Ok(false),
            _ => Err(self.type_error("true or false")),
        }
    }

    pub(super) fn count<T: TryFrom<u64>>(&self) -> Result<T, ConfigError> {
        let number = match &self.node.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::Untyped(text) => text.parse().ok(),
            _ => return Err(self.type_error("a whole number")),
        };
        let number = number.ok_or_else(|| self.invalid("must be a whole number, at least 0"))?;
        T::try_from(number).map_err(|_| self.invalid("the number is too large"))
    }

    /// Reads bytes, as a number or a text such as `"16MiB"`.
    pub(super) fn size<T: TryFrom<u64>>(&self) -> Result<T, ConfigError> {
        let bytes = match &self.node.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::String(text) | Value::Untyped(text) => toml_text::parse_size(text),
            _ => return Err(self.type_error("a size such as \"16MiB\"")),
        };
        let bytes = bytes.ok_or_else(|| self.invalid("not a size such as \"16MiB\""))?;
        T::try_from(bytes).map_err(|_| self.invalid("the size is too large"))
    }

    pub(super) fn duration(&self) -> Result<Duration, ConfigError> {
        match &self.node.value {
            Value::String(text) | Value::Untyped(text) => toml_text::parse_duration(text)
                .ok_or_else(|| {
                    self.invalid(
                        "not a time such as \"500ms\", \"10m\" or \"1h30m\", at most 3650d",
                    )
                }),
            _ => Err(self.type_error("a time such as \"10m\"")),
        }
    }

    pub(super) fn choice<N: AsRef<str>, T: Clone>(
        &self,
        choices: &[(N, T)],
    ) -> Result<T, ConfigError> {
        let written = self.string()?;
        choices
            .iter()
            .find(|(name, _)| name.as_ref() == written)
            .map(|(_, value)| value.clone())
            .ok_or_else(|| {
                let names: Vec<_> = choices
                    .iter()
                    .map(|(name, _)| format!("\"{}\"", name.as_ref()))
                    .collect();
                let names = names.join(", ");
                let expected = match names.rsplit_once(", ") {
                    Some((others, last)) => format!("{others} or {last}"),
                    None => names,
                };
                self.invalid(format!("must be {expected}, not {written:?}"))
            })
    }

    pub(super) fn parse<T: FromStr<Err: std::fmt::Display>>(&self) -> Result<T, ConfigError> {
        let text = self.string()?;
        text.parse()
            .map_err(|error| self.invalid(format!("{text:?}: {error}")))
    }

    pub(super) fn each<T>(
        self,
        read: impl Fn(&Self) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let wrong = self.type_error("a list such as [\"a\", \"b\"]");
        let value = match self.node.value {
            Value::Untyped(text) => parse_text(&text, &self.node.origin),
            value => Some(value),
        };
        let Some(Value::Array(items)) = value else {
            return Err(wrong);
        };
        let items = items.into_iter().enumerate();
        items
            .map(|(index, node)| {
                read(&Self::new(
                    &format!("{}[{index}]", self.key),
                    node,
                    &self.environment,
                ))
            })
            .collect()
    }

    /// Reads a table whose keys are names that the operator chose.
    pub(super) fn entries(self) -> Result<Vec<(String, Self)>, ConfigError> {
        let Section { table, entries, .. } = self.section()?;
        let fields = entries.into_iter().map(|(name, node)| {
            let field = table.below(&name, node);
            (name, field)
        });
        Ok(fields.collect())
    }

    pub(super) fn section(mut self) -> Result<Section, ConfigError> {
        let wrong = self.type_error("a table");
        let value = match std::mem::replace(&mut self.node.value, Value::Table(BTreeMap::new())) {
            Value::Untyped(text) => parse_text(&text, &self.node.origin),
            value => Some(value),
        };
        let Some(Value::Table(entries)) = value else {
            return Err(wrong);
        };
        Ok(Section {
            table: self,
            entries,
            known_keys: Vec::new(),
        })
    }
}
