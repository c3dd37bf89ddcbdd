//! The dialect of agents that were written before version 1 of ACP, or from early descriptions of it.
//!
//! The module translates between the lines of such an agent and messages of ACP v1. It has no I/O and no time. A process
//! serves one session, because an agent can omit the id of the session.
//!
//! Reading order: [`names`] and [`variation`] (what agents spell differently), [`translator`] (the state, and messages of
//! the gateway), [`incoming`] with [`responses`] (lines of the agent), [`handshake`], [`prompt`], [`updates`] with
//! [`content`], [`tools`] and [`streamed`], [`permission`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use self::translator::Translator;
use super::dialect::{Decoded, Dialect, Encoded, Line, Outgoing};
use crate::acp::AcpVersion;
use crate::types::random_uuid;

mod content;
mod handshake;
mod incoming;
pub mod names;
mod permission;
mod prompt;
mod responses;
mod streamed;
mod tools;
mod translator;
mod updates;
mod variation;

pub(super) use variation::Opening;

/// The translation for one process.
#[derive(Debug)]
pub(super) struct EarlyAcp(Mutex<Translator>);

impl EarlyAcp {
    /// `opening` is the spelling of the first `initialize`.
    pub(super) fn new(opening: Opening) -> Self {
        // The ids of tool calls stay unique in the transcript of a session with several processes.
        Self(Mutex::new(Translator::new(
            opening,
            random_uuid().to_string(),
        )))
    }

    /// A panic while a line is decoded ends the reader, and with it this process only. Until then, the state still encodes.
    fn translator(&self) -> MutexGuard<'_, Translator> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dialect for EarlyAcp {
    fn version(&self) -> AcpVersion {
        AcpVersion::V1
    }

    fn has_replies(&self) -> bool {
        true
    }

    fn encode(&self, message: Outgoing<'_>) -> Encoded {
        self.translator().encode(&message)
    }

    fn farewell(&self) -> Bytes {
        self.translator().farewell()
    }

    fn decode(&self, line: Line<'_>, messages: &mut Vec<Decoded>) {
        let bytes = &line.block[line.range.clone()];
        if let Err(error) = self.translator().line(bytes, line.max_json_depth, messages) {
            tracing::debug!(%error, bytes = line.range.len(), "invalid line of an agent with an early protocol");
            messages.push(Decoded::Invalid);
        }
    }
}

#[cfg(test)]
mod tests;
