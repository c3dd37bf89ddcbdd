//! The file of a registry: `{"version": "1.0.0", "agents": [...]}`. Unknown members are ignored. The page loads it on demand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::source::{DEFAULT_SOURCE, Source, SourceError};
use outgoing::{AddressRule, Client, ClientOptions, ProxyVariables, TlsError};

/// The number of characters of an id and of a version, which name folders.
const MAX_NAME: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the registry is not valid")]
    Json(#[from] serde_json::Error),
    #[error("the registry has no agent {0:?}; `acp-gateway agent search` lists all")]
    Unknown(String),
    #[error("the entry of {0:?} in the registry is not valid: {1}")]
    Entry(String, String),
    #[error("the registry has version {found} of {id}, not {wanted}")]
    Version {
        id: String,
        found: String,
        wanted: String,
    },
    #[error(
        "{id} has no distribution for this machine ({target}) of a permitted kind; it has: {kinds}"
    )]
    NoDistribution {
        id: String,
        target: String,
        kinds: String,
    },
}

/// How an agent is distributed, the preferred kind first.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::Display,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    Binary,
    Npx,
    Uvx,
}

#[derive(Debug, Deserialize)]
pub struct Index {
    agents: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    pub id: String,
    pub name: String,
    pub version: String,
    pub description: String,
    pub distribution: Distribution,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Distribution {
    /// By target, such as `linux-x86_64`.
    #[serde(default)]
    pub(super) binary: BTreeMap<String, Binary>,
    #[serde(default)]
    pub(super) npx: Option<Package>,
    #[serde(default)]
    pub(super) uvx: Option<Package>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Binary {
    pub(super) archive: String,
    /// The program, relative to the folder of the archive.
    pub(super) cmd: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    pub(super) sha256: Option<String>,
}

/// A package with its version: `name@version`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Package {
    #[serde(rename = "package")]
    pub(super) spec: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
}

/// The distribution that is installed.
#[derive(Debug, Clone)]
pub(super) enum Chosen {
    Binary(Binary),
    Npx(Package),
    Uvx(Package),
}

impl Index {
    pub fn parse(text: &[u8]) -> Result<Self, IndexError> {
        Ok(serde_json::from_slice(text)?)
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.agents.iter().filter_map(|agent| entry(agent).ok())
    }

    pub fn find(&self, id: &str, version: Option<&str>) -> Result<Entry, IndexError> {
        let found = self.agents.iter().find(|agent| agent["id"] == id);
        let found = found.ok_or_else(|| IndexError::Unknown(id.to_owned()))?;
        let entry = entry(found).map_err(|reason| IndexError::Entry(id.to_owned(), reason))?;
        match version {
            Some(wanted) if wanted != entry.version => Err(IndexError::Version {
                id: entry.id,
                found: entry.version,
                wanted: wanted.to_owned(),
            }),
            _ => Ok(entry),
        }
    }
}

fn entry(agent: &Value) -> Result<Entry, String> {
    let entry = Entry::deserialize(agent).map_err(|error| error.to_string())?;
    if !is_id(&entry.id) {
        let detail = "`id` has 1 to 64 characters of a-z, 0-9 and '-', and begins with a letter";
        return Err(detail.to_owned());
    }
    if !is_version(&entry.version) {
        return Err("`version` has 1 to 64 letters, digits and characters of '.+_-'".to_owned());
    }
    Ok(entry)
}

pub(super) fn is_id(id: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = id.starts_with(|first: char| first.is_ascii_lowercase());
    begins && id.len() <= MAX_NAME && id.bytes().all(is_valid)
}

/// Whether a text is an exact version: no range, and safe as the name of a folder and as an argument.
pub(super) fn is_version(version: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b".+_-".contains(&byte);
    let begins = version.starts_with(|first: char| first.is_ascii_alphanumeric());
    begins && version.len() <= MAX_NAME && version.bytes().all(is_valid)
}

fn target() -> String {
    format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH)
}

