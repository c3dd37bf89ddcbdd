//! Clients without a key that try to exhaust the gateway. They use raw sockets.

pub(crate) mod clients;
pub(crate) mod frames;
mod http2;
mod slow;
