//! A call that belongs to no session. The caller reads the agent's messages until the answer.

use std::time::Duration;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Instant, timeout_at};

use super::batch::Inbound;
use super::connection::Connection;
use super::failure::AgentFailure;
use super::process::Process;
use crate::acp::{self, method, sign_in};
use crate::jsonrpc::{CallId, IncomingId};

impl Connection {
    /// Cancels a call whose answer is not needed. The agent can stop its work on it.
    pub fn abandon(&self, call: CallId) {
        self.forget(call);
        let params = to_raw_value(&json!({ "requestId": call.number() })).expect("a number is JSON");
        // A failed send means that the agent is ending, and its work with it.
        drop(self.notify(method::CANCEL_REQUEST, &params));
    }
}

/// A call that is abandoned if it is dropped before its answer.
struct OpenCall<'a> {
    connection: &'a Connection,
    call: Option<CallId>,
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.connection.abandon(call);
        }
    }
}

impl Process {
    /// Calls a method and waits for its answer. Rejects the agent's requests and ignores its notifications
    /// meanwhile. Dropping the future cancels the call at the agent.
    pub async fn call(
        &mut self,
        method: &str,
        params: &RawValue,
        limit: Duration,
    ) -> Result<Box<RawValue>, AgentFailure> {
        let deadline = Instant::now() + limit;
        let connection = self.connection.clone();
        if method == self.dialect().login_method() {
            connection.add_secrets(sign_in::secrets_of(params));
        }
        let Ok(call) = connection.call(method, params) else {
            return Err(AgentFailure::Exited(self.exit().await));
        };
        let mut open = OpenCall { connection: &connection, call: Some(call) };
        loop {
            let Ok(batch) = timeout_at(deadline, self.batches.recv()).await else {
                return Err(AgentFailure::Timeout { method: method.to_owned() });
            };
            let Some(batch) = batch else {
                open.call = None;
                return Err(AgentFailure::Exited(self.exit().await));
            };
            let mut answer = None;
            for message in batch.messages {
                match message {
                    Inbound::Response { call: answered, outcome } if answered == call => {
                        answer = Some(outcome);
                    }
                    Inbound::Request { id, method, .. } => self.reject_request(id, &method),
                    Inbound::Update(_)
                    | Inbound::Notification { .. }
                    | Inbound::Response { .. }
                    | Inbound::InvalidLine { .. } => {}
                }
            }
            if let Some(outcome) = answer {
                open.call = None;
                return outcome
                    .map_err(|error| AgentFailure::from_rpc_error(error, &self.spec, &self.initialized));
            }
        }
    }

    /// Rejects a request of the agent, because no client is connected to this call.
    fn reject_request(&self, id: IncomingId, method: &str) {
        let raw = |value: serde_json::Value| to_raw_value(&value).expect("plain JSON serializes");
        match method {
            "elicitation/create" => self.answer(id, Ok(&raw(json!({ "action": "cancel" })))),
            method::SESSION_REQUEST_PERMISSION => self.answer(id, Ok(&acp::cancelled())),
            _ => self.answer(id, Err(&acp::method_not_found(method))),
        }
    }
}
