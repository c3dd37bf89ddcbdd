//! The HTTP server: the accept loop, the REST routes, event streams and problem documents, over HTTP/1.1 and
//! h2c.
//!
//! The module owns connections, requests and responses. It reaches sessions through [`crate::session`],
//! events through [`crate::eventlog`], and access decisions through [`crate::auth`]. It must not know
//! processes, the store or the configuration.
//!
//! Read in this order:
//! 1. `accept`, `connection`, `activity`, `backlog`: a connection and its limits.
//! 2. `router`, `layers`, `extract`, `error`, `routes`: a request and its response.
//! 3. `hijack`, `stream_workers`, `stream`: a response that streams events.
//! 4. `openapi`, `page`, `sign_in_socket`: the document, the chat page and the terminal of a sign-in.

mod accept;
mod activity;
mod response_body;
mod backlog;
mod body;
mod connection;
mod cors;
mod error;
mod extract;
mod stream_workers;
mod layers;
mod limits;
mod negotiate;
mod openapi;
mod range;
mod router;
mod routes;
mod sign_in_socket;
mod state;
mod stream;
mod hijack;
mod page;
pub mod wire;

pub use accept::{Acceptor, serve};
pub use openapi::{document, document_json};
pub use router::router;
pub use state::{Gateway, GatewayParts};
pub use stream_workers::StreamWorkers;
