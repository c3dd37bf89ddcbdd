//! Calls that belong to no session. The caller reads the agent's messages until the answer.

use std::time::Duration;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::batch::{Batch, Inbound};
use super::connection::Connection;
use super::failure::AgentFailure;
use super::process::Process;
use super::transport::Transport;
use crate::acp::{self, Outcome, RequestKind, method, sign_in};
use crate::jsonrpc::{CallId, RpcError};

impl Connection {
    /// Sends `$/cancel_request` for a call whose answer is not needed. The agent can stop its work on it.
    pub fn cancel(&self, call: CallId) {
        let params =
            to_raw_value(&json!({ "requestId": call.number() })).expect("a number is JSON");
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
            self.connection.forget(call);
            self.connection.cancel(call);
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
        if method == self.version().login_method() {
            connection.add_secrets(sign_in::secrets_of(params));
        }
        let Ok(call) = connection.call(method, params) else {
            return Err(AgentFailure::from(self.exit().await));
        };
        let mut open = OpenCall {
            connection: &connection,
            call: Some(call),
        };
        let answer = await_answer(&connection, &mut self.batches, &*self.transport, call);
        let Ok(answer) = timeout_at(deadline, answer).await else {
            return Err(AgentFailure::Timeout {
                method: method.to_owned(),
                output: connection.invalid_output(),
            });
        };
        open.call = None;
        match answer {
            Some(outcome) => outcome.map_err(|error| {
                AgentFailure::from_rpc_error(error, &self.spec, &self.initialized)
            }),
            None => Err(AgentFailure::from(self.exit().await)),
        }
    }
}

/// Reads the messages of an agent without a client until the answer to `call`. Rejects the agent's requests and
/// ignores its notifications. `None`: the agent ended without an answer.
pub(super) async fn await_answer(
    connection: &Connection,
    batches: &mut mpsc::Receiver<Batch>,
    transport: &dyn Transport,
    call: CallId,
) -> Option<Result<Box<RawValue>, RpcError>> {
    while let Some(batch) = batches.recv().await {
        let offset = batch.offset;
        let mut answer = None;
        for message in batch.messages {
            match message {
                Inbound::Response {
                    call: answered,
                    outcome,
                } if answered == call => answer = Some(outcome),
                Inbound::Request { id, method, .. } => {
                    let reply = reply_without_client(&method);
                    // An agent that does not read its answers would wait for ever.
                    if connection
                        .answer(id, reply.as_deref().map_err(|error| &**error), ())
                        .is_err()
                    {
                        transport.begin_close();
                    }
                }
                Inbound::Update(_)
                | Inbound::Notification { .. }
                | Inbound::Response { .. }
                | Inbound::InvalidLine { .. } => {}
            }
        }
        // The messages have no effect on a log.
        if let Some(offset) = offset {
            transport.acknowledge(offset);
        }
        if answer.is_some() {
            return answer;
        }
    }
    None
}

/// The answer to a request of the agent that no client can answer.
fn reply_without_client(method: &str) -> Outcome {
    let kind = RequestKind::from_method(method);
    if kind.is_question() {
        kind.cancelled_reply()
    } else {
        Err(acp::method_not_found(method))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::transport::memory::{self, MemoryAgent};
    use crate::agent::{AgentSpec, ProcessKey};
    use crate::types::Tenant;

    async fn connect() -> (Process, MemoryAgent) {
        let spec = AgentSpec::removed("a".parse().unwrap());
        let key = ProcessKey::new(
            &spec,
            Tenant::default(),
            spec.client_capabilities(),
            Vec::new(),
            None,
        );
        memory::connect(&Arc::new(spec), &key).await
    }

    #[tokio::test]
    async fn requests_of_the_agent_are_rejected_during_a_call() {
        let (mut process, mut agent) = connect().await;
        let params = RawValue::from_string("{}".to_owned()).unwrap();
        let answer = async {
            assert_eq!(
                agent.next_line().await,
                r#"{"jsonrpc":"2.0","id":2,"method":"m","params":{}}"#
            );
            for method in ["session/request_permission", "elicitation/create", "x"] {
                agent
                    .send(&format!("{{\"id\":0,\"method\":\"{method}\"}}\n"))
                    .await;
            }
            agent
                .send("no json\n{\"id\":9,\"result\":{}}\n{\"id\":2,\"result\":7}\n")
                .await;
            let mut lines = Vec::new();
            for _ in 0..3 {
                lines.push(agent.next_line().await);
            }
            lines
        };
        let (result, lines) =
            tokio::join!(process.call("m", &params, Duration::from_secs(10)), answer);
        assert_eq!(result.unwrap().get(), "7");
        assert!(
            lines[0].contains(r#""result":{"outcome":{"outcome":"cancelled"}}"#),
            "{lines:?}"
        );
        assert!(
            lines[1].contains(r#""result":{"action":"cancel"}"#) && lines[2].contains("-32601"),
            "{lines:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn late_call_is_cancelled_at_the_agent() {
        let (mut process, mut agent) = connect().await;
        let params = RawValue::from_string("{}".to_owned()).unwrap();
        let failure = process
            .call("m", &params, Duration::from_secs(1))
            .await
            .unwrap_err();
        assert!(matches!(failure, AgentFailure::Timeout { .. }), "{failure}");
        agent.next_line().await;
        assert!(
            agent
                .next_line()
                .await
                .contains(r#""method":"$/cancel_request","params":{"requestId":2}"#)
        );
        drop(agent);
        let failure = process
            .call("m", &params, Duration::from_secs(1))
            .await
            .unwrap_err();
        assert!(matches!(failure, AgentFailure::Exited(_)), "{failure}");
    }
}
