//! The catalogue of agents, and the connection to one agent.
//!
//! This module owns the transport to an agent, the pairing of requests with responses, and the handshake. It does
//! not know sessions: the holder of a [`Process`] receives every message in the order in which the agent sent it.
//!
//! Reading order: [`spec`] with [`endpoint`], [`catalogue`], [`process`] with [`process_key`], [`transport`], [`connection`] with
//! [`reader`], [`batch`] and [`secrets`], [`handshake`], [`launcher`] with [`idle_folder`], [`member_source`], [`remote`],
//! [`failure`] with [`next_step`], [`call`], [`sign_in`].

mod batch;
mod call;
mod catalogue;
mod connection;
mod endpoint;
mod failure;
mod handshake;
mod idle_folder;
mod invalid_output;
mod launcher;
mod member_source;
mod next_step;
mod process;
mod process_key;
mod reader;
mod remote;
mod secrets;
mod sign_in;
mod spec;
mod transport;

pub use batch::{Batch, Inbound};
pub use catalogue::{Catalogue, CurrentCatalogue};
pub use connection::Connection;
pub use endpoint::{Endpoint, RemoteEndpoint, RemoteFolders};
pub use failure::{AgentExit, AgentFailure};
pub use idle_folder::{IdleFolder, IdleFolders};
pub use launcher::Launcher;
pub use member_source::MemberSource;
pub use process::{FailedStart, Process};
pub use process_key::{FormerChannel, ProcessKey, SessionStart};
pub use remote::RemoteConnector;
pub use secrets::without_secrets;
pub use sign_in::{SignInCommand, Terminal};
pub use spec::{AgentSpec, Home, INVALID_ENTRY, Known};
pub use transport::BoxFuture;
#[cfg(test)]
pub(crate) use transport::memory;
