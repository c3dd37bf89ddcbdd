//! Entries of agents that a command writes into the configuration file. Comments and other entries stay.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use toml_edit::{DocumentMut, InlineTable, Item, Table, TomlError, value};

use base::types::AgentName;

#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    #[error("could not read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("could not write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "{} cannot be replaced by this process; if the user of the gateway owns its folder, run `acp-gateway agent add` as this \
         user in a terminal; otherwise write the entry there as its owner, or start the gateway with --config and another file",
        .path.display()
    )]
    ReadOnly { path: PathBuf, source: io::Error },
    #[error("{} is not valid TOML", .path.display())]
    Toml {
        path: PathBuf,
        source: Box<TomlError>,
    },
    #[error("{} has an entry [agents.{name}] that this command did not write; choose another name with --name", .path.display())]
    Exists { path: PathBuf, name: AgentName },
    #[error("`agents` in {} is not a table", .path.display())]
    NoTable { path: PathBuf },
}

/// The members of an entry that the command writes.
#[derive(Debug)]
pub struct AgentEntry<'a> {
    pub command: &'a Path,
    pub args: &'a [String],
    pub env: &'a BTreeMap<String, String>,
    /// The variables that the entry takes from the gateway's environment.
    pub from_env: &'a [&'static str],
    /// Whether the agent works in the home of the operator.
    pub home_user: bool,
    /// Whether a person may sign in to the agent at a terminal of the page.
    pub terminal_auth: bool,
}

#[derive(Debug)]
pub struct EntryFile {
    path: PathBuf,
    document: DocumentMut,
    /// Commands below this folder belong to entries of the command.
    installed: PathBuf,
}

