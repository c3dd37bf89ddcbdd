//! The environment of the process, read once at the start.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outgoing::ProxyVariables;

pub const CLIENT_KEY_VARIABLE: &str = "ACP_GATEWAY_KEY";

pub(super) const CONFIG_VARIABLE: &str = "ACP_GATEWAY_CONFIG";
/// The name of a configuration file that the operator does not name.
const CONFIG_FILE_NAME: &str = "acp-gateway.toml";

/// The start of the names of the gateway's own variables, which can be secrets.
const GATEWAY_PREFIX: &str = "ACP_GATEWAY_";

/// A copy of a process's environment that is cheap to clone. `Debug` prints the names and never the values.
#[derive(Clone, Default)]
pub struct Environment {
    values: Arc<BTreeMap<String, OsString>>,
    /// The places of the configuration file, the first one in the current folder. Only a process has places.
    config_places: Arc<[PathBuf]>,
}

impl Environment {
    /// Copies the environment of this process. Names that are not UTF-8 are skipped, because no key has such
    /// a name.
    pub fn from_process() -> Self {
        let variables: Self = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect();
        let current = std::env::current_dir().ok();
        let shared = Some(PathBuf::from("/etc/acp-gateway"));
        let folders = [current, variables.user_config_folder(), shared];
        let places = folders.into_iter().flatten();
        let places = places.map(|folder| folder.join(CONFIG_FILE_NAME)).collect();
        variables.with_config_places(places)
    }

    pub(super) fn with_config_places(self, places: Vec<PathBuf>) -> Self {
        Self {
            config_places: places.into(),
            ..self
        }
    }

    /// Searches no configuration file in the current folder. For a process that an editor starts: the folder can be a project
    /// whose files agents and strangers write.
    #[must_use]
    pub fn without_current_folder(self) -> Self {
        let current = std::env::current_dir().ok();
        let mut places = self.config_places.to_vec();
        if current.is_some()
            && places.first().and_then(|place| place.parent()) == current.as_deref()
        {
            places.remove(0);
        }
        self.with_config_places(places)
    }

    pub(super) fn config_places(&self) -> &[PathBuf] {
        &self.config_places
    }

    fn user_config_folder(&self) -> Option<PathBuf> {
        let home = || Some(self.folder("HOME")?.join(".config"));
        let folder = self.folder("XDG_CONFIG_HOME").or_else(home)?;
        Some(folder.join("acp-gateway"))
    }

    /// The configuration file of the user, which may not exist.
    pub fn user_config_file(&self) -> Option<PathBuf> {
        Some(self.user_config_folder()?.join(CONFIG_FILE_NAME))
    }

    pub(super) fn get(&self, name: &str) -> Option<&OsStr> {
        self.values.get(name).map(OsString::as_os_str)
    }

    pub fn search_path(&self) -> &OsStr {
        self.get("PATH").unwrap_or_default()
    }

    pub fn journal_stream(&self) -> Option<&str> {
        self.get("JOURNAL_STREAM")?.to_str()
    }

    /// The socket of the service manager, in a unit with `Type=notify`.
    pub fn notify_socket(&self) -> Option<&OsStr> {
        self.get("NOTIFY_SOCKET")
    }

    pub fn client_key(&self) -> Option<&OsStr> {
        self.get(CLIENT_KEY_VARIABLE).filter(|key| !key.is_empty())
    }

