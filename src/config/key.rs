//! One key of the configuration file: its name, documentation, reader and printer.

use super::error::ConfigError;
use super::section::{Field, Section};
use super::toml_text;

/// The section of the limits that apply to each principal. A reload applies its keys; all others need a restart.
pub(super) const PER_KEY: &str = "limits.per_key";

/// A key of a table that configures a `T`. Reading, printing, the sample file and the reference all use this
/// entry, so that they cannot differ.
pub(super) struct Key<T> {
    /// The dotted name of the table; empty for the tables of agents.
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    /// The documentation of the key, on one line.
    pub(super) comment: &'static str,
    /// The default, unless [`Key::show`] returns it for the default configuration.
    pub(super) default: Option<DescribedDefault>,
    /// Whether the commands that run next to a gateway need the key.
    pub(super) local: bool,
    /// Reads the value and sets it.
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

/// Reads the keys of a section.
pub(super) fn read_keys<T>(
    section: &mut Section,
    keys: &[Key<T>],
    target: &mut T,
) -> Result<(), ConfigError> {
    for key in keys {
        if let Some(field) = section.take(key.name) {
            (key.read)(target, field)?;
        }
    }
    Ok(())
}

/// Reads an inline table.
pub(super) fn read_table<T: Default>(field: Field, keys: &[Key<T>]) -> Result<T, ConfigError> {
    let (mut section, mut value) = (field.section()?, T::default());
    read_keys(&mut section, keys, &mut value)?;
    section.finish()?;
    Ok(value)
}

pub(super) fn show_table<T>(value: &T, keys: &[Key<T>]) -> String {
    toml_text::table(keys.iter().map(|key| (key.name, (key.show)(value))))
}
