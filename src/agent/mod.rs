//! The catalogue of agents, and the connection to one agent process.
//!
//! This module owns the child's pipes, the pairing of requests with responses, and the handshake. It does not know
//! sessions: the holder of a [`Process`] receives every message in the order in which the agent wrote it.
//!
//! Reading order: [`spec`], [`catalogue`], [`process`], [`connection`], [`failure`] with [`next_step`],
//! [`call`], [`sign_in`].

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
pub use failure::{AgentExit, AgentFailure, without_secrets};
pub use process::{FailedStart, Launcher, Process};
pub use sign_in::{SignInCommand, Terminal};
pub use spec::{AgentSpec, Home, Known};
