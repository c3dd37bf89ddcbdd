//! The limits of streams.

use std::time::Duration;

/// Calls a macro with the table of limits: see `base::declare_limits`.
macro_rules! stream_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            stream: Limits {
                ["timeouts"] {
                    /// The interval between keep-alive comments on a quiet stream.
                    keep_alive_interval: Duration = Duration::from_secs(15), time;
                }
                ["testing"] {
                    /// The time for which a client may read nothing of a response. When it expires, the connection closes.
                    write_stall_timeout: Duration = Duration::from_secs(30), time;
                }
            }
        }
    };
}
pub(crate) use stream_limits;

stream_limits!(base::declare_limits);
