//! An agent with the early protocol, as an agent of ACP v1. A process serves one session, because an agent can omit the id of
//! the session.
//!
//! Reading order: [`variation`] (what agents spell differently), [`translator`] (the state, and messages of the client),
//! [`incoming`] with [`responses`] (lines of the agent), [`handshake`], [`prompt`], [`updates`] with [`content`], [`tools`] and
//! [`streamed`], [`permission`].

use bytes::Bytes;
use serde_json::value::RawValue;

use self::translator::Translator;
use self::variation::Opening;
use crate::acp::method;
use crate::jsonrpc::CallId;
use crate::translate::input::MAX_DEPTH;
use crate::translate::protocol::{AgentProtocol, InvalidLine, Launch, Outgoing, Output};
use crate::types::random_uuid;

mod content;
mod handshake;
mod incoming;
mod permission;
mod prompt;
mod responses;
mod streamed;
mod tools;
mod translator;
mod updates;
mod variation;

/// The translation for one agent.
///
/// An agent that ends because of the version in `initialize` is started again with the other spelling.
#[derive(Debug)]
pub(in crate::translate) struct EarlyAgent {
    translator: Translator,
    /// The first `initialize` until the agent has answered it, for another start.
    first: Option<(CallId, Box<RawValue>)>,
    /// The `initialize` for the command that starts again.
    again: Option<(CallId, Box<RawValue>)>,
}

/// The translation for one process. The ids of tool calls stay unique in the transcript of a session with several processes.
fn translator(opening: Opening) -> Translator {
    Translator::new(opening, random_uuid().to_string())
}

impl EarlyAgent {
    pub(in crate::translate) fn new() -> Self {
        Self {
            translator: translator(Opening::Text),
            first: None,
            again: None,
        }
    }
}

impl AgentProtocol for EarlyAgent {
    fn message(&mut self, message: &Outgoing<'_>, out: &mut Vec<Output>) {
        if let Outgoing::Request {
            id,
            method: method::INITIALIZE,
            params,
        } = *message
        {
            self.first = Some((id, params.to_owned()));
        }
        self.translator.encode(message, out);
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<Output>) -> Result<(), InvalidLine> {
        let translated = self.translator.line(line, MAX_DEPTH, out);
        if self.translator.initialize.is_none() {
            self.first = None;
        }
        translated
    }

    fn launched(&mut self, out: &mut Vec<Output>) {
        if let Some((id, params)) = self.again.take() {
            let initialize = Outgoing::Request {
                id,
                method: method::INITIALIZE,
                params: &params,
            };
            self.translator.encode(&initialize, out);
        }
    }

    fn ended(&mut self, _reason: &str, out: &mut Vec<Output>) -> bool {
        self.again = self.first.take();
        if self.again.is_none() {
            return false;
        }
        self.translator = translator(Opening::Number);
        out.push(Output::Launch(Launch::default()));
        true
    }

    fn farewell(&mut self) -> Bytes {
        self.translator.farewell()
    }
}

#[cfg(test)]
mod tests;
