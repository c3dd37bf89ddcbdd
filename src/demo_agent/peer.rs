//! The client from the agent's view: answers, notifications, and requests that wait for an answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, Error, RequestId, SessionId, SessionNotification, SessionUpdate,
};
use agent_client_protocol_schema::v2;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{mpsc, oneshot};

use super::v2::update as convert;
use super::version::Version;
use crate::shutdown::lock_or_abort;

type Outcome = Result<Box<RawValue>, Error>;

/// A cheap handle. All clones use one queue of whole lines, so lines never mix.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    version: Version,
    lines: mpsc::Sender<Vec<u8>>,
    waiting: Arc<Mutex<PendingRequests>>,
}

/// The agent's requests without an answer. A session has at most one.
#[derive(Debug, Default)]
struct PendingRequests {
    last: i64,
    answers: HashMap<i64, oneshot::Sender<Outcome>>,
}

#[derive(Serialize)]
struct Answer<'a, T> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(flatten)]
    outcome: T,
}

#[derive(Serialize)]
struct Success<T> {
    result: T,
}

#[derive(Serialize)]
struct Failure {
    error: Error,
}

#[derive(Serialize)]
struct Call<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    method: &'a str,
    params: P,
}

impl Peer {
    pub(super) fn new(lines: mpsc::Sender<Vec<u8>>) -> Self {
        Self { version: Version::default(), lines, waiting: Arc::default() }
    }

    /// Sets the version for messages to the client. Earlier clones keep their version.
    pub(super) fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) async fn answer<T: Serialize>(&self, id: &RawValue, outcome: Result<T, Error>) {
        match outcome {
            Ok(result) => self.send(&Answer { jsonrpc: "2.0", id, outcome: Success { result } }).await,
            Err(error) => self.send(&Answer { jsonrpc: "2.0", id, outcome: Failure { error } }).await,
        }
    }

    /// Sends an update in the connection's version.
    pub(super) async fn update(&self, session: &SessionId, update: SessionUpdate) {
        match self.version {
            Version::V1 => {
                self.notify("session/update", SessionNotification::new(session.clone(), update)).await;
            }
            Version::V2 => self.update_v2(session, convert(update)).await,
        }
    }

    /// Sends an update of v2.
    pub(super) async fn update_v2(&self, session: &SessionId, update: v2::SessionUpdate) {
        let params = v2::UpdateSessionNotification::new(session.0.clone(), update);
        self.notify("session/update", params).await;
    }

    /// Sends a request to the client. Dropping the future cancels the request, and a late answer is ignored.
    pub(super) async fn request<P: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        params: P,
    ) -> Result<R, Error> {
        let (sender, answer) = oneshot::channel();
        let question = {
            let mut waiting = lock_or_abort(self.waiting.lock());
            waiting.last += 1;
            let id = waiting.last;
            waiting.answers.insert(id, sender);
            PendingRequest { id, waiting: Arc::clone(&self.waiting), lines: self.lines.clone() }
        };
        self.send(&Call { jsonrpc: "2.0", id: Some(question.id), method, params }).await;
        let result = answer.await.map_err(|_| Error::internal_error())??;
        serde_json::from_str(result.get()).map_err(|error| Error::invalid_params().data(error.to_string()))
    }

    /// Handles the client's answer to a request. Ignores late and unknown answers.
    pub(super) fn resolve(&self, id: &RawValue, outcome: Result<&RawValue, Error>) {
        let Ok(id) = id.get().parse::<i64>() else { return };
        let waiting = lock_or_abort(self.waiting.lock()).answers.remove(&id);
        if let Some(sender) = waiting {
            // The turn may have ended meanwhile, so the receiver may be dropped.
            drop(sender.send(outcome.map(ToOwned::to_owned)));
        }
    }

    pub(super) async fn notify(&self, method: &str, params: impl Serialize) {
        self.send(&Call { jsonrpc: "2.0", id: None, method, params }).await;
    }

    async fn send(&self, message: &impl Serialize) {
        // A closed queue means that stdout is closed and the connection is ending.
        drop(self.lines.send(line(message)).await);
    }
}

fn line(message: &impl Serialize) -> Vec<u8> {
    let line = to_raw_value(message).expect("our own messages are plain data with string keys");
    let mut line = Box::<str>::from(line).into_string().into_bytes();
    line.push(b'\n');
    line
}

/// Removes the pending request on drop. If it has no answer yet, cancels it at the client.
struct PendingRequest {
    id: i64,
    waiting: Arc<Mutex<PendingRequests>>,
    lines: mpsc::Sender<Vec<u8>>,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let waiting = lock_or_abort(self.waiting.lock()).answers.remove(&self.id);
        if waiting.is_some() {
            let params = CancelRequestNotification::new(RequestId::Number(self.id));
            let call = Call { jsonrpc: "2.0", id: None, method: "$/cancel_request", params };
            // This is optional: if the queue is full, the client's late answer is ignored.
            drop(self.lines.try_send(line(&call)));
        }
    }
}
