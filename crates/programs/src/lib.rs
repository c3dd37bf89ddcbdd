//! The programs beside the gateway. They know no part of it.
//!
//! - [`translate`]: an agent in another protocol as an agent of ACP on stdio, and the mirror for clients.
//! - [`attach`]: the bridge between an editor on stdio and `/acp` of a gateway, with its reconnects.
//! - [`connect`]: a member of a fleet: runs processes of an agent for a gateway.
//! - [`demo_agent`]: an agent without a model, in the same binary.
//!
//! [`stdio`] reads and writes the lines of all of them.

pub mod stdio;
pub mod translate;
pub mod attach;
pub mod connect;
pub mod demo_agent;
