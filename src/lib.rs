//! acp-gateway: an HTTP and SSE gateway that exposes ACP agents to web apps.
//!
//! `ARCHITECTURE.md` describes the structure. The crates in `crates/` have the layers below; this crate has, lowest first:
//!
//! - [`config`]: turns file, environment and flags into one checked `Config`, with the limits that the other modules declare; the only reader of the environment.
//! - [`registry`]: installs agents by the id of a registry.
//! - [`auth`]: keys, tickets, and the policy for Host and Origin.
//! - [`control`]: the control socket: keys and folders for commands of the owner of the data folder.
//! - [`stream`]: the loop from a reader of the log to a socket or a response body.
//! - [`server`]: listeners, connections and their limits, the middleware of all surfaces.
//! - [`surface`]: REST, `/acp`, the chat protocols and the page: translators between protocols and sessions. `surface/http` has what they share.
//! - [`app`]: builds every part from `Config`.
//! - [`cli`]: subcommands and exit codes.

pub mod config;
pub mod registry;
pub mod auth;
pub mod control;
pub mod stream;
pub mod server;
pub mod surface;
pub mod app;
pub mod cli;
