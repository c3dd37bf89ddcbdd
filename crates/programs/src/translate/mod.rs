//! `acp-gateway translate`: runs an agent that speaks another protocol, and serves it on stdin and stdout as an agent of ACP.
//!
//! This is how the gateway drives agents that do not speak ACP: the configured command runs behind a translation, in the same
//! supervisor and sandbox. A translation has two halves with ACP between them: one drives the agent, and one serves the client,
//! which has ACP or an early protocol. The module must not know a gateway.
//!
//! Reading order: [`protocol`] (the interfaces of the halves, and clients with ACP), [`message`], [`agent`], [`stream_json`], [`early_acp`],
//! [`driver`] (the loop, the command, and recordings).

mod agent;
mod driver;
mod early_acp;
mod message;
mod protocol;
mod stream_json;

pub use self::driver::{ChildCommand, ClientDialect, Options, RecordingError, TranslateError, run};
pub(crate) use self::protocol::receive;
pub use self::protocol::{ClientProtocol, Translated};
