//! Types that every layer shares: ids, principals, cursors, time and limits.
//!
//! The module imports no other module of the crate.
//!
//! Read `ids`, `cursor` and `principal` first, then `clock`, then `limits`, `principal_limits` and
//! `keyed_guard`. `text` has the rules for titles, names and output of agents.

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

pub mod acp_headers;
mod acp_request;
mod granted_folders;
mod agent_dialect;
mod agent_settings;
pub mod clock;
pub mod cursor;
mod denied_modes;
pub mod ids;
mod isolation;
mod keyed_guard;
pub mod known_agents;
pub mod limits;
mod member_names;
pub mod method_list;
pub mod network;
pub mod principal;
mod principal_limits;
mod states;
pub mod text;

pub use acp_request::AcpRequest;
pub use agent_dialect::{AgentDialect, OWN_PROGRAM};
pub use agent_settings::{
    AgentKind, AgentName, AgentNameError, AgentSettings, ModeSelection, OnTimeout, Permissions,
    PoolSettings, ProcessState, ServedBy,
};
pub use clock::{Clock, Expiry, Ids, Timestamp, random_uuid};
pub use cursor::{Epoch, EventId, Position};
pub use denied_modes::DeniedModes;
pub use granted_folders::{FolderError, GrantedFolders};
pub use ids::{PromptId, RequestId, SessionId, TerminalId};
pub use isolation::{
    AppliedIsolation, Isolation, IsolationPolicy, Mechanism, ResourceLimits, UserRange,
};
pub use keyed_guard::{KeyedCounts, KeyedGuard, QueuedLine};
pub use known_agents::KnownAgent;
pub use limits::Limits;
pub use member_names::{MemberNameError, MemberNames};
pub use network::{
    HostPattern, HostPatternError, Network, ProxyVariables, PublicPath, PublicUrl, UrlPortError,
    url_port,
};
pub use principal::{Author, Principal, PrincipalKey, Scope, Scopes, Tenant};
pub use principal_limits::{
    EffectiveLimits, KeyLimits, LimitChange, LimitExceeded, PrincipalLimit, PrincipalLimits,
};
pub use states::{
    CancelCause, PermissionPolicy, PromptStatus, Resolution, SessionPolicy, SessionState,
    TurnOutcome,
};
