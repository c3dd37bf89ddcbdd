//! The limits of requests.

use std::time::Duration;

/// Calls a macro with the table of limits: see `base::declare_limits`.
macro_rules! http_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            http: Limits {
                ["server"] {
                    /// The size of a request body. A larger body fails with 413.
                    max_body_bytes: usize = 1 << 20, size;
                    /// The memory of request bodies and WebSocket messages, of which one user gets at most a quarter. Beyond
                    /// it, requests fail with 503 (all users) or 429 (one user).
                    max_body_memory_bytes: usize = 128 << 20, size;
                }
                ["testing"] {
                    /// The time to read the body of a request. When it expires, the connection closes.
                    body_timeout: Duration = Duration::from_secs(30), time;
                    /// Timeout of a sign-in. When it expires, a call fails with 504, and a terminal closes.
                    sign_in_timeout: Duration = Duration::from_mins(10), time;
                    /// The number of bytes that a terminal of a sign-in may print. Beyond it, the terminal closes.
                    max_sign_in_output_bytes: usize = 8 << 20, size;
                    /// The size of a client's WebSocket message in bytes. A larger message closes the connection.
                    max_websocket_message_bytes: usize = 64 << 10, size;
                    /// The number of names that a file search examines for one page. Beyond it, the page ends and a cursor
                    /// continues the search.
                    max_search_names: usize = 20_000, count;
                }
            }
        }
    };
}
pub(crate) use http_limits;

http_limits!(base::declare_limits);
