//! The accept loop, routes, streams and problems: the REST contract over HTTP/1.1 and h2c.
//!
//! It owns what a request and an answer look like, and nothing of what they are about: sessions are asked through
//! [`crate::session`], events are read through [`crate::eventlog`], and who may ask is decided by [`crate::auth`].
//! It must not know processes, the store or the configuration.

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
pub use stream_workers::StreamWorkers;
pub use openapi::{document, document_json};
pub use router::router;
pub use state::{Gateway, GatewayParts};
