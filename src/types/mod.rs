//! Types that every layer shares: ids, principals, cursors, time and limits.
//!
//! The module imports no other module of the crate.
//!
//! Read `ids`, `cursor` and `principal` first, then `clock` and `expiry`, then `limits`, `principal_limits` and
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
mod expiry;
mod folder_error;
mod agent_dialect;
mod agent_kind;
mod granted_folders;
mod host_pattern;
mod agent_name;
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
mod mode_selection;
pub mod network;
pub mod principal;
mod principal_limits;
mod process_state;
mod proxy_variables;
mod public_url;
mod queued_line;
mod states;
pub mod text;
mod url_port;
mod user_range;

pub use acp_request::AcpRequest;
pub use agent_dialect::{AgentDialect, OWN_PROGRAM};
pub use agent_kind::AgentKind;
pub use agent_name::{AgentName, AgentNameError};
pub use agent_settings::{AgentSettings, OnTimeout, Permissions, PoolSettings, ServedBy};
pub use clock::{Clock, Ids, Timestamp, random_uuid};
pub use cursor::{Epoch, EventId, Position};
pub use denied_modes::DeniedModes;
pub use expiry::Expiry;
pub use folder_error::FolderError;
pub use granted_folders::GrantedFolders;
pub use host_pattern::{HostPattern, HostPatternError};
pub use ids::{PromptId, RequestId, SessionId, TerminalId};
pub use isolation::{AppliedIsolation, Isolation, IsolationPolicy, Mechanism, ResourceLimits};
pub use keyed_guard::{KeyedCounts, KeyedGuard};
pub use known_agents::KnownAgent;
pub use limits::Limits;
pub use member_names::{MemberNameError, MemberNames};
pub use mode_selection::ModeSelection;
pub use network::Network;
pub use principal::{Author, Principal, PrincipalKey, Scope, Scopes, Tenant};
pub use principal_limits::{
    EffectiveLimits, KeyLimits, LimitChange, LimitExceeded, PrincipalLimit, PrincipalLimits,
};
pub use process_state::ProcessState;
pub use proxy_variables::ProxyVariables;
pub use public_url::{PublicPath, PublicUrl};
pub use queued_line::QueuedLine;
pub use states::{
    CancelCause, PermissionPolicy, PromptStatus, Resolution, SessionPolicy, SessionState,
    TurnOutcome,
};
pub use url_port::{UrlPortError, url_port};
pub use user_range::UserRange;
