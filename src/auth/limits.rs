//! The limits of keys and tickets.

use std::time::Duration;

/// Calls a macro with the table of limits: see `base::declare_limits`.
macro_rules! auth_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            auth: Limits {
                ["auth"] {
                    /// The lifetime of an unused link key or local key. After it, requests fail with 401.
                    link_key_idle_timeout: Duration = Duration::from_hours(30 * 24), time;
                    /// Wrong keys from one address in a minute. Further requests from the address fail with 429.
                    max_failed_keys_per_minute: u32 = 10, count;
                    /// The number of users that the keys of one program with the scope `actAs` may create.
                    max_users_per_program: usize = 1000, count;
                }
                ["testing"] {
                    /// The number of keys of each kind. Beyond it, the gateway rejects a new named key, evicts the least
                    /// recently used local key, and evicts the oldest unused link key or rejects a new one if all are in use.
                    max_named_keys: usize = 1000, count;
                    max_link_keys: usize = 100, count;
                    /// The number of keys that a user may have. Beyond it, the user cannot make one over HTTP.
                    max_keys_per_user: usize = 50, count;
                    /// How often the gateway reloads the keys: a new key is valid and a revoked key invalid after this time.
                    key_reload_interval: Duration = Duration::from_secs(1), time;
                    /// The lifetime of an unused ticket. After it, requests with the ticket fail with 401.
                    ticket_unused_timeout: Duration = Duration::from_mins(1), time;
                    /// The lifetime of a ticket after its last stream ended. After it, requests with the ticket fail with
                    /// 401.
                    ticket_idle_timeout: Duration = Duration::from_mins(10), time;
                    /// The number of tickets of one user. Beyond it, the gateway evicts the oldest ticket without a
                    /// stream. A backend may need one ticket for each of its own users.
                    max_tickets: usize = 4096, count;
                }
            }
        }
    };
}
pub(crate) use auth_limits;

auth_limits!(base::declare_limits);