impl Entry {
    /// The kinds for this machine, the preferred one first.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds = vec![Kind::Binary, Kind::Npx, Kind::Uvx];
        kinds.retain(|kind| match kind {
            Kind::Binary => self.distribution.binary.contains_key(&target()),
            Kind::Npx => self.distribution.npx.is_some(),
            Kind::Uvx => self.distribution.uvx.is_some(),
        });
        kinds
    }

    pub(super) fn choose(&self, kind: Option<Kind>) -> Result<Chosen, IndexError> {
        let Distribution { binary, npx, uvx } = &self.distribution;
        let mut kinds = self.kinds().into_iter();
        let found = kinds.find(|found| kind.is_none_or(|kind| kind == *found));
        let chosen = found.and_then(|kind| match kind {
            Kind::Binary => binary.get(&target()).cloned().map(Chosen::Binary),
            Kind::Npx => npx.clone().map(Chosen::Npx),
            Kind::Uvx => uvx.clone().map(Chosen::Uvx),
        });
        chosen.ok_or_else(|| {
            let kinds = binary.keys().map(|target| format!("binary ({target})"));
            let kinds = kinds.chain(npx.iter().map(|_| "npx".to_owned()));
            let kinds = kinds.chain(uvx.iter().map(|_| "uvx".to_owned()));
            IndexError::NoDistribution {
                id: self.id.clone(),
                target: target(),
                kinds: kinds.collect::<Vec<_>>().join(", "),
            }
        })
    }
}

const MAX_AGE: Duration = Duration::from_mins(10);

#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The registry of the configuration or, for a request that names it, of the ACP project. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Listing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    is_configured: bool,
    proxies: ProxyVariables,
    /// One request loads the registry, and the others wait for it.
    loaded: Mutex<Option<(Instant, Arc<[Entry]>)>>,
}

impl Listing {
    pub fn new(source: Option<&str>, proxies: ProxyVariables) -> Self {
        Self(Arc::new(Inner {
            source: Source::parse(source.unwrap_or(DEFAULT_SOURCE)),
            is_configured: source.is_some(),
            proxies,
            loaded: Mutex::new(None),
        }))
    }

    /// Whether the configuration names the registry.
    pub fn is_configured(&self) -> bool {
        self.0.is_configured
    }

    pub fn source(&self) -> &Source {
        &self.0.source
    }

    /// The valid entries of the registry.
    pub async fn entries(&self) -> Result<Arc<[Entry]>, ListingError> {
        let source = &self.0.source;
        let mut loaded = self.0.loaded.lock().await;
        if let Some((at, entries)) = &*loaded
            && at.elapsed() < MAX_AGE
        {
            return Ok(Arc::clone(entries));
        }
        let client = Client::new(ClientOptions {
            proxies: &self.0.proxies,
            uses_tls: source.uses_tls(),
            ca_certificates: None,
            addresses: AddressRule::Any,
        })?;
        let text = source.load(&client).await?;
        let entries: Arc<[Entry]> = Index::parse(&text)?.entries().collect();
        *loaded = Some((Instant::now(), Arc::clone(&entries)));
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(agents: &Value) -> Index {
        Index::parse(
            serde_json::json!({ "version": "1.0.0", "agents": agents })
                .to_string()
                .as_bytes(),
        )
        .unwrap()
    }

    fn agent(id: &str, version: &str) -> Value {
        let npx = serde_json::json!({ "npx": { "package": "x@1" } });
        serde_json::json!({ "id": id, "name": "X", "version": version, "description": "", "distribution": npx, "icon": 1 })
    }

    #[test]
    fn ids_and_versions_are_safe_names() {
        for wrong in ["", "A", "1a", "../x", "a/b", "a.b", &"a".repeat(65)] {
            assert!(!is_id(wrong), "{wrong}");
        }
        for wrong in ["", "..", "-1", "1/2", "^1.0", "latest || x", "1 2"] {
            assert!(!is_version(wrong), "{wrong}");
        }
        assert!(is_id("gemini-2") && is_version("1.0.0-rc.1+b_2"));
    }

    #[test]
    fn invalid_entries_are_not_listed_and_have_a_reason() {
        let index =
            index(&serde_json::json!([agent("a", "1.0.0"), agent("B", "1.0.0"), { "id": "c" }]));
        assert_eq!(
            index.entries().map(|entry| entry.id).collect::<Vec<_>>(),
            ["a"]
        );
        assert!(matches!(
            index.find("c", None),
            Err(IndexError::Entry { .. })
        ));
        assert!(matches!(index.find("d", None), Err(IndexError::Unknown(_))));
        assert!(matches!(
            index.find("a", Some("1.0.1")),
            Err(IndexError::Version { .. })
        ));
    }

    #[test]
    fn binary_of_another_machine_is_not_chosen() {
        let mut agent = agent("a", "1");
        agent["distribution"]["binary"] =
            serde_json::json!({ "plan9-mips": { "archive": "https://x/", "cmd": "a" } });
        let entry = index(&serde_json::json!([agent])).find("a", None).unwrap();
        assert_eq!(entry.kinds(), [Kind::Npx]);
        assert!(matches!(entry.choose(None), Ok(Chosen::Npx(_))));
        let error = entry.choose(Some(Kind::Binary)).unwrap_err().to_string();
        assert!(error.contains("binary (plan9-mips), npx"), "{error}");
    }
}
