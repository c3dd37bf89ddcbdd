//! An agent with the early protocol, as an agent of ACP v1. A process serves one session, because an agent can omit the id of
//! the session.
//!
//! Reading order: [`translator`] (what agents spell differently, the state, and messages of the client), [`incoming`] (lines of
//! the agent, and the answers to calls), [`updates`] with [`tools`].

mod content;
mod incoming;
mod tools;
mod translator;
mod updates;

use self::translator::{Opening, Translator};
use crate::stdio::MAX_DEPTH;
use crate::translate::message::LineError;
use crate::translate::protocol::{AgentProtocol, Launch, Output};
use base::types::random_uuid;
use bytes::Bytes;
use wire::acp::method;
use wire::jsonrpc::Message;

/// The translation for one agent.
///
/// An agent that ends because of the version in `initialize` is started again with the other spelling.
#[derive(Debug)]
pub(in crate::translate) struct EarlyAgent {
    translator: Translator,
    /// The first `initialize` until the agent has answered it, for another start.
    first: Option<Message>,
    /// The `initialize` for the command that starts again.
    again: Option<Message>,
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
    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.translator.out)
    }

    fn message(&mut self, message: Message) {
        self.translator.encode(&message);
        if matches!(&message, Message::Request { method, .. } if **method == *method::INITIALIZE) {
            self.first = Some(message);
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), LineError> {
        let translated = self.translator.line(line, MAX_DEPTH);
        if self.translator.initialize.is_none() {
            self.first = None;
        }
        translated
    }

    fn launched(&mut self) {
        if let Some(initialize) = self.again.take() {
            self.translator.encode(&initialize);
        }
    }

    fn ended(&mut self, _reason: &str) -> bool {
        self.again = self.first.take();
        if self.again.is_none() {
            return false;
        }
        self.translator = translator(Opening::Number);
        self.translator.out.push(Output::Launch(Launch::default()));
        true
    }

    fn farewell(&mut self) -> Bytes {
        self.translator.farewell()
    }
}

#[cfg(test)]
mod tests;
