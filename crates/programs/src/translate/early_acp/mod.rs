//! The early protocol: that of agents and clients that were written before version 1 of ACP, or from early descriptions of it.
//!
//! [`agent`] drives such an agent, and [`client`] serves such a client. Both share the [`names`].

mod agent;
mod client;
mod names;

pub(super) use agent::EarlyAgent;
pub(super) use client::EarlyClient;
