//! A model of no intelligence: enough of four model APIs on loopback for real agents to work with.
//!
//! The model answers the last message of its user. `call NAME {..}` becomes a call of that tool, `slowly` a text without
//! an end, `big BYTES` a text of that size, and `fail STATUS REASON` an error of the API. Anthropic's model thinks before it
//! answers a text that begins with `think`. A tool's result is repeated. Every other text is repeated with
//! all earlier texts of the user: the answer proves which history the agent sent.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use serde_json::{Value, json};
use tokio_stream::StreamExt;

mod anthropic;
mod chat;
mod gemini;
mod responses;

/// A model that listens until the test is over.
pub(crate) struct Model {
    pub(super) url: String,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Model {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// One message of a conversation, as far as the answer depends on it.
enum Message {
    /// The texts of the user, without the texts that the agent added.
    User(Vec<String>),
    ToolResult(String),
}

/// The answer of the model.
enum Reply {
    Text(String),
    Call { name: String, input: String },
    Slowly,
    Fail { status: u16, reason: String },
}

impl Model {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test owns the server and ends it"
    )]
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has ports");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let router = Router::new()
            .route("/v1/messages", post(anthropic::messages))
            .route("/v1/chat/completions", post(chat::completions))
            .route("/v1/responses", post(responses::responses))
            .route("/v1beta/models/{call}", post(gemini::generate));
        let server =
            tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, server }
    }
}

/// Whether the agent added this text to the conversation: a reminder, its environment, or a notice of an abort.
fn added_by_agent(text: &str) -> bool {
    const ADDED: [&str; 4] = [
        "<system-reminder>",
        "<session_context>",
        "<environment_context>",
        "<turn_aborted>",
    ];
    ADDED.iter().any(|tag| text.trim_start().starts_with(tag))
}

/// The texts of the user in the content of a message.
fn texts(content: &Value) -> Vec<String> {
    match content {
        Value::String(text) => Some(text.clone())
            .filter(|text| !added_by_agent(text))
            .into_iter()
            .collect(),
        Value::Array(blocks) => blocks.iter().filter_map(text).collect(),
        _ => Vec::new(),
    }
}

/// The text of a block. An image of Anthropic's API is named by its type and size.
fn text(block: &Value) -> Option<String> {
    if block["type"] == "image" {
        let source = &block["source"];
        let size = source["data"].as_str().map_or(0, str::len);
        return Some(format!(
            "{} of {size} characters",
            source["media_type"].as_str().unwrap_or("image")
        ));
    }
    block["text"]
        .as_str()
        .filter(|text| !added_by_agent(text))
        .map(str::to_owned)
}

fn reply(conversation: &[Message]) -> Reply {
    if let Some(Message::ToolResult(result)) = conversation.last() {
        return Reply::Text(format!("The tool says: {}", result.trim()));
    }
    let users = conversation.iter().filter_map(|message| match message {
        Message::User(texts) => Some(texts),
        Message::ToolResult(_) => None,
    });
    let texts: Vec<&String> = users.flatten().collect();
    let (last, before) = texts.split_last().expect("the user said something");
    let mut words = last.splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some("call"), Some(name), Some(input)) => Reply::Call {
            name: name.to_owned(),
            input: input.to_owned(),
        },
        (Some("fail"), Some(status), Some(reason)) => Reply::Fail {
            status: status.parse().expect("a status"),
            reason: reason.to_owned(),
        },
        (Some("slowly"), None, _) => Reply::Slowly,
        (Some("big"), Some(bytes), None) => Reply::Text("x".repeat(bytes.parse().expect("a size"))),
        _ => {
            let before: Vec<&str> = before.iter().map(|text| text.as_str()).collect();
            Reply::Text(format!("{last} comes after {}", before.join(", ")))
        }
    }
}

/// A response with these frames, endless with `again`.
fn streamed(frames: Vec<String>, again: Option<String>) -> Response {
    let first = tokio_stream::iter(frames.into_iter().map(Ok::<_, Infallible>));
    let rest = again
        .into_iter()
        .flat_map(|frame| std::iter::repeat_n(frame, 10_000));
    let rest = tokio_stream::iter(rest.map(Ok)).throttle(Duration::from_millis(100));
    let body = Body::from_stream(first.chain(rest));
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(body)
        .expect("a response")
}

fn whole(status: u16, body: &Value) -> Response {
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    response
        .body(Body::from(body.to_string()))
        .expect("a response")
}

/// An error with the members of the four APIs.
fn failed(status: u16, reason: &str) -> Response {
    let error = json!({ "code": status, "message": reason, "status": "UNAVAILABLE", "type": "overloaded_error" });
    whole(status, &json!({ "type": "error", "error": error }))
}
