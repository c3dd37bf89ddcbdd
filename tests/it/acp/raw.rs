//! A client of `/acp` over HTTP that shows ids and statuses.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::support::Gateway;
use crate::support::gateway::KEY;

/// The maximum wait for a message.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection.
pub(crate) struct Acp<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) id: String,
    key: String,
    next: u64,
}

/// An open stream of messages.
pub(crate) struct Messages {
    response: Response,
    buffer: String,
    /// The id of the last message.
    pub(super) last: String,
}

pub(super) fn initialize(id: u64, params: &Value) -> Value {
    let mut full = json!({ "protocolVersion": 1, "clientCapabilities": {} });
    for (name, value) in params.as_object().expect("an object") {
        full[name] = value.clone();
    }
    json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": full })
}

pub(super) fn request(gateway: &Gateway, method: Method, key: &str) -> RequestBuilder {
    gateway
        .http
        .request(method, format!("{}/acp", gateway.url))
        .bearer_auth(key)
}

impl<'a> Acp<'a> {
    pub(super) async fn open(gateway: &'a Gateway) -> Self {
        Self::open_with(gateway, KEY, &json!({})).await
    }

    pub(crate) async fn open_with(gateway: &'a Gateway, key: &str, params: &Value) -> Self {
        let response = request(gateway, Method::POST, key)
            .json(&initialize(0, params))
            .send()
            .await;
        let response = response.expect("a response");
        assert_eq!(response.status(), StatusCode::OK);
        let id = response.headers()["acp-connection-id"]
            .to_str()
            .expect("ASCII")
            .to_owned();
        let body: Value = response.json().await.expect("JSON");
        assert_eq!(
            (&body["id"], &body["result"]["protocolVersion"]),
            (&json!(0), &json!(1)),
            "{body}"
        );
        Self {
            gateway,
            id,
            key: key.to_owned(),
            next: 1,
        }
    }

    pub(super) fn head(&self, method: Method) -> RequestBuilder {
        request(self.gateway, method, &self.key).header("acp-connection-id", &self.id)
    }

    /// Sends a message, which must be accepted.
    pub(super) async fn post(&self, message: &Value) {
        let response = self
            .head(Method::POST)
            .json(message)
            .send()
            .await
            .expect("a response");
        assert_eq!(response.status(), StatusCode::ACCEPTED, "{message}");
        assert_eq!(response.bytes().await.expect("a body"), "", "{message}");
    }

    /// Sends a request. Returns its id.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        id
    }

    /// The stream of the connection, or of a session.
    pub(crate) async fn stream(&self, session: Option<&str>, last: Option<&str>) -> Messages {
        let mut get = self.head(Method::GET).header("accept", "text/event-stream");
        if let Some(session) = session {
            get = get.header("acp-session-id", session);
        }
        if let Some(last) = last {
            get = get.header("last-event-id", last);
        }
        let response = get.send().await.expect("a response");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Messages {
            response,
            buffer: String::new(),
            last: String::new(),
        }
    }

    /// A new session, with its stream.
    pub(super) async fn session(&mut self) -> (String, Messages) {
        let mut stream = self.stream(None, None).await;
        let id = self
            .send("session/new", json!({ "cwd": "", "mcpServers": [] }))
            .await;
        let response = stream.response(id).await;
        let session = response["result"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{response}"))
            .to_owned();
        let messages = self.stream(Some(&session), None).await;
        (session, messages)
    }

    pub(super) async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.send(
            "session/prompt",
            json!({ "sessionId": session, "prompt": prompt }),
        )
        .await
    }

    /// Answers a request of the agent with the option `allow`.
    pub(super) async fn allow(&self, request: &Value) {
        let result = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
        self.post(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
            .await;
    }
}

impl Messages {
    /// The next message. Fails if the stream ends or stays silent.
    pub(super) async fn next(&mut self) -> Value {
        self.try_next().await.expect("the stream is open")
    }

    /// The next message. `None` at the end of the stream.
    pub(super) async fn try_next(&mut self) -> Option<Value> {
        // Comments of the stream do not extend the wait.
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let block = block.to_owned();
                let rest = rest.to_owned();
                self.buffer = rest;
                let mut data = None;
                for line in block.lines() {
                    match line.split_once(": ") {
                        Some(("id", id)) => id.clone_into(&mut self.last),
                        Some(("data", text)) => {
                            data = Some(serde_json::from_str(text).expect("JSON"));
                        }
                        _ => assert_eq!(line, ":", "a comment"),
                    }
                }
                if data.is_some() {
                    return data;
                }
                continue;
            }
            let chunk = timeout_at(deadline, self.response.chunk())
                .await
                .expect("a message in time");
            let chunk = chunk.ok()??;
            assert!(chunk.is_ascii(), "some clients decode each read separately");
            self.buffer
                .push_str(std::str::from_utf8(&chunk).expect("ASCII"));
        }
    }

    /// Reads until a message fits, and returns all read messages.
    pub(super) async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.next().await);
            if messages.last().is_some_and(&fits) {
                return messages;
            }
        }
    }

    /// Reads until the response to this request, and returns it.
    pub(crate) async fn response(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id)
            .await
            .pop()
            .expect("the response")
    }

    /// Reads until a request of the agent, and returns it.
    pub(super) async fn request(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method && !message["id"].is_null())
            .await
            .pop()
            .expect("it")
    }
}

/// The text of each `agent_message_chunk`.
pub(super) fn chunks(messages: &[Value]) -> Vec<String> {
    let updates = messages.iter().map(|message| &message["params"]["update"]);
    let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks
        .map(|chunk| {
            chunk["content"]["text"]
                .as_str()
                .expect("a text")
                .to_owned()
        })
        .collect()
}
