//! The half of a translation that drives the agent.
//!
//! The client's requests get ids of the translation, so that a protocol may send requests of its own.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::value::RawValue;

use super::early_acp::EarlyAgent;
use super::input::MAX_DEPTH;
use super::message::{error, to_raw};
use super::protocol::{AgentProtocol, InvalidLine, Outgoing, Output};
use super::stream_json::StreamJson;
use crate::acp::{RawObject, error_code, method};
use crate::jsonrpc::{self, CallId, Message};
use crate::types::AgentDialect;

/// The maximum number of calls without an answer.
const MAX_CALLS: usize = 1024;

/// ACP: messages pass unchanged.
#[derive(Debug)]
struct Acp;

impl AgentProtocol for Acp {
    fn message(&mut self, message: &Outgoing<'_>, out: &mut Vec<Output>) {
        out.push(Output::ToAgent(message.line()));
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<Output>) -> Result<(), InvalidLine> {
        out.push(Output::ToClient(jsonrpc::parse(line, MAX_DEPTH)?));
        Ok(())
    }
}

/// The state of one connection to an agent.
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
            AgentDialect::Acp => Box::new(Acp),
            AgentDialect::EarlyAcp => Box::new(EarlyAgent::new()),
            AgentDialect::StreamJson => Box::new(StreamJson::new(cwd, resume)),
        };
        Self {
            protocol,
            last_call: 0,
            calls: HashMap::new(),
        }
    }

    pub(super) fn open(&mut self) -> Vec<Output> {
        self.protocol.open()
    }

    /// Translates a message of the client.
    pub(super) fn message(&mut self, message: Message) -> Vec<Output> {
        let mut out = Vec::new();
        match message {
            Message::Request { id, .. } if self.calls.len() >= MAX_CALLS => {
                let error = error(error_code::INTERNAL, "too many requests have no answer");
                let outcome = Err(error);
                return vec![Output::ToClient(Message::Response { id, outcome })];
            }
            Message::Request { id, method, params } => {
                self.last_call += 1;
                self.calls.insert(self.last_call, id);
                let request = Outgoing::Request {
                    id: CallId::new(self.last_call),
                    method: &method,
                    params: &params,
                };
                self.protocol.message(&request, &mut out);
            }
            Message::Notification { method, params } if &*method == method::CANCEL_REQUEST => {
                let wanted = RawObject::parse(&params).and_then(|params| params.get("requestId"));
                let call = self
                    .calls
                    .iter()
                    .find(|(_, id)| wanted.is_some_and(|wanted| wanted.get() == id.get()));
                if let Some((call, _)) = call {
                    let params = to_raw(&serde_json::json!({ "requestId": call }));
                    let cancel = Outgoing::Notification {
                        method: &method,
                        params: &params,
                    };
                    self.protocol.message(&cancel, &mut out);
                }
            }
            Message::Notification { method, params } => {
                let notification = Outgoing::Notification {
                    method: &method,
                    params: &params,
                };
                self.protocol.message(&notification, &mut out);
            }
            Message::Response { id, outcome } => {
                let outcome = outcome.map_err(|error| to_raw(&error));
                let answer = Outgoing::Answer {
                    id: &id,
                    outcome: outcome.as_deref().map_err(|error| &**error),
                };
                self.protocol.message(&answer, &mut out);
            }
        }
        self.for_client(out)
    }

    /// Translates a line of the agent. The error is that of a line without a meaning in its protocol.
    pub(super) fn line(&mut self, line: &[u8]) -> (Vec<Output>, Result<(), InvalidLine>) {
        let mut out = Vec::new();
        let translated = self.protocol.line(line, &mut out);
        (self.for_client(out), translated)
    }

    pub(super) fn launched(&mut self) -> Vec<Output> {
        let mut out = Vec::new();
        self.protocol.launched(&mut out);
        self.for_client(out)
    }

    /// The command has ended or could not be started. `None`: the translation ends with it.
    pub(super) fn ended(&mut self, reason: &str) -> Option<Vec<Output>> {
        let mut out = Vec::new();
        let goes_on = self.protocol.ended(reason, &mut out);
        goes_on.then(|| self.for_client(out))
    }

    /// Gives the answers to calls the ids of the client.
    fn for_client(&mut self, out: Vec<Output>) -> Vec<Output> {
        let answered = |output| match output {
            Output::ToClient(Message::Response { id, outcome }) => {
                let call = id.get().parse().ok();
                let Some(id) = call.and_then(|call: u64| self.calls.remove(&call)) else {
                    tracing::warn!(%id, "the agent answered an unknown request");
                    return None;
                };
                Some(Output::ToClient(Message::Response { id, outcome }))
            }
            output => Some(output),
        };
        out.into_iter().filter_map(answered).collect()
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
