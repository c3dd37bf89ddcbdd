//! Faults of the network between a client and the gateway: cut, stalled, slow, half closed, and many at once.

mod overload;
mod posts;
mod streams;
mod unread;
