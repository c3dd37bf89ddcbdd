//! The limits of child processes.

use std::time::Duration;

/// The time for which an agent may read nothing from its stdin. When it expires, the gateway stops the agent.
pub const STDIN_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls a macro with the table of limits: see `base::declare_limits`.
#[macro_export]
macro_rules! children_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            children: Limits {
                ["testing"] {
                    /// Graceful stop: the time between closing stdin and TERM.
                    stop_stdin_timeout: Duration = Duration::from_secs(5), time_or_zero;
                    /// Graceful stop: the time between TERM and KILL.
                    stop_term_timeout: Duration = Duration::from_secs(5), time_or_zero;
                    /// The same two steps during a drain.
                    drain_stdin_timeout: Duration = Duration::from_secs(2), time_or_zero;
                    drain_term_timeout: Duration = Duration::from_secs(1), time_or_zero;
                    /// Graceful stop: the time after KILL, before the gateway kills the supervisor itself.
                    stop_kill_timeout: Duration = Duration::from_secs(3), time_or_zero;
                    /// See [`STDIN_STALL_TIMEOUT`].
                    stdin_stall_timeout: Duration = STDIN_STALL_TIMEOUT, time;
                    /// The number of bytes of a child's stderr that the gateway keeps. The last bytes are kept.
                    max_stderr_bytes: usize = 64 << 10, size;
                }
            }
        }
    };
}
children_limits!(base::declare_limits);
