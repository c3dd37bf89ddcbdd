//! One key of the configuration file: its name, documentation, reader and printer.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use strum::VariantArray;

use super::error::ConfigError;
use super::section::{Field, Section};
use super::toml_text::{self, duration_text, list, quoted, size_text};

/// The section of the limits that apply to each user. A reload applies its keys; all others need a restart.
pub(super) const PER_KEY: &str = "limits.per_key";

/// A key of a table that configures a `T`. Reading, printing, the sample file and the reference all use this
/// entry, so that they cannot differ.
pub(super) struct Key<T> {
    /// The dotted name of the table; empty for the tables of agents.
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    pub(super) comment: &'static str,
    /// The default, unless [`Key::show`] returns it for the default configuration.
    pub(super) default: Option<DescribedDefault>,
    /// Whether the commands that run next to a gateway need the key.
    pub(super) local: bool,
    pub(super) read: fn(&mut T, Field) -> Result<(), ConfigError>,
    /// Returns the value in the syntax of the file, or an empty text if there is none.
    pub(super) show: fn(&T) -> String,
}

/// A default that depends on the machine, or none: a description and an example in the syntax of the file.
pub(super) struct DescribedDefault {
    pub(super) text: &'static str,
    pub(super) example: &'static str,
}

/// Declares the keys of a target, by section. A row has the documentation of the key, its name, a function of
/// `kinds` or of the calling module, and the field that it sets.
macro_rules! key_table {
    (@name $name:ident) => { stringify!($name) };
    (@name $name:ident $key:ident) => { stringify!($key) };
    (@default) => { None };
    (@default $text:literal $example:literal) => {
        Some(crate::config::key::DescribedDefault { text: $text, example: $example })
    };
    ($target:ty: $([$section:literal, local: $local:literal] { $(
        $(#[doc = $comment:literal])* $name:ident $(as $key:ident)?: $kind:ident => $($field:tt).+
            $(, default $text:literal, example $example:literal)?;
    )+ })+) => {
        &[$($(crate::config::key::Key {
            section: $section,
            name: key_table!(@name $name $($key)?),
            comment: concat!($($comment),*).trim_ascii_start(),
            default: key_table!(@default $($text $example)?),
            local: $local,
            read: |target: &mut $target, field| ($kind().read)(field).map(|value| target.$($field).+ = value),
            show: |target: &$target| ($kind().show)(&target.$($field).+),
        }),+),+]
    };
}
pub(super) use key_table;

impl<T> Key<T> {
    pub(super) fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

pub(super) fn read_keys<'a, T: 'a>(
    section: &mut Section,
    keys: impl IntoIterator<Item = &'a Key<T>>,
    target: &mut T,
) -> Result<(), ConfigError> {
    for key in keys {
        if let Some(field) = section.take(key.name) {
            (key.read)(target, field)?;
        }
    }
    Ok(())
}

pub(super) fn read_table<T: Default>(field: Field, keys: &[Key<T>]) -> Result<T, ConfigError> {
    let mut section = field.section()?;
    let mut value = T::default();
    read_keys(&mut section, keys, &mut value)?;
    section.finish()?;
    Ok(value)
}

pub(super) fn show_table<T>(value: &T, keys: &[Key<T>]) -> String {
    toml_text::table(keys.iter().map(|key| (key.name, (key.show)(value))))
}

/// The reader and the printer of a value.
pub(super) struct Kind<T> {
    pub(super) read: fn(Field) -> Result<T, ConfigError>,
    /// Returns the value in the syntax of the file, or an empty text if there is none.
    pub(super) show: fn(&T) -> String,
}

pub(super) fn time() -> Kind<Duration> {
    Kind {
        read: |field| non_zero(&field, field.duration()?),
        ..time_or_zero()
    }
}

pub(super) fn time_or_zero() -> Kind<Duration> {
    Kind {
        read: |field| field.duration(),
        show: |value| quoted(&duration_text(*value)),
    }
}

/// The type of a count or of a size in bytes.
pub(super) trait Number:
    Copy + Default + Display + PartialEq + TryFrom<u64> + TryInto<u64>
{
}

impl<T: Copy + Default + Display + PartialEq + TryFrom<u64> + TryInto<u64>> Number for T {}

pub(super) fn size<T: Number>() -> Kind<T> {
    Kind {
        read: |field| non_zero(&field, field.size()?),
        ..size_or_zero()
    }
}

pub(super) fn size_or_zero<T: Number>() -> Kind<T> {
    Kind {
        read: |field| field.size(),
        show: |value| quoted(&size_text((*value).try_into().unwrap_or(u64::MAX))),
    }
}

pub(super) fn count<T: Number>() -> Kind<T> {
    Kind {
        read: |field| non_zero(&field, field.count()?),
        ..count_or_zero()
    }
}

pub(super) fn count_or_zero<T: Number>() -> Kind<T> {
    Kind {
        read: |field| field.count(),
        show: T::to_string,
    }
}

pub(super) fn percent() -> Kind<u64> {
    let read = |field: Field| match field.count()? {
        percent @ 0..=100 => Ok(percent),
        _ => Err(field.invalid("must be at most 100")),
    };
    Kind {
        read,
        ..count_or_zero()
    }
}

fn non_zero<T: PartialEq + Default>(field: &Field, value: T) -> Result<T, ConfigError> {
    if value == T::default() {
        Err(field.invalid("must be more than 0"))
    } else {
        Ok(value)
    }
}

pub(super) fn switch() -> Kind<bool> {
    Kind {
        read: |field| field.boolean(),
        show: bool::to_string,
    }
}

pub(super) fn strings() -> Kind<Vec<String>> {
    Kind {
        read: |field| field.each(|item| item.string().map(str::to_owned)),
        show: |value| list(value),
    }
}

/// A type whose variants are words in the file: their names in serde.
pub(super) fn word<T: VariantArray + Copy + Serialize>() -> Kind<T> {
    Kind {
        read: |field| {
            let words = T::VARIANTS.iter().map(|value| (word_of(value), *value));
            field.choice(&words.collect::<Vec<_>>())
        },
        show: |value| quoted(&word_of(value)),
    }
}
fn word_of(value: &impl Serialize) -> String {
    let word = toml::Value::try_from(value).ok();
    word.as_ref()
        .and_then(toml::Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
