//! The limits of all modules. Each module declares the table of its limits beside the code that enforces them.

use super::Config;
use super::key::{
    Key, count, count_or_zero, key_table, percent, size, size_or_zero, switch, time, time_or_zero,
};
use crate::auth::limits::{self as auth, auth_limits};
use crate::server::limits::{self as server, server_limits};
use crate::stream::limits::{self as stream, stream_limits};
use crate::surface::http::limits::{self as http, http_limits};
use base::types::{ClockLimits, PrincipalDefaults};

/// The section of limits that only tests set. Release builds do not read it.
pub(super) const TESTING: &str = "testing";

/// The limits of the whole gateway. The limits of one agent are in its entry.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    pub server: server::Limits,
    pub http: http::Limits,
    pub auth: auth::Limits,
    pub per_key: PrincipalDefaults,
    pub sessions: sessions::limits::Limits,
    pub stream: stream::Limits,
    pub log: log::limits::Limits,
    pub agents: agents::limits::Limits,
    pub children: children::Limits,
    pub clock: ClockLimits,
}

macro_rules! keys {
    ($table:ident: $name:ident { $([$section:literal] { $(
        $(#[doc = $doc:literal])* $field:ident $(as $key:ident)?: $type:ty = $default:expr, $kind:ident;
    )+ })+ }) => {
        key_table! { Config:
            $([$section, local: true] {
                $($(#[doc = $doc])* $field $(as $key)?: $kind => limits.$table.$field;)+
            })+
        }
    };
}

/// The keys of all tables. Within a section, they are in this order.
pub(super) const KEYS: [&[Key<Config>]; 10] = [
    server_limits!(keys),
    http_limits!(keys),
    auth_limits!(keys),
    base::principal_limits!(keys),
    sessions::sessions_limits!(keys),
    stream_limits!(keys),
    log::log_limits!(keys),
    agents::agents_limits!(keys),
    children::children_limits!(keys),
    base::clock_limits!(keys),
];
