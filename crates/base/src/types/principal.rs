//! Principals and their scopes.

use std::net::IpAddr;
use std::sync::Arc;
use strum::{IntoStaticStr, VariantArray};

use super::granted_folders::GrantedFolders;

/// The owner of sessions and processes. Every key of a tenant can access the tenant's sessions. Only the
/// tenant `default` exists.
#[derive(
    Clone,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    derive_more::Debug,
    serde::Serialize,
    serde::Deserialize,
)]
#[debug("{_0}")]
pub struct Tenant(Arc<str>);

impl Tenant {
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self::new("default")
    }
}

/// Whether a text can be the name of a key, which is the id of its principal.
pub fn is_key_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'@');
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

/// An access right of a key.
#[derive(
    serde::Serialize,
    serde::Deserialize,
    utoipa::ToSchema,
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Scope {
    /// Read sessions, events and transcripts.
    Read,
    /// Create sessions. Prompt, cancel, close and delete them.
    Prompt,
    /// Answer requests of the agent. Change modes and options.
    Approve,
    /// Read and write the files of a session.
    Files,
    /// Define MCP servers for a session. The agent starts their commands.
    Mcp,
    /// Connect as a member of the fleet, which runs agents.
    Fleet,
    /// Read the metrics of the gateway.
    Metrics,
    /// All rights except `mcp`, including those that no other scope covers.
    Admin,
}

impl Scope {
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The name in configuration, commands and the API.
    pub fn name(self) -> &'static str {
        self.into()
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A set of scopes. `admin` includes every other scope except `mcp`.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, derive_more::Debug, serde::Serialize, serde::Deserialize,
)]
#[debug("{:?}", self.iter().collect::<Vec<_>>())]
#[serde(from = "Vec<Scope>", into = "Vec<Scope>")]
pub struct Scopes(u16);

impl Scopes {
    pub fn contains(self, scope: Scope) -> bool {
        let admin = if scope == Scope::Mcp {
            0
        } else {
            Scope::Admin.bit()
        };
        self.0 & (scope.bit() | admin) != 0
    }

    /// Returns true if the set allows everything that `other` allows.
    pub fn covers(self, other: Self) -> bool {
        other.iter().all(|scope| self.contains(scope))
    }

    /// Returns true if the set allows something besides the connection of a member of the fleet and a scrape.
    pub fn serves_clients(self) -> bool {
        self.iter()
            .any(|scope| !matches!(scope, Scope::Fleet | Scope::Metrics))
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        let all = Scope::ALL.iter().copied();
        all.filter(move |scope| self.0 & scope.bit() != 0)
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | scope.bit()))
    }
}

impl From<Vec<Scope>> for Scopes {
    fn from(scopes: Vec<Scope>) -> Self {
        scopes.into_iter().collect()
    }
}

impl From<Scopes> for Vec<Scope> {
    fn from(scopes: Scopes) -> Self {
        scopes.iter().collect()
    }
}

/// The holder of a key. `id` is the name of the key. Events show it as `by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub id: Arc<str>,
    pub tenant: Tenant,
    pub scopes: Scopes,
    /// The folders in which this key may work, in addition to the workspace roots.
    pub folders: GrantedFolders,
}

/// The author of a change: a key, the name of its principal, and the address of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    pub name: Arc<str>,
    /// The public id of the key.
    pub key: Arc<str>,
    pub address: IpAddr,
}

/// Identifies a principal in its tenant.
pub type PrincipalKey = (Tenant, Arc<str>);

impl Principal {
    pub fn key(&self) -> PrincipalKey {
        (self.tenant.clone(), Arc::clone(&self.id))
    }
}
