//! A client with the early protocol: JSON-RPC with other methods, and prompts that are texts.
//!
//! Reading order: [`state`] with [`permission`], [`requests`] (of the client), [`answers`] (of the agent), [`updates`],
//! [`asked`] (permission requests).

mod answers;
mod asked;
mod permission;
mod requests;
mod state;
mod updates;

pub(in crate::translate) use self::state::EarlyClient;
use crate::acp::{method, method_not_found};
use crate::jsonrpc::{Message, parse_error};
use crate::translate::input::parse;
use crate::translate::protocol::{ClientProtocol, Served};

impl ClientProtocol for EarlyClient {
    fn client_line(&mut self, line: &[u8], served: &mut Served) {
        match parse(line) {
            Ok(Message::Request { id, method, params }) => {
                self.requested(id, &method, &params, served);
            }
            // `initialized` needs no answer.
            Ok(Message::Notification { method, .. }) => {
                tracing::debug!(%method, "notification of the client");
            }
            Ok(Message::Response { id, outcome }) => {
                served
                    .to_agent
                    .extend(self.permissions.answer(&id, outcome));
            }
            Err(error) => self.invalid_line(error, served),
        }
    }

    fn agent_message(&mut self, message: Message, served: &mut Served) {
        match message {
            Message::Response { id, outcome } => self.answered(&id, outcome, served),
            Message::Notification { method, params } => self.notified(&method, &params, served),
            Message::Request { id, method, params }
                if &*method == method::SESSION_REQUEST_PERMISSION =>
            {
                self.permission_requested(&id, &params, served);
            }
            Message::Request { id, method, .. } => {
                let outcome = Err(parse_error(&method_not_found(&method)));
                served.to_agent.push(Message::Response { id, outcome });
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.has_shut_down
    }
}
