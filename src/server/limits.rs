//! The limits of connections.

use std::time::Duration;

/// Calls a macro with the table of limits: see `base::declare_limits`.
macro_rules! server_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            server: Limits {
                ["server"] {
                    /// Open connections. A further connection evicts the oldest one without an accepted key, or is refused.
                    max_connections: usize = 4096, count;
                    /// Open connections from one address or IPv6 /64 network, with the same effect. A TLS proxy is exempt.
                    max_connections_per_address: usize = 2048, count;
                }
                ["testing"] {
                    /// The number of open connections without an accepted key, at most half of `max_connections`, and the
                    /// number from one address, at most a quarter of that. Beyond them, a new connection evicts the oldest
                    /// such connection. A TLS proxy has no limit of its own.
                    max_unauthenticated_connections: usize = 2048, count;
                    max_unauthenticated_connections_per_address: usize = 512, count;
                    /// The number of bytes that requests on such connections may use, in total: the received bytes, and 32 KiB
                    /// for each open request. Beyond it, the gateway evicts the oldest such connection with a request.
                    max_unauthenticated_request_bytes: usize = 24 << 20, size;
                    /// The time to read the head of a request, and to wait for the first request. When it expires, the
                    /// connection closes.
                    header_timeout: Duration = Duration::from_secs(10), time;
                    /// The time that a connection may be idle after a request. When it expires, the connection closes. The
                    /// default is longer than the idle timeout of most clients and proxies. Thus the client closes the
                    /// connection first, and no request arrives on a connection that is closing. While more than half of
                    /// the connection slots are in use, `header_timeout` applies instead.
                    connection_idle_timeout: Duration = Duration::from_mins(3), time;
                    /// The size in bytes of the kernel's send buffer for a slow client. When it is full, the stream waits.
                    send_buffer_bytes: usize = 256 << 10, size;
                    /// HTTP/2: the number of concurrent requests on a connection without an authenticated request. Further
                    /// requests wait.
                    max_h2_unauthenticated_streams: u32 = 16, count;
                    /// HTTP/2: the number of response bytes that clients have not read, for one connection and in total.
                    /// Beyond it, new requests on connections with such bytes wait.
                    max_connection_unsent_bytes: usize = 8 << 20, size;
                    max_unsent_bytes: usize = 256 << 20, size;
                }
            }
        }
    };
}
pub(crate) use server_limits;

server_limits!(base::declare_limits);
