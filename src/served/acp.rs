//! ACP for a client: messages pass unchanged.

use super::dialect::{Served, ServedDialect};
use super::input::parse;
use super::message::{answer_to_invalid, encode};
use crate::jsonrpc::{Message, RpcError};

#[derive(Debug)]
pub(super) struct Acp;

impl ServedDialect for Acp {
    fn client_line(&mut self, line: &[u8], served: &mut Served) {
        match parse(line) {
            Ok(message) => served.to_agent.push(message),
            Err(error) => self.invalid_line(error, served),
        }
    }

    fn invalid_line(&mut self, error: RpcError, served: &mut Served) {
        served.to_client.push(answer_to_invalid(error));
    }

    fn agent_message(&mut self, message: Message, served: &mut Served) {
        served.to_client.push(encode(&message));
    }
}
