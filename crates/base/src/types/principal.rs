//! Tenants, their users, and the rights of a request.

use std::net::IpAddr;
use std::sync::Arc;
use strum::{IntoStaticStr, VariantArray};

use super::granted_folders::GrantedFolders;

/// A tenant. Users of different tenants share nothing but the agents and the configuration.
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

/// A user of a tenant. Sessions, tasks, webhooks and limits belong to a user. The text form is `TENANT/NAME`.
#[derive(
    Clone,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    derive_more::Debug,
    derive_more::Display,
    serde::Serialize,
    serde::Deserialize,
)]
#[debug("{_0}")]
pub struct UserId(Arc<str>);

impl UserId {
    pub fn new(tenant: &Tenant, name: &str) -> Self {
        Self(format!("{}/{name}", tenant.as_str()).into())
    }

    /// The person that runs the gateway: the user of links, of the key of the configuration and of local editors.
    pub fn owner() -> Self {
        Self::new(&Tenant::default(), OWNER)
    }

    /// Reads the text form. A damaged text gives a user that has no key.
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn tenant(&self) -> Tenant {
        Tenant::new(self.parts().0)
    }

    pub fn name(&self) -> &str {
        self.parts().1
    }

    pub fn has_tenant_of(&self, other: &Self) -> bool {
        self.parts().0 == other.parts().0
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or((&self.0, ""))
    }
}

/// The name of the user that runs the gateway.
pub const OWNER: &str = "owner";

/// Whether a text can be the name of a tenant, a user or a key.
pub fn is_name(name: &str) -> bool {
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
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
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
    /// Act for other users of the tenant: see the header `X-Acp-User`.
    ActAs,
    /// All rights except `mcp` and `actAs`, including those that no other scope covers.
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

/// A set of scopes. `admin` includes every other scope except `mcp` and `actAs`.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, derive_more::Debug, serde::Serialize, serde::Deserialize,
)]
#[debug("{:?}", self.iter().collect::<Vec<_>>())]
#[serde(from = "Vec<Scope>", into = "Vec<Scope>")]
pub struct Scopes(u16);

impl Scopes {
    pub fn contains(self, scope: Scope) -> bool {
        let admin = match scope {
            Scope::Mcp | Scope::ActAs => 0,
            _ => Scope::Admin.bit(),
        };
        self.0 & (scope.bit() | admin) != 0
    }

    /// What both sets allow.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        let common = |a: Self, b: Self| a.iter().filter(move |scope| b.contains(*scope));
        common(self, other).chain(common(other, self)).collect()
    }

    #[must_use]
    pub fn without(self, scope: Scope) -> Self {
        Self(self.0 & !scope.bit())
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
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

/// A user, with the rights of the key of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub user: UserId,
    pub scopes: Scopes,
    /// The folders in which this key may work, in addition to the workspace roots.
    pub folders: GrantedFolders,
    /// Whether the key belongs to a program on the machine of the gateway, which the owner of the data folder started.
    pub is_local: bool,
}

/// The author of a change: the user, the key, and the address of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    pub name: Arc<str>,
    /// The public id of the key.
    pub key: Arc<str>,
    pub address: IpAddr,
    /// The id of the HTTP request, if one request caused the change.
    pub http_request_id: Option<Arc<str>>,
}
