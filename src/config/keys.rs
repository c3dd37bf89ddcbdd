//! The sections of the configuration file and all their keys, in the order of the sample file.

use super::Config;
use super::error::{ConfigError, closest};
use super::key::{Key, PER_KEY};
use super::section::{Field, Section};
use super::{limits, settings};

/// The sections and their descriptions.
pub(super) const SECTIONS: [(&str, &str); 9] = [
    ("server", "The address, the data directory, and the limits of connections and request bodies."),
    ("auth", "Web origins and keys."),
    (PER_KEY, "Limits of each principal (all keys of one name). Options of `key create` override them."),
    ("limits.per_session", "Limits of each session."),
    ("timeouts", "Times such as \"500ms\", \"10s\" or \"1h30m\"."),
    ("retention", "The bounds of stored data, and the free disk space that the gateway requires."),
    ("cache", "Memory for readers of event logs."),
    ("workspaces", "The directories in which sessions may work."),
    ("telemetry", "The log of the gateway."),
];

/// Iterates over the keys of a section.
pub(super) fn of_section(section: &str) -> impl Iterator<Item = &'static Key<Config>> {
    all().filter(move |key| key.section == section)
}

pub(super) fn all() -> impl Iterator<Item = &'static Key<Config>> {
    settings::KEYS.iter().chain(limits::KEYS)
}

/// Reads the wanted keys of all sections from the root table.
pub(super) fn read(
    root: &mut Section,
    config: &mut Config,
    wanted: impl Fn(&Key<Config>) -> bool,
) -> Result<(), ConfigError> {
    let mut limits = root.take("limits").map(Field::section).transpose()?;
    for (path, _) in SECTIONS {
        let field = match path.strip_prefix("limits.") {
            Some(name) => limits.as_mut().and_then(|limits| limits.take(name)),
            None => root.take(path),
        };
        let Some(field) = field else { continue };
        let mut section = field.section()?;
        for key in of_section(path) {
            if let Some(field) = section.take(key.name).filter(|_| wanted(key)) {
                (key.read)(config, field)?;
            }
        }
        section.finish().map_err(suggest_section)?;
    }
    limits.map_or(Ok(()), Section::finish).map_err(suggest_section)
}

/// Suggests the section of a key that is in a wrong section.
pub(super) fn suggest_section(error: ConfigError) -> ConfigError {
    match error {
        ConfigError::Unknown { origin, key, suggestion: None } => {
            let name = key.rsplit('.').next().unwrap_or(&key);
            let found = closest(name, all().map(|key| key.name));
            let suggestion = all().find(|key| found.as_deref() == Some(key.name)).map(Key::path);
            ConfigError::Unknown { origin, key, suggestion }
        }
        other => other,
    }
}
