//! `acp-gateway translate`: runs an agent and serves it to a client that speaks another protocol, on stdin and stdout.
//!
//! A translation has two halves with ACP between them: a dialect of `agent` drives the agent, and a dialect of `served`
//! serves the client. The module must not know a gateway.
//!
//! Reading order: [`serve`], [`agent_side`] and [`translator`] (the decisions, without I/O), [`launch`] (the child), [`recording`],
//! [`driver`] (the loop), [`replay`] with [`pairing`].

mod agent_side;
mod driver;
mod launch;
mod pairing;
mod recording;
mod replay;
mod serve;
mod translator;

pub use driver::{Options, TranslateError, run};
pub use launch::ChildCommand;
pub use recording::RecordingError;
pub use replay::{ReplayError, replay};
