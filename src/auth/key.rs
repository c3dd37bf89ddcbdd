//! A key: its secret text, its hash, and its record with the user and the scopes.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use base::types::{
    AgentName, GrantedFolders, Ids, KeyLimits, Principal, Scope, Scopes, Timestamp, UserId,
};
use events::api::KeyKind;
use events::event::AuditedKey;
use wire::fleet::MemberNames;

/// The secret text of a key: `acpg_` and 256 random bits in base64url. It is shown once and never stored.
#[derive(Clone)]
pub struct KeyText(String);

impl KeyText {
    pub(super) fn generate(ids: &Ids) -> Self {
        Self(format!("acpg_{}", URL_SAFE_NO_PAD.encode(ids.secret())))
    }

    /// The secret, only for printing it once to its holder.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// The SHA-256 of a key's text. A text with 256 random bits needs neither a salt nor a slow hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    pub(super) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub fn id(&self) -> KeyId {
        let mut number = [0; 8];
        number[2..].copy_from_slice(&self.0[..6]);
        KeyId(format!("{:012x}", u64::from_be_bytes(number)).into())
    }
}

/// The public id of a key: the first 48 bits of its hash, in hex.
#[derive(
    Debug,
    Clone,
    Default,
    PartialEq,
    Eq,
    Hash,
    derive_more::Display,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct KeyId(Arc<str>);

impl KeyId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A key without its text. The JSON form is the record in `Table::Key`, stored under the hash of the key.
///
/// Sessions belong to the user and not to the key, so a key can be replaced.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    #[serde(skip)]
    pub id: KeyId,
    pub kind: KeyKind,
    pub name: Arc<str>,
    pub user: UserId,
    pub scopes: Scopes,
    #[serde(default, skip_serializing_if = "KeyLimits::is_empty")]
    pub limits: KeyLimits,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub member_names: Vec<AgentName>,
    #[serde(default, skip_serializing_if = "GrantedFolders::is_empty")]
    pub folders: GrantedFolders,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub printed_by_start: bool,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    /// The networks of the clients that have used the key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<IpAddr>,
}

impl Key {
    pub fn principal(&self) -> Principal {
        Principal {
            user: self.user.clone(),
            scopes: self.scopes,
            folders: self.folders.clone(),
            is_local: self.kind == KeyKind::Local,
        }
    }

    pub(super) fn permitted_member_names(&self) -> MemberNames {
        if !self.member_names.is_empty() {
            MemberNames::Only(self.member_names.as_slice().into())
        } else if self.scopes.contains(Scope::Admin) {
            MemberNames::Any
        } else {
            MemberNames::Unreserved
        }
    }

    pub(super) fn audited(&self) -> AuditedKey {
        AuditedKey {
            id: self.id.to_string(),
            name: self.name.to_string(),
            user: self.user.to_string(),
            kind: self.kind.to_string(),
            scopes: self.scopes,
        }
    }

    pub(super) fn is_named(&self, id_or_name: &str) -> bool {
        self.id.as_str() == id_or_name || &*self.name == id_or_name
    }
}
