//! The sections of the configuration file and all their keys, in the order of the sample file.

use super::error::{ConfigError, closest};
use super::key::{Key, PER_KEY};
use super::section::{Field, Section};
use super::{Config, limits, settings};

/// The sections and their descriptions. `[limits]` has tables only: [`read`] rejects a key directly in it.
pub(super) const SECTIONS: [(&str, &str); 12] = [
    (
        "server",
        "The address, the data directory, and the limits of connections and request bodies.",
    ),
    ("auth", "Web origins and keys."),
    (
        PER_KEY,
        "Limits of each user. All keys of the user count together. Options of `key create` override them.",
    ),
    ("limits.per_session", "Limits of each session."),
    ("timeouts", "Times such as \"500ms\", \"10s\" or \"1h30m\"."),
    (
        "retention",
        "The bounds of stored data, and the free disk space that the gateway requires.",
    ),
    ("cache", "Memory for readers of event logs."),
    ("workspaces", "The directories in which sessions may work."),
    (
        "isolation",
        "The requirements for the isolation of agents from the gateway and from each other.",
    ),
    (
        "webhooks",
        "Webhooks, which send events of sessions to other hosts.",
    ),
    (
        "registry",
        "The registry from which agents are installed by id.",
    ),
    (
        "telemetry",
        "The log of the gateway, and the collector of its metrics and traces.",
    ),
];

pub(super) fn of_section(section: &str) -> impl Iterator<Item = &'static Key<Config>> {
    with_testing().filter(move |key| key.section == section)
}

pub(super) fn all() -> impl Iterator<Item = &'static Key<Config>> {
    with_testing().filter(|key| key.section != limits::TESTING)
}

fn with_testing() -> impl Iterator<Item = &'static Key<Config>> {
    settings::KEYS
        .iter()
        .chain(limits::KEYS.into_iter().flatten())
}

/// Reads the wanted keys of all sections from the root table.
pub(super) fn read(
    root: &mut Section,
    config: &mut Config,
    filter: impl Fn(&Key<Config>) -> bool,
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
            if let Some(field) = section.take(key.name)
                && filter(key)
            {
                (key.read)(config, field)?;
            }
        }
        section.finish().map_err(suggest_section)?;
    }
    limits
        .map_or(Ok(()), Section::finish)
        .map_err(suggest_section)
}

/// Suggests the section of a key that is in a wrong section.
pub(super) fn suggest_section(error: ConfigError) -> ConfigError {
    match error {
        ConfigError::Unknown {
            origin,
            key,
            suggestion: None,
        } => {
            let name = key.rsplit('.').next().unwrap_or(&key);
            let found = closest(name, all().map(|key| key.name));
            let suggestion = all()
                .find(|key| found.as_deref() == Some(key.name))
                .map(Key::path);
            ConfigError::Unknown {
                origin,
                key,
                suggestion,
            }
        }
        other => other,
    }
}

impl Config {
    /// Lists the keys whose values differ in `next` and apply only after a restart. A reload applies agents, MCP
    /// servers and the admin key, which are not in the table of keys.
    pub fn changes_that_need_restart(&self, next: &Self) -> Vec<String> {
        let differing =
            all().filter(|key| key.section != PER_KEY && (key.show)(self) != (key.show)(next));
        differing.map(Key::path).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Flags, load};

    #[test]
    fn only_keys_that_need_a_restart_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let flags = Flags {
                config: Some(file.clone()),
                ..Flags::default()
            };
            load(&flags, &[("HOME", "/")].into_iter().collect(), &|_| false).unwrap()
        };
        let first = read("");
        let reloadable = "[agents.a]\ncommand = \"a\"\n[mcp.docs]\nurl = \"https://mcp.example\"\n[limits.per_key]\nmax_streams = 3\n";
        assert_eq!(
            first.changes_that_need_restart(&read(reloadable)),
            Vec::<String>::new()
        );
        let here = folder.path().display();
        let all = format!(
            "[server]\nlisten = \"127.0.0.1:1\"\ndata_dir = \"{here}\"\npublic_url = \"https://a.example\"\n\
             trusted_proxies = [\"10.0.0.1\"]\ninsecure_http = true\n[auth]\nallowed_origins = [\"https://b.example\"]\nframe_ancestors = [\"https://c.example\"]\n\
             [telemetry]\nlog_filter = \"debug\"\n[workspaces]\nroot = \"{here}/root\"\nallow = [\"{here}\"]\n\
             [timeouts]\ndrain_timeout = \"9s\"\n"
        );
        assert_eq!(
            first.changes_that_need_restart(&read(&all)),
            [
                "server.listen",
                "server.data_dir",
                "server.public_url",
                "server.trusted_proxies",
                "server.insecure_http",
                "auth.allowed_origins",
                "auth.frame_ancestors",
                "workspaces.root",
                "workspaces.allow",
                "telemetry.log_filter",
                "timeouts.drain_timeout",
            ]
        );
    }
}
