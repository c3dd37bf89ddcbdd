//! Agents of every kind, and the processes that serve them.
//!
//! - [`limits`]: the limits of the crate.
//! - [`agent`]: the catalogue, and one connection for each process or remote agent, over a transport.
//! - [`cca`]: members of the fleet that exchange JSON messages.
//! - [`pool`]: the assignment of processes to sessions: wait queue, leases, idle processes, back-off, sign-in.

pub mod limits;
pub mod cca;
pub mod agent;
pub mod pool;
