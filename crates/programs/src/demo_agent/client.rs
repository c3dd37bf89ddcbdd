//! The client of the agent: messages to it, and the requests that it has not answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use agent_client_protocol_schema::v1::Error;
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::v2;
use base::shutdown::lock_or_abort;
use wire::acp::{AcpVersion, to_raw};
use wire::jsonrpc::{self, RpcError};

type Outcome = Result<Box<RawValue>, RpcError>;

#[derive(Debug, Default)]
struct Pending {
    last: u64,
    answers: HashMap<u64, oneshot::Sender<Outcome>>,
}

/// The capabilities that the scenes use: the JSON pointer in the capabilities of v1, and the name for `/about`.
pub(super) const CAPABILITIES: [(&str, &str); 11] = [
    (BOOLEAN_OPTIONS, "on-off options"),
    (READ_FILES, "reading files"),
    ("/fs/writeTextFile", "writing files"),
    ("/terminal", "terminals"),
    ("/elicitation/form", "forms"),
    ("/elicitation/url", "links"),
    ("/session/notices", "notices"),
    ("/session/compaction", "compaction"),
    ("/plan", "plans with names"),
    ("/subagents", "subagents"),
    (TERMINAL_SIGN_IN, "sign-in at a terminal"),
];
pub(super) const BOOLEAN_OPTIONS: &str = "/session/configOptions/boolean";
pub(super) const READ_FILES: &str = "/fs/readTextFile";
pub(super) const TERMINAL_SIGN_IN: &str = "/auth/terminal";

/// A cheap handle. All clones use one queue of whole lines, so lines never mix.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) version: AcpVersion,
    /// The capabilities in the form of v1. The agent uses only these.
    capabilities: Arc<Value>,
    lines: mpsc::Sender<Bytes>,
    pending: Arc<Mutex<Pending>>,
}

impl Client {
    pub(super) fn new(lines: mpsc::Sender<Bytes>) -> Self {
        Self {
            version: AcpVersion::V1,
            capabilities: Arc::default(),
            lines,
            pending: Arc::default(),
        }
    }

    /// Applies the params of `initialize`. The version is the highest supported one that is not above the
    /// requested one. Earlier clones do not change.
    pub(super) fn initialize(&mut self, params: &Value) {
        if params["protocolVersion"].as_u64() >= Some(2) {
            let offered = &params["capabilities"];
            self.version = AcpVersion::V2;
            // Clients of v2 serve no files and terminals, and show every kind of update.
            self.capabilities = Arc::new(json!({
                "session": { "configOptions": { "boolean": {} }, "notices": {}, "compaction": {} },
                "elicitation": offered["elicitation"],
                "auth": offered["auth"],
                "plan": {},
                "subagents": {},
                "v2": {},
            }));
        } else {
            self.version = AcpVersion::V1;
            self.capabilities = Arc::new(params["clientCapabilities"].clone());
        }
    }

    pub(super) fn is_v2(&self) -> bool {
        self.version == AcpVersion::V2
    }

    pub(super) fn offers(&self, capability: &str) -> bool {
        !matches!(
            self.capabilities.pointer(capability),
            None | Some(Value::Null | Value::Bool(false))
        )
    }

    pub(super) async fn answer(&self, id: &RawValue, outcome: Result<Value, Error>) {
        let outcome = outcome.map(|result| to_raw(&result));
        let line = jsonrpc::response(id, outcome.as_deref());
        self.send(line).await;
    }

    pub(super) async fn update(&self, session: &str, update: Value) {
        let update = if self.is_v2() {
            v2::update(update)
        } else {
            update
        };
        let params = json!({ "sessionId": session, "update": update });
        self.notify("session/update", params).await;
    }

    pub(super) async fn notify(&self, method: &str, params: Value) {
        self.send(jsonrpc::notification(method, &to_raw(&params)))
            .await;
    }

    /// Sends a request to the client. Dropping the future cancels the request, and a late answer is ignored.
    pub(super) async fn request(&self, method: &str, params: Value) -> Result<Value, Error> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut pending = lock_or_abort(self.pending.lock());
            pending.last += 1;
            let id = pending.last;
            pending.answers.insert(id, sender);
            id
        };
        let _guard = RequestGuard { id, client: self };
        self.send(jsonrpc::request(id, method, &to_raw(&params)))
            .await;
        match answer.await.map_err(|_| Error::internal_error())? {
            Ok(result) => serde_json::from_str(result.get())
                .map_err(|error| Error::invalid_params().data(error.to_string())),
            Err(error) => {
                let code = i32::try_from(error.code).unwrap_or(-32603);
                Err(Error::new(code, error.message))
            }
        }
    }

    /// Handles the client's answer to a request. Ignores late and unknown answers.
    pub(super) fn resolve(&self, id: &RawValue, outcome: Outcome) {
        let Ok(id) = id.get().parse() else { return };
        if let Some(sender) = lock_or_abort(self.pending.lock()).answers.remove(&id) {
            // The turn may have ended, so the receiver may be dropped.
            let _ = sender.send(outcome);
        }
    }

    pub(super) async fn send(&self, line: Bytes) {
        // A closed queue means that stdout is closed and the connection is ending.
        let _ = self.lines.send(line).await;
    }
}

/// Removes the pending request on drop. If it has no answer yet, cancels it at the client.
struct RequestGuard<'a> {
    id: u64,
    client: &'a Client,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let mut pending = lock_or_abort(self.client.pending.lock());
        if pending.answers.remove(&self.id).is_some() {
            let params = to_raw(&json!({ "requestId": self.id }));
            // This is optional: if the queue is full, the client's late answer is ignored.
            let cancel = jsonrpc::notification("$/cancel_request", &params);
            let _ = self.client.lines.try_send(cancel);
        }
    }
}
