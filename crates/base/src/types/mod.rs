//! Types that every layer shares: ids, users, cursors and time.
//!
//! A type that one crate uses, or several crates above one of them, belongs to that crate. The words about agents,
//! isolation and folders are here because `wire`, `events` and `children` use them, and none of these imports another.
//!
//! Read `ids`, `cursor` and `principal` first, then `clock`, `principal_limits`, `keyed_guard` and `agent`. `text` has the rules for titles, names and output of agents.

/// The text form of an id: `Debug` prints the same text as `Display`, and serde uses a string.
macro_rules! text_form {
    ($($name:ident),*) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

mod access;
mod agent;
pub mod clock;
pub mod cursor;
mod granted_folders;
pub mod ids;
mod isolation;
mod keyed_guard;
pub mod principal;
mod principal_limits;
pub mod text;

pub use access::{Access, Grant, Grantee, GranteeError, Groups};
pub use agent::{
    AgentDialect, AgentName, AgentNameError, ModeSelection, OWN_PROGRAM, ToolProvider,
};
pub use clock::{Clock, ClockLimits, Expiry, Ids, Timestamp, random_uuid};
pub use cursor::{Epoch, EventId, Position};
pub use granted_folders::{FolderError, GrantedFolders};
pub use ids::{PromptId, RequestId, SessionId, TerminalId};
pub use isolation::{AppliedIsolation, Isolation, Mechanism};
pub use keyed_guard::{KeyedCounts, KeyedGuard, QueuedLine};
pub use principal::{Author, OWNER, Principal, Scope, Scopes, Tenant, UserId, is_name};
pub use principal_limits::{
    EffectiveLimits, KeyLimits, LimitChange, LimitExceeded, PrincipalDefaults, PrincipalLimit,
    PrincipalLimits, client_network,
};
