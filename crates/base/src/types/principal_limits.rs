//! Limits of users: the defaults of the configuration, and the values that the keys of a user set.
//!
//! - The limits belong to the user and not to the key. Otherwise a user with two keys has twice the quota, also while it
//!   replaces a key.
//! - The limits are stored in the records of the keys. A table of users would need its own life cycle. Operators
//!   create keys on the command line, so the configuration file has only the defaults.
//! - The handle is in `types`, so that all layers read the limits without an import of `auth`.
//! - Only rejections have the `RateLimit` headers. For concurrent requests, the value in a success is stale on
//!   arrival.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::process::abort;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::principal::{Principal, UserId};
use crate::telemetry::metrics;

/// Calls a macro with the table of limits: see `base::declare_limits`.
///
/// A backend with one key is one user, so the defaults suit a backend for 500 people.
#[macro_export]
macro_rules! principal_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            per_key: PrincipalDefaults {
                ["limits.per_key"] {
                    /// The number of requests in a minute. Further requests fail with 429.
                    max_requests_per_minute: u32 = 60_000, count;
                    /// The number of prompts in a minute. Further prompts fail with 429.
                    max_prompts_per_minute: u32 = 6000, count;
                    /// The number of open event streams and held responses. Further requests fail with 429.
                    max_streams: usize = 2000, count;
                    /// The number of sessions that have a process or wait for one. Further requests fail with 429.
                    max_live_sessions: usize = 2000, count;
                    /// The number of prompts and calls that wait for a process of one agent. Further ones fail with
                    /// 429.
                    max_queued_prompts: usize = 2000, count;
                    /// The size of the tasks that wait for a process. Further tasks fail with 429.
                    max_queued_task_bytes: usize = 64 << 20, size;
                    /// The number of members of the fleet. A further member replaces one that is disconnected, or is
                    /// rejected.
                    max_fleet_members: usize = 16, count;
                }
            }
        }
    };
}
principal_limits!(crate::declare_limits);

