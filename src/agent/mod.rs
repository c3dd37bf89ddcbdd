//! The catalogue of agents, and one connection to one agent process.
//!
//! It owns the child's two ends, the pairing of requests with answers, and the first handshake. It does not know
//! sessions: whoever holds the [`Process`] gets every message in the order in which the agent wrote it.

mod call;
mod catalogue;
mod connection;
mod failure;
mod next_step;
mod process;
mod sign_in;
mod spec;

pub use catalogue::{Catalogue, CurrentCatalogue};
pub use connection::{Batch, Connection, Inbound};
pub use failure::{AgentFailure, AgentExit, without_secrets};
pub use process::{FailedStart, Launcher, Process};
pub use sign_in::{SignInCommand, Terminal};
pub use spec::{AgentLimits, AgentSpec, Home, Known, Permissions, PoolSpec, OnTimeout};
