//! The catalogue of agents, and the connection to one agent.
//!
//! This module owns the transport to an agent, the pairing of requests with responses, and the handshake. It does
//! not know sessions: the holder of a [`Process`] receives every message in the order in which the agent sent it.
//!
//! Reading order: [`settings`], [`spec`], [`catalogue`], [`client_input_policy`], [`process`], [`transport`], [`connection`] with [`secrets`], [`handshake`],
//! [`launcher`] with [`telemetry`], [`remote`], [`failure`].

mod catalogue;
pub mod client_input_policy;
mod connection;
mod failure;
mod handshake;
mod idle_folder;
mod launcher;
mod process;
mod remote;
mod secrets;
mod settings;
mod spec;
mod telemetry;
mod transport;

pub use catalogue::{Catalogue, CurrentCatalogue};
/// The size of the terminal of a sign-in.
pub use children::PtySize;
pub use connection::{Batch, Connection, Inbound};
pub use failure::{AgentExit, AgentFailure};
pub use idle_folder::{IdleFolder, IdleFolders};
pub use launcher::{Launcher, Terminal};
pub use process::{EarlierChannel, FailedStart, Process, ProcessKey, SessionStart};
pub use remote::RemoteConnector;
pub use secrets::without_secrets;
pub use settings::{AgentSettings, Permissions, PoolSettings};
pub use spec::{AgentSpec, Endpoint, Home, INVALID_ENTRY, Known, RemoteEndpoint, RemoteFolders};
pub use telemetry::{TelemetrySource, TelemetrySources};
pub use transport::BoxFuture;
#[cfg(test)]
pub(crate) use transport::memory;
