//! `acp-gateway translate`: runs an agent that speaks another protocol, and serves it on stdin and stdout as an agent of ACP.
//!
//! This is how the gateway drives agents that do not speak ACP: the configured command runs behind a translation, in the same
//! supervisor and sandbox. A translation has two halves with ACP between them: [`agent`] drives the agent, and [`client`]
//! serves the client, which has ACP or an early protocol. The module must not know a gateway.
//!
//! Reading order: [`protocol`] (the interfaces of the halves), [`agent`] and [`client`], [`stream_json`], [`early_acp`], [`message`], [`object`],
//! [`members`] and [`budget`] (shared by the protocols), [`input`], [`launch`] (the command), [`recording`], [`driver`] (the loop).

mod agent;
mod budget;
mod client;
mod driver;
mod early_acp;
mod input;
mod launch;
mod members;
mod message;
mod object;
mod protocol;
mod recording;
mod stream_json;

pub use client::early_client;
pub use driver::{ClientDialect, Options, TranslateError, run};
pub use input::{MAX_LINE_BYTES, next_line, parse};
pub use launch::ChildCommand;
pub use protocol::{ClientProtocol, Served};
pub use recording::RecordingError;
