//! The half of a translation that drives the agent.
//!
//! The client's requests get ids of the translation, so that a protocol may send requests of its own.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::value::RawValue;

use super::early_acp::EarlyAgent;
use super::message::LineError;
use super::protocol::{AgentProtocol, Output};
use super::stream_json::StreamJson;
use crate::stdio::MAX_DEPTH;
use base::types::AgentDialect;
use wire::acp::{RawObject, error_code, method, to_raw};
use wire::jsonrpc::{self, Message, RpcError};

const MAX_CALLS: usize = 1024;

/// An agent with ACP: messages pass unchanged.
#[derive(Debug, Default)]
struct AcpAgent(Vec<Output>);

impl AgentProtocol for AcpAgent {
    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.0)
    }

    fn message(&mut self, message: Message) {
        self.0.push(Output::ToAgent(message.line()));
    }

    fn line(&mut self, line: &[u8]) -> Result<(), LineError> {
        self.0.push(Output::ToClient(message_of(line, MAX_DEPTH)?));
        Ok(())
    }
}

pub(super) fn message_of(line: &[u8], max_depth: usize) -> Result<Message, LineError> {
    jsonrpc::parse(line, max_depth).map_err(|error| LineError::Envelope(error.to_string()))
}

#[derive(Debug)]
pub(super) struct AgentSide {
    pub(super) protocol: Box<dyn AgentProtocol>,
    last_call: u64,
    /// The ids of the client's requests, by those of the translation.
    calls: HashMap<u64, Box<RawValue>>,
}

impl AgentSide {
    /// `cwd` is the working directory of this program. `resume` is the session for which the agent starts.
    pub(super) fn new(dialect: AgentDialect, cwd: PathBuf, resume: Option<String>) -> Self {
        let protocol: Box<dyn AgentProtocol> = match dialect {
            AgentDialect::Acp => Box::new(AcpAgent::default()),
            AgentDialect::EarlyAcp => Box::new(EarlyAgent::new()),
            AgentDialect::StreamJson => Box::new(StreamJson::new(cwd, resume)),
        };
        Self {
            protocol,
            last_call: 0,
            calls: HashMap::new(),
        }
    }

    pub(super) fn message(&mut self, mut message: Message) -> Vec<Output> {
        match &mut message {
            Message::Request { id, .. } if self.calls.len() >= MAX_CALLS => {
                let detail = "too many requests have no answer";
                return vec![Output::ToClient(Message::Response {
                    id: id.clone(),
                    outcome: Err(RpcError::new(error_code::INTERNAL, detail)),
                })];
            }
            Message::Request { id, .. } => {
                self.last_call += 1;
                let own = std::mem::replace(id, to_raw(&self.last_call));
                self.calls.insert(self.last_call, own);
            }
            Message::Notification { method, params } if **method == *method::CANCEL_REQUEST => {
                let params_object = RawObject::parse(params);
                let wanted = params_object.and_then(|params| params.get("requestId"));
                let is_wanted = |id: &RawValue| wanted.is_some_and(|own| own.get() == id.get());
                let mut calls = self.calls.iter();
                let Some((call, _)) = calls.find(|(_, id)| is_wanted(id)) else {
                    return Vec::new();
                };
                *params = to_raw(&serde_json::json!({ "requestId": call }));
            }
            Message::Notification { .. } | Message::Response { .. } => {}
        }
        self.protocol.message(message);
        self.outputs()
    }

    /// Translates a line of the agent. Fails if the line has no meaning in the agent's protocol.
    pub(super) fn line(&mut self, line: &[u8]) -> (Vec<Output>, Result<(), LineError>) {
        let translated = self.protocol.line(line);
        (self.outputs(), translated)
    }

    /// The effects of the protocol. Answers to calls have the ids of the client.
    pub(super) fn outputs(&mut self) -> Vec<Output> {
        let mut outputs = self.protocol.outputs();
        outputs.retain_mut(|output| {
            let Output::ToClient(Message::Response { id, .. }) = output else {
                return true;
            };
            let call = id.get().parse().ok();
            let Some(own) = call.and_then(|call: u64| self.calls.remove(&call)) else {
                tracing::warn!(%id, "the agent answered an unknown request");
                return false;
            };
            *id = own;
            true
        });
        outputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_above_the_limit_are_answered_with_their_own_ids() {
        let mut side = AgentSide::new(AgentDialect::Acp, PathBuf::new(), None);
        let request = |id: usize| Message::Request {
            id: to_raw(&id),
            method: "m".into(),
            params: RawValue::NULL.to_owned(),
        };
        for id in 0..MAX_CALLS {
            assert!(matches!(
                side.message(request(id))[..],
                [Output::ToAgent(_)]
            ));
        }
        let rejected = side.message(request(MAX_CALLS));
        let [
            Output::ToClient(Message::Response {
                id,
                outcome: Err(_),
            }),
        ] = &rejected[..]
        else {
            panic!("{rejected:?}");
        };
        assert_eq!(id.get(), MAX_CALLS.to_string());
        let (answered, line) = side.line(br#"{"id":1,"result":{}}"#);
        line.unwrap();
        let [Output::ToClient(Message::Response { id, .. })] = &answered[..] else {
            panic!("{answered:?}");
        };
        assert_eq!(id.get(), "0");
        assert!(matches!(
            side.message(request(MAX_CALLS))[..],
            [Output::ToAgent(_)]
        ));
    }
}
