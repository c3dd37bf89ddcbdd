//! The limits of agents, their connections and the pool.

use std::time::Duration;

/// Calls a macro with the table of limits: see `base::declare_limits`.
#[macro_export]
macro_rules! agents_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            agents: Limits {
                ["testing"] {
                    /// Timeout of a call to an agent outside a session (list of sessions, sign-in state, `/rpc`). When it
                    /// expires, the call fails with 504.
                    call_timeout: Duration = Duration::from_mins(1), time;
                    /// The time for which such a call waits while all processes are busy. When it expires, the call fails
                    /// with 503.
                    short_lease_timeout: Duration = Duration::from_secs(10), time;
                    /// The back-off after a crash grows from `min_backoff` to `max_backoff`. After `max_breaker_crashes`
                    /// crashes within `breaker_window`, the breaker opens and requests fail with 503.
                    min_backoff: Duration = Duration::from_secs(1), time;
                    max_backoff: Duration = Duration::from_mins(1), time;
                    max_breaker_crashes: u32 = 5, count;
                    breaker_window: Duration = Duration::from_mins(2), time;
                    /// The number of places in an agent's wait queue. Beyond it, requests fail with 503.
                    max_queue_places: usize = 4096, count;
                    /// The number of invalid lines of an agent in a minute. Beyond it, the gateway stops the agent.
                    max_invalid_lines_per_minute: u32 = 1000, count;
                    /// The number of bytes that an agent may print to stdout before it answers `initialize`. Beyond it, the
                    /// gateway stops the agent. Invalid lines count only after this answer.
                    max_start_output_bytes: usize = 16 << 20, size;
                    /// The time for which the processes of a member of the fleet wait for its return. When it expires, their
                    /// turns fail.
                    member_return_timeout: Duration = Duration::from_mins(1), time;
                }
            }
        }
    };
}
agents_limits!(base::declare_limits);
