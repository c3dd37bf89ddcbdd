//! The access of users to sessions that others own.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use strum::IntoStaticStr;

use super::clock::Timestamp;
use super::principal::{Scope, Tenant, UserId, is_name};

/// The level of access of a user to a session. Each level includes the ones before it.
#[derive(
    serde::Serialize,
    serde::Deserialize,
    utoipa::ToSchema,
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Access {
    /// Read the session, its events, its transcript and its files.
    Read,
    /// Prompt, cancel, close and attach the session. Write its files.
    Prompt,
    /// Answer the requests of the agent. Change modes and options. Stop the commands of the agent.
    Approve,
    /// Change the title, the metadata and the policy. Fork, delete and share the session.
    Own,
}

impl Access {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The scopes that a key needs to give this access to others.
    pub const fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Read => &[Scope::Read],
            Self::Prompt => &[Scope::Read, Scope::Prompt],
            Self::Approve | Self::Own => &[Scope::Read, Scope::Prompt, Scope::Approve],
        }
    }
}

/// The users to whom a grant applies. The text form is `user:NAME`, `group:NAME`, or `tenant` for all users of the tenant of the
/// session.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Display)]
pub enum Grantee {
    #[display("user:{_0}")]
    User(Arc<str>),
    #[display("group:{_0}")]
    Group(Arc<str>),
    #[display("tenant")]
    Tenant,
}

text_form!(Grantee);

impl Grantee {
    /// Whether the grant applies to a user of the same tenant with these groups.
    pub fn includes(&self, user: &UserId, groups: &[Arc<str>]) -> bool {
        match self {
            Self::User(name) => **name == *user.name(),
            Self::Group(name) => groups.contains(name),
            Self::Tenant => true,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("expected `tenant`, or `user:` or `group:` and a name")]
pub struct GranteeError;

impl FromStr for Grantee {
    type Err = GranteeError;

    fn from_str(text: &str) -> Result<Self, GranteeError> {
        if text == "tenant" {
            return Ok(Self::Tenant);
        }
        let (kind, name) = text.split_once(':').ok_or(GranteeError)?;
        match kind {
            "user" if is_name(name) => Ok(Self::User(name.into())),
            "group" if is_name(name) => Ok(Self::Group(name.into())),
            _ => Err(GranteeError),
        }
    }
}

/// The groups of each user that has any.
#[derive(Debug, Clone, Default, PartialEq, Eq, derive_more::From)]
pub struct Groups(HashMap<UserId, Vec<Arc<str>>>);

impl Groups {
    pub fn of(&self, user: &UserId) -> &[Arc<str>] {
        self.0.get(user).map_or(&[], Vec::as_slice)
    }

    pub fn users(&self) -> impl Iterator<Item = &UserId> {
        self.0.keys()
    }

    /// Whether a user of the tenant is in the group.
    pub fn contains(&self, tenant: &Tenant, name: &str) -> bool {
        let mut all = self.0.iter();
        all.any(|(user, groups)| {
            user.tenant() == *tenant && groups.iter().any(|group| **group == *name)
        })
    }
}

/// An access to one session, which an owner of the session gave to others.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// `user:NAME`, `group:NAME`, or `tenant` for all users of the tenant.
    #[schema(value_type = String)]
    pub grantee: Grantee,
    pub access: Access,
    /// The name of the user that gave it.
    pub granted_by: String,
    pub granted_at: Timestamp,
}
