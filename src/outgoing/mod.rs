//! Outgoing connections: the client for HTTP, Server-Sent Events and WebSocket, with TLS and proxies.
//!
//! No other module opens connections to other hosts. Only the operator names hosts: in the configuration, in arguments and
//! in variables. The client follows no redirects and keeps no cookies; [`cookies`] keeps those of one URL.
//!
//! Reading order: [`client`], [`connector`] with [`tls`], [`websocket`], [`sse`] with [`event_stream`], [`cookies`], [`backoff`].

mod backoff;
mod client;
mod connector;
mod cookies;
mod event_stream;
mod sse;
#[cfg(test)]
mod tests;
mod tls;
mod websocket;

pub use backoff::Backoff;
pub use client::{Client, ClientOptions, RequestError, read_body};
pub use cookies::Cookies;
pub use event_stream::{EventStream, SilenceTimeout, StreamEnd};
pub use sse::{Decoder, Event, EventTooLarge};
pub use tls::TlsError;
pub use websocket::{WebSocket, WebSocketError, open_websocket};
