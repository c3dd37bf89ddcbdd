//! A tree of values with their origins.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin};

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A string from the environment. The reader of the key determines its type.
    Untyped(String),
    String(String),
    Integer(i64),
    Boolean(bool),
    /// Floats and dates. No key accepts them.
    Unsupported(&'static str),
    Array(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

impl Node {
    pub(super) fn table(origin: Origin) -> Self {
        Self {
            value: Value::Table(BTreeMap::new()),
            origin,
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match &self.value {
            Value::Untyped(_) | Value::String(_) => "a string",
            Value::Integer(_) => "a number",
            Value::Boolean(_) => "a boolean",
            Value::Unsupported(found) => found,
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// Merges `over` into this node. Tables are merged key by key; every other value is replaced.
    pub(super) fn merge(&mut self, over: Self) {
        match (&mut self.value, over.value) {
            (Value::Table(under), Value::Table(over)) => {
                for (key, node) in over {
                    match under.get_mut(&key) {
                        Some(old) => old.merge(node),
                        None => {
                            under.insert(key, node);
                        }
                    }
                }
            }
            (_, value) => {
                *self = Self {
                    value,
                    origin: over.origin,
                }
            }
        }
    }

    /// Collects the origins of all leaves by their dotted names.
    pub(super) fn origins(&self, key: &str, into: &mut BTreeMap<String, Origin>) {
        match &self.value {
            Value::Table(entries) if !entries.is_empty() => {
                for (name, node) in entries {
                    node.origins(&dotted_key(key, name), into);
                }
            }
            _ => {
                into.insert(key.to_owned(), self.origin.clone());
            }
        }
    }
}

/// The name of a key in a table. The root table has no name.
pub(super) fn dotted_key(table: &str, name: &str) -> String {
    if table.is_empty() {
        name.to_owned()
    } else {
        format!("{table}.{name}")
    }
}

pub(super) fn parse_file(text: &str, path: &Path) -> Result<Node, ConfigError> {
    let path = Arc::new(path.to_owned());
    let origin_at = |offset: usize| Origin::File {
        path: path.clone(),
        line: 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..offset.min(text.len())]).count(),
    };
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        origin: origin_at(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    Ok(Node {
        value: entries(table.into_inner(), &origin_at),
        origin: origin_at(0),
    })
}

pub(super) fn parse_text(text: &str, origin: &Origin) -> Option<Value> {
    let value = DeValue::parse(text).ok()?;
    Some(convert(value, &|_| origin.clone()).value)
}

fn entries(table: DeTable<'_>, origin_at: &impl Fn(usize) -> Origin) -> Value {
    let named = |(key, value): (Spanned<_>, _)| {
        // Errors refer to the line of the key, also if the value is a table.
        let origin = origin_at(key.span().start);
        (
            std::borrow::Cow::into_owned(key.into_inner()),
            Node {
                origin,
                ..convert(value, origin_at)
            },
        )
    };
    Value::Table(table.into_iter().map(named).collect())
}

fn convert(value: Spanned<DeValue<'_>>, origin_at: &impl Fn(usize) -> Origin) -> Node {
    let origin = origin_at(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::String(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Unsupported("a number with more than 64 bits"),
        },
        DeValue::Boolean(value) => Value::Boolean(value),
        DeValue::Float(_) => Value::Unsupported("a fraction"),
        DeValue::Datetime(_) => Value::Unsupported("a date"),
        DeValue::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| convert(item, origin_at))
                .collect(),
        ),
        DeValue::Table(table) => entries(table, origin_at),
    };
    Node { value, origin }
}