/// Declares the limits. A row has the field of [`PrincipalDefaults`], the unit of a limit on concurrent objects (`None` for a
/// limit per minute), and the message for a rejected request.
macro_rules! principal_limit {
    ($($(#[doc = $doc:literal])* $limit:ident: $field:ident, $unit:expr, $message:literal;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum PrincipalLimit {
            $($(#[doc = $doc])* $limit,)+
        }

        impl PrincipalLimit {
            const ALL: [Self; 7] = [$(Self::$limit),+];

            const fn row(self) -> (&'static str, Option<&'static str>, &'static str) {
                match self {
                    $(Self::$limit => (stringify!($field), $unit, $message),)+
                }
            }
        }

        fn defaults(limits: &PrincipalDefaults) -> Defaults {
            fn whole(count: impl TryInto<u32>) -> u32 {
                count.try_into().unwrap_or(u32::MAX)
            }
            [$(whole(limits.$field)),+]
        }
    };
}

type Defaults = [u32; 7];

principal_limit! {
    /// Requests per minute.
    Requests: max_requests_per_minute, None, "too many requests";
    /// Prompts per minute.
    Prompts: max_prompts_per_minute, None, "too many prompts";
    /// Concurrent streams and held responses.
    Streams: max_streams, Some("concurrent-requests"), "too many open streams";
    /// Sessions that have a process or wait for one.
    LiveSessions: max_live_sessions, Some("sessions"), "too many live sessions; close or delete one";
    /// Prompts and other calls that wait for a process of one agent.
    QueuedPrompts: max_queued_prompts, Some("prompts"), "too many prompts wait for a process of this agent";
    /// The bytes of tasks that wait for a process.
    QueuedTaskBytes: max_queued_task_bytes, Some("content-bytes"), "too many bytes of queued tasks";
    Members: max_fleet_members, Some("members"), "too many members of the fleet";
}

impl PrincipalLimit {
    /// The key in `[limits.per_key]`, which is also the name of the quota policy.
    pub const fn key(self) -> &'static str {
        self.row().0
    }

    /// The flag of `key create` and `key update`, without its dashes.
    pub fn flag(self) -> String {
        self.key().replace('_', "-")
    }
}

/// The address under which limits count a client. An IPv6 subscriber has a /64 network, so the network counts as
/// one address.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A new value for a limit. `None` resets the limit to the default of the configuration.
pub type LimitChange = (PrincipalLimit, Option<u32>);

/// The limits that the keys of a user set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "BTreeMap<String, u32>", into = "BTreeMap<String, u32>")]
pub struct KeyLimits([Option<u32>; 7]);

impl KeyLimits {
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    pub fn get(self, limit: PrincipalLimit) -> Option<u32> {
        self.0[limit as usize]
    }

    #[must_use]
    pub fn with(mut self, changes: &[LimitChange]) -> Self {
        for (limit, value) in changes {
            self.0[*limit as usize] = *value;
        }
        self
    }

    pub fn iter(self) -> impl Iterator<Item = (PrincipalLimit, u32)> {
        PrincipalLimit::ALL
            .into_iter()
            .filter_map(move |limit| Some((limit, self.get(limit)?)))
    }
}

impl From<BTreeMap<String, u32>> for KeyLimits {
    fn from(named: BTreeMap<String, u32>) -> Self {
        Self(PrincipalLimit::ALL.map(|limit| named.get(limit.key()).copied()))
    }
}

impl From<KeyLimits> for BTreeMap<String, u32> {
    fn from(limits: KeyLimits) -> Self {
        limits
            .iter()
            .map(|(limit, value)| (limit.key().to_owned(), value))
            .collect()
    }
}

/// The limits that currently apply to one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveLimits {
    defaults: Defaults,
    key_limits: KeyLimits,
}

impl EffectiveLimits {
    pub fn get(&self, limit: PrincipalLimit) -> u32 {
        self.key_limits
            .get(limit)
            .unwrap_or(self.defaults[limit as usize])
    }

    /// The limit as a number of objects.
    pub fn max(&self, limit: PrincipalLimit) -> usize {
        usize::try_from(self.get(limit)).unwrap_or(usize::MAX)
    }

    /// The error for a request that exceeds the limit, which the metrics count.
    pub fn exceeded(&self, limit: PrincipalLimit, retry_after: Duration) -> LimitExceeded {
        metrics().rejections(limit.key(), 1);
        let set_by_key = self.key_limits.get(limit).is_some();
        LimitExceeded {
            limit,
            max: self.get(limit),
            set_by_key,
            retry_after,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct LimitExceeded {
    pub limit: PrincipalLimit,
    max: u32,
    set_by_key: bool,
    pub retry_after: Duration,
}

impl LimitExceeded {
    /// The seconds after which a retry may succeed, at least 1.
    pub fn retry_after_seconds(&self) -> u64 {
        (self.retry_after.as_secs() + u64::from(self.retry_after.subsec_nanos() > 0)).max(1)
    }

    /// The value of the `RateLimit-Policy` header: one quota policy.
    pub fn policy(&self) -> String {
        let name = self.limit.key();
        let max = self.max;
        match self.limit.row().1 {
            Some(unit) => format!("\"{name}\";q={max};qu=\"{unit}\""),
            None => format!("\"{name}\";q={max};w=60"),
        }
    }

    /// The value of the `RateLimit` header: no quota remains until the retry.
    pub fn remaining(&self) -> String {
        format!(
            "\"{}\";r=0;t={}",
            self.limit.key(),
            self.retry_after_seconds()
        )
    }
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (limit {}, ", self.limit.row().2, self.max)?;
        if self.set_by_key {
            write!(f, "set with the key: `key update --{}`)", self.limit.flag())
        } else {
            write!(f, "`limits.per_key.{}`)", self.limit.key())
        }
    }
}

/// The limits of all users. The type is a cheap handle. A change applies to the next request.
#[derive(Debug, Clone)]
pub struct PrincipalLimits(Arc<RwLock<Inner>>);

#[derive(Debug)]
struct Inner {
    defaults: Defaults,
    key_limits: HashMap<UserId, KeyLimits>,
}

impl Default for PrincipalLimits {
    fn default() -> Self {
        Self::new(&PrincipalDefaults::default())
    }
}

impl PrincipalLimits {
    pub fn new(limits: &PrincipalDefaults) -> Self {
        let inner = Inner {
            defaults: defaults(limits),
            key_limits: HashMap::new(),
        };
        Self(Arc::new(RwLock::new(inner)))
    }

    pub fn effective(&self, principal: &Principal) -> EffectiveLimits {
        let inner = self.read();
        let key_limits = inner.key_limits.get(&principal.user).copied();
        EffectiveLimits {
            defaults: inner.defaults,
            key_limits: key_limits.unwrap_or_default(),
        }
    }

    pub fn set_defaults(&self, limits: &PrincipalDefaults) -> bool {
        let next = defaults(limits);
        std::mem::replace(&mut self.write().defaults, next) != next
    }

    pub fn set_key_limits(&self, of_keys: HashMap<UserId, KeyLimits>) {
        self.write().key_limits = of_keys;
    }

    /// Aborts the process if the lock is poisoned, because a panicked writer may have left inconsistent
    /// limits.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.0.read().unwrap_or_else(|_| abort())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write().unwrap_or_else(|_| abort())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scopes, Tenant};
    use super::*;

    fn principal(id: &str) -> Principal {
        Principal {
            user: UserId::new(&Tenant::default(), id),
            scopes: Scopes::default(),
            folders: crate::types::GrantedFolders::default(),
            is_local: false,
        }
    }

    #[test]
    fn key_limits_override_defaults_for_one_principal() {
        let limits = PrincipalLimits::new(&PrincipalDefaults {
            max_streams: 5,
            ..PrincipalDefaults::default()
        });
        let of_alice = KeyLimits::default().with(&[(PrincipalLimit::Streams, Some(1))]);
        limits.set_key_limits(HashMap::from([(
            UserId::new(&Tenant::default(), "alice"),
            of_alice,
        )]));
        let streams = |id: &str| {
            limits
                .effective(&principal(id))
                .get(PrincipalLimit::Streams)
        };
        assert_eq!((streams("alice"), streams("bob")), (1, 5));
        assert!(limits.set_defaults(&PrincipalDefaults {
            max_streams: 9,
            ..PrincipalDefaults::default()
        }));
        assert_eq!((streams("alice"), streams("bob")), (1, 9));
        let exceeded = |id: &str| {
            limits
                .effective(&principal(id))
                .exceeded(PrincipalLimit::Streams, Duration::from_millis(1200))
        };
        let own = exceeded("alice");
        let common = exceeded("bob");
        assert_eq!(
            own.to_string(),
            "too many open streams (limit 1, set with the key: `key update --max-streams`)"
        );
        assert_eq!(
            common.to_string(),
            "too many open streams (limit 9, `limits.per_key.max_streams`)"
        );
        assert_eq!(
            common.policy(),
            "\"max_streams\";q=9;qu=\"concurrent-requests\""
        );
        assert_eq!(common.remaining(), "\"max_streams\";r=0;t=2");
    }

    #[test]
    fn the_limits_of_a_key_are_stored_by_name() {
        let limits = KeyLimits::default().with(&[
            (PrincipalLimit::Requests, Some(7)),
            (PrincipalLimit::QueuedPrompts, Some(1)),
        ]);
        let stored = serde_json::to_string(&limits).unwrap();
        assert_eq!(
            stored,
            r#"{"max_queued_prompts":1,"max_requests_per_minute":7}"#
        );
        assert_eq!(serde_json::from_str::<KeyLimits>(&stored).unwrap(), limits);
        assert_eq!(
            serde_json::from_str::<KeyLimits>(r#"{"later":3}"#).unwrap(),
            KeyLimits::default()
        );
    }
}
