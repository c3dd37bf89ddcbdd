//! Protocols that this program serves to a client on lines: the mirror of the dialects of agents.
//!
//! A [`ServedDialect`] translates the lines of one client into messages of ACP v1 for an agent, and the messages of the
//! agent into lines for the client. It has no I/O. The module must not know agents, processes, or a gateway.
//!
//! Reading order: [`dialect`], [`message`] and [`input`] (the formats), [`acp`], [`early_acp`], [`stream_json`].

mod acp;
mod dialect;
mod early_acp;
pub mod input;
mod message;
mod stream_json;

pub use dialect::{Ending, Served, ServedContext, ServedDialect};

/// A protocol of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedProtocol {
    Acp,
    EarlyAcp,
    StreamJson,
}

/// Creates the state for one client.
pub fn serve(protocol: ServedProtocol, context: ServedContext) -> Box<dyn ServedDialect> {
    match protocol {
        ServedProtocol::Acp => Box::new(acp::Acp),
        ServedProtocol::EarlyAcp => Box::new(early_acp::EarlyAcp::new(context)),
        ServedProtocol::StreamJson => Box::new(stream_json::StreamJson::new(context)),
    }
}
