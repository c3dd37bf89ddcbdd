//! Outgoing connections: the client for HTTP, Server-Sent Events and WebSocket, with TLS and proxies.
//!
//! No other module opens connections to other hosts. The operator names hosts: in the configuration, in arguments and in
//! variables. The registry of the operator names the archives that a command loads. A key with the scope `admin` names URLs
//! of webhooks on hosts that the operator permits; a client for them connects only to public addresses ([`AddressRule`]).
//! The client follows no redirects and keeps no cookies; [`cookies`] keeps those of one URL.
//!
//! Reading order: [`client`] (also TLS and WebSocket), [`connector`], [`sse`], [`cookies`], [`backoff`], [`url`].
//!
//! The client uses hyper with rustls, not reqwest. reqwest adds code for cookies, redirects and URLs that the gateway
//! must not use.
//!
//! The connector contains the address rule, because no library for SSRF protection connects to the checked address
//! through hyper. A check before the connection is not sufficient: the name can resolve to another address
//! afterwards.

mod backoff;
mod client;
mod connector;
mod cookies;
mod sse;
#[cfg(test)]
mod tests;
mod url;

pub use self::backoff::Backoff;
pub use self::client::{
    Client, ClientOptions, RequestError, TlsError, WebSocket, WebSocketError, open_websocket,
    read_body,
};
pub use self::connector::{AddressRule, is_public};
pub use self::cookies::Cookies;
pub use self::sse::{Decoder, Event, EventStream, EventTooLarge, SilenceTimeout, StreamEnd};
pub use self::url::{
    HostPattern, HostPatternError, ProxyVariables, UrlPortError, is_loopback_url, url_port,
};