    pub fn variables(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(OsString, OsString)> {
        let wanted = self.values.iter().filter(|(name, _)| is_wanted(name));
        wanted
            .map(|(name, value)| (name.into(), value.clone()))
            .collect()
    }
    /// The variables for a child that runs in place of this process: all except those of the gateway.
    pub fn without_gateway_variables(&self) -> Vec<(OsString, OsString)> {
        self.variables(|name| !name.starts_with(GATEWAY_PREFIX))
    }
    /// The variables for package managers: no variables of the gateway and no keys of agents.
    pub fn of_package_managers(&self) -> Vec<(OsString, OsString)> {
        self.variables(|name| {
            let lower = name.to_lowercase();
            PACKAGE_MANAGER_VARIABLES.contains(&name)
                || SHARED_VARIABLES.contains(&name)
                || lower.ends_with("_proxy")
                || ["npm_config_", "pip_", "uv_"]
                    .iter()
                    .any(|start| lower.starts_with(start))
        })
    }

    pub(super) fn config_file(&self) -> Option<PathBuf> {
        self.get(CONFIG_VARIABLE)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    }

    pub fn home(&self) -> Option<PathBuf> {
        self.folder("HOME")
    }

    /// The variables of proxies, in upper or in lower case.
    pub fn proxy_variables(&self) -> ProxyVariables {
        let value = |upper: &str| {
            let set = |name: &str| {
                self.get(name)
                    .and_then(OsStr::to_str)
                    .filter(|value| !value.is_empty())
            };
            set(upper)
                .or_else(|| set(&upper.to_lowercase()))
                .unwrap_or_default()
                .to_owned()
        };
        ProxyVariables {
            https: value("HTTPS_PROXY"),
            http: value("HTTP_PROXY"),
            all: value("ALL_PROXY"),
            no: value("NO_PROXY"),
        }
    }

    /// Whether text on a terminal may have colors (<https://no-color.org>).
    pub fn permits_colors(&self) -> bool {
        let is_set = self.get("NO_COLOR").is_some_and(|value| !value.is_empty());
        !is_set && self.get("TERM").is_none_or(|term| term != "dumb")
    }

    /// The log filter for a command that reads no configuration.
    pub fn log_filter(&self) -> Option<&str> {
        self.get("ACP_GATEWAY_LOG")
            .or_else(|| self.get("RUST_LOG"))?
            .to_str()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_os_str()))
    }

    /// Returns the directory that a variable names, if the path is absolute.
    pub(super) fn folder(&self, name: &str) -> Option<PathBuf> {
        self.get(name)
            .map(Path::new)
            .filter(|path| path.is_absolute())
            .map(Path::to_owned)
    }
}

impl<N: Into<String>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables.into_iter();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        Self {
            values: Arc::new(variables.collect()),
            config_places: Arc::default(),
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

/// The part of the gateway's environment that children may receive. All other variables are withheld.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChildEnvironment {
    /// The unchanged value. Its users remove directories that other users can write to.
    pub path: OsString,
    /// The home directory of the operator, for agents with `home = "user"`.
    pub home: Option<PathBuf>,
    /// Language, time zone and certificates, for every child.
    pub shared: Vec<(String, OsString)>,
    /// The operator's user name and the directories of their settings, only for `home = "user"`.
    pub user: Vec<(String, OsString)>,
}

const SHARED_VARIABLES: [&str; 7] = [
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];
const PACKAGE_MANAGER_VARIABLES: [&str; 4] = ["PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME"];
const USER_VARIABLES: [&str; 8] = [
    "USER",
    "LOGNAME",
    "SHELL",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
];

impl ChildEnvironment {
    pub(super) fn from_environment(environment: &Environment) -> Self {
        let pick = |matches: &dyn Fn(&str) -> bool| {
            let picked = environment.iter().filter(|(name, _)| matches(name));
            picked
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect()
        };
        Self {
            path: environment.search_path().to_owned(),
            home: environment.folder("HOME"),
            shared: pick(&|name| SHARED_VARIABLES.contains(&name) || name.starts_with("LC_")),
            user: pick(&|name| USER_VARIABLES.contains(&name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminals_have_no_colors() {
        for (variables, expected) in [
            (&[][..], true),
            (&[("TERM", "xterm"), ("NO_COLOR", "")], true),
            (&[("TERM", "dumb")], false),
            (&[("TERM", "xterm"), ("NO_COLOR", "0")], false),
        ] {
            let environment: Environment = variables.iter().copied().collect();
            assert_eq!(environment.permits_colors(), expected, "{variables:?}");
        }
    }
}
