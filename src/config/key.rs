//! One key of the configuration file: its name, documentation, reader and printer.

use super::Config;
use super::error::ConfigError;
use super::section::Field;

/// The section of the limits that apply to each principal.
pub(super) const PER_KEY: &str = "limits.per_key";

/// A key outside the tables of agents and MCP servers. Reading, printing, the sample file and the reference all
/// use this entry, so that they cannot differ.
pub(super) struct Key {
    /// The dotted name of the table.
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    /// The documentation of the key, on one line.
    pub(super) comment: &'static str,
    pub(super) default: KeyDefault,
    /// Whether the commands that run next to a gateway need the key.
    pub(super) local: bool,
    /// Reads the value and sets it.
    pub(super) read: fn(&mut Config, Field) -> Result<(), ConfigError>,
    /// Returns the value in the syntax of the file, or `None` if there is none.
    pub(super) show: fn(&Config) -> Option<String>,
}

/// The default of a key.
pub(super) enum KeyDefault {
    /// The value that `Key::show` returns for the default configuration.
    Fixed,
    /// A default that depends on the machine, or none: a description and an example in the syntax of the file.
    Described { text: &'static str, example: &'static str },
}

impl Key {
    pub(super) fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Returns true if a reload applies the key. All other keys need a restart.
    pub(super) fn is_reloadable(&self) -> bool {
        self.section == PER_KEY
    }
}