impl EntryFile {
    /// Reads the file. A file that does not exist is empty.
    pub fn open(path: &Path, installed: PathBuf) -> Result<Self, EntryError> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                return Err(EntryError::Read {
                    path: path.to_owned(),
                    source,
                });
            }
            Ok(text) => text,
        };
        let document = text.parse::<DocumentMut>();
        let document = document.map_err(|source| EntryError::Toml {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        Ok(Self {
            path: path.to_owned(),
            document,
            installed,
        })
    }

    /// Fails if the file cannot be replaced. An installation takes long, so it finds this out first.
    pub fn check_writable(&self) -> Result<(), EntryError> {
        let path = self.target();
        let folder = path.parent().unwrap_or(&path);
        let tried = match std::fs::metadata(&path) {
            // The replacement of a device would break the machine.
            Ok(found) if !found.is_file() => Err(io::ErrorKind::InvalidInput.into()),
            _ => NamedTempFile::new_in(folder),
        };
        match tried {
            Ok(_) => Ok(()),
            Err(source) => Err(EntryError::ReadOnly {
                path: self.path.clone(),
                source,
            }),
        }
    }

    /// The file itself. A link stays a link.
    fn target(&self) -> PathBuf {
        std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone())
    }

    pub fn check(&self, name: &AgentName) -> Result<(), EntryError> {
        let exists = self
            .document
            .get("agents")
            .and_then(|agents| agents.get(name.to_string()));
        match exists {
            Some(entry) if !self.is_installed(entry) => Err(EntryError::Exists {
                path: self.path.clone(),
                name: name.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn is_installed(&self, entry: &Item) -> bool {
        let command = entry.get("command").and_then(Item::as_str);
        command.is_some_and(|command| Path::new(command).starts_with(&self.installed))
    }

    /// Whether an entry has a command below the folder of installed agents.
    pub fn has_installed(&self) -> bool {
        let agents = self.document.get("agents").and_then(Item::as_table_like);
        agents.is_some_and(|agents| agents.iter().any(|(_, entry)| self.is_installed(entry)))
    }

    /// Writes an entry. An entry of an earlier version keeps its other members, for example keys in `env`.
    pub fn put(&mut self, name: &AgentName, entry: &AgentEntry<'_>) -> Result<(), EntryError> {
        self.check(name)?;
        let no_table = || EntryError::NoTable {
            path: self.path.clone(),
        };
        let mut agents = Table::new();
        agents.set_implicit(true);
        let agents = self.document.entry("agents").or_insert(Item::Table(agents));
        let agents = agents.as_table_like_mut().ok_or_else(no_table)?;
        let table = agents
            .entry(&name.to_string())
            .or_insert(Item::Table(Table::new()));
        let table = table.as_table_like_mut().ok_or_else(no_table)?;
        table.insert(
            "command",
            value(entry.command.to_string_lossy().into_owned()),
        );
        if entry.args.is_empty() {
            table.remove("args");
        } else {
            table.insert(
                "args",
                value(entry.args.iter().collect::<toml_edit::Array>()),
            );
        }
        if entry.home_user {
            table.insert("home", value("user"));
        }
        if entry.terminal_auth {
            table.insert("terminal_auth", value(true));
        }
        if !entry.env.is_empty() || !entry.from_env.is_empty() {
            let env = table.entry("env").or_insert(value(InlineTable::new()));
            let env = env.as_table_like_mut().ok_or_else(no_table)?;
            for (variable, text) in entry.env {
                if !env.contains_key(variable) {
                    env.insert(variable, value(text));
                }
            }
            for variable in entry.from_env {
                if !env.contains_key(variable) {
                    let source = InlineTable::from_iter([("from_env", *variable)]);
                    env.insert(variable, value(source));
                }
            }
        }
        Ok(())
    }

    /// Removes an entry that the command has written. Returns false if there is none.
    pub fn remove(&mut self, name: &AgentName) -> bool {
        let name = name.to_string();
        let is_installed = self
            .document
            .get("agents")
            .and_then(|agents| agents.get(&name));
        if !is_installed.is_some_and(|entry| self.is_installed(entry)) {
            return false;
        }
        let agents = self
            .document
            .get_mut("agents")
            .and_then(Item::as_table_like_mut);
        agents.is_some_and(|agents| agents.remove(&name).is_some())
    }

    /// Replaces the file. It keeps its mode; a new file is private, because entries can have keys.
    pub fn save(&self) -> Result<(), EntryError> {
        let path = self.target();
        let save = || -> io::Result<()> {
            let mut file = NamedTempFile::new_in(path.parent().unwrap_or(&path))?;
            file.write_all(self.document.to_string().as_bytes())?;
            file.as_file().sync_all()?;
            if let Ok(metadata) = std::fs::metadata(&path) {
                file.as_file().set_permissions(metadata.permissions())?;
            }
            file.persist(&path)?;
            Ok(())
        };
        save().map_err(|source| EntryError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGINAL: &str =
        "# mine\n[server]\nlisten = \"127.0.0.1:1\" # port\n\n[agents.own]\ncommand = \"own\"\n";

    fn open(text: &str) -> EntryFile {
        let document = text.parse().unwrap();
        EntryFile {
            path: "x.toml".into(),
            document,
            installed: "/data/agents".into(),
        }
    }

    fn entry<'a>(
        command: &'a str,
        args: &'a [String],
        env: &'a BTreeMap<String, String>,
    ) -> AgentEntry<'a> {
        AgentEntry {
            command: Path::new(command),
            args,
            env,
            from_env: &[],
            home_user: false,
            terminal_auth: false,
        }
    }

    #[test]
    fn entry_is_added_changed_and_removed_beside_comments() {
        let mut file = open(ORIGINAL);
        let name = "hello".parse().unwrap();
        let args = ["--acp".to_owned()];
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        file.put(&name, &entry("/data/agents/hello/1/bin", &args, &env))
            .unwrap();
        let added = "\n[agents.hello]\ncommand = \"/data/agents/hello/1/bin\"\nargs = [\"--acp\"]\nenv = { A = \"1\" }\n";
        assert_eq!(file.document.to_string(), format!("{ORIGINAL}{added}"));
        // An update keeps what the operator has added.
        let edited = file
            .document
            .to_string()
            .replace("{ A = \"1\" }", "{ A = \"2\", KEY = \"k\" }");
        let mut file = open(&edited);
        file.put(&name, &entry("/data/agents/hello/2/bin", &[], &env))
            .unwrap();
        let text = file.document.to_string();
        assert!(
            text.contains("hello/2/bin")
                && text.contains("{ A = \"2\", KEY = \"k\" }")
                && !text.contains("args")
        );
        assert!(file.remove(&name));
        assert_eq!(file.document.to_string(), ORIGINAL);
    }

    #[test]
    fn entry_names_variables_and_the_home_of_the_operator() {
        let mut file = open("");
        let env = BTreeMap::new();
        let entry = AgentEntry {
            from_env: &["A_KEY"],
            home_user: true,
            terminal_auth: true,
            ..entry("claude", &[], &env)
        };
        file.put(&"claude".parse().unwrap(), &entry).unwrap();
        let written = "[agents.claude]\ncommand = \"claude\"\nhome = \"user\"\nterminal_auth = true\nenv = { A_KEY = { from_env = \"A_KEY\" } }\n";
        assert_eq!(file.document.to_string(), written);
    }

    #[test]
    fn device_is_not_replaced() {
        let file = EntryFile::open(Path::new("/dev/null"), "/data".into()).unwrap();
        assert!(matches!(
            file.check_writable(),
            Err(EntryError::ReadOnly { .. })
        ));
    }

    #[test]
    fn entry_of_the_operator_is_not_replaced() {
        let mut file = open(ORIGINAL);
        let name = "own".parse().unwrap();
        let env = BTreeMap::new();
        let put = file.put(&name, &entry("/data/agents/own/1/bin", &[], &env));
        assert!(matches!(put, Err(EntryError::Exists { .. })));
        assert!(!file.remove(&name) && !file.remove(&"other".parse().unwrap()));
        let mut file = open("agents = 1");
        assert!(matches!(
            file.put(&name, &entry("/x", &[], &env)),
            Err(EntryError::NoTable { .. })
        ));
    }
}
