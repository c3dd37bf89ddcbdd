//! The access of users to sessions that others own.

use std::str::FromStr;
use std::sync::Arc;

use strum::IntoStaticStr;

use super::clock::Timestamp;
use super::principal::{Scope, UserId, is_name};

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

/// The users to whom a grant applies. The text form is `user:NAME`, or `tenant` for all users of the tenant of the session.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Display)]
pub enum Grantee {
    #[display("user:{_0}")]
    User(Arc<str>),
    #[display("tenant")]
    Tenant,
}

text_form!(Grantee);

impl Grantee {
    /// Whether the grant applies to a user of the same tenant.
    pub fn includes(&self, user: &UserId) -> bool {
        match self {
            Self::User(name) => **name == *user.name(),
            Self::Tenant => true,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("expected `tenant` or `user:` and the name of a user")]
pub struct GranteeError;

impl FromStr for Grantee {
    type Err = GranteeError;

    fn from_str(text: &str) -> Result<Self, GranteeError> {
        if text == "tenant" {
            return Ok(Self::Tenant);
        }
        let name = text.strip_prefix("user:").filter(|name| is_name(name));
        Ok(Self::User(name.ok_or(GranteeError)?.into()))
    }
}

/// An access to one session, which an owner of the session gave to others.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// `user:NAME`, or `tenant` for all users of the tenant.
    #[schema(value_type = String)]
    pub grantee: Grantee,
    pub access: Access,
    /// The name of the user that gave it.
    pub granted_by: String,
    pub granted_at: Timestamp,
}
