//! Clients without a key that try to exhaust the gateway. They use raw sockets.

mod clients;
mod frames;
mod http2;
mod load;
mod slow;
