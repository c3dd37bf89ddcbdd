//! A model of no intelligence: enough of two model APIs on loopback for real agents to work with.
//!
//! It answers the last thing that its user said. `call NAME {..}` becomes a call of that tool, `slowly` a text that does
//! not end, a tool's result is told back, and everything else is echoed with the number of what the user said before.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use serde_json::{Value, json};
use tokio_stream::StreamExt;

/// A model that listens until the test is over.
pub(super) struct Model {
    pub(super) url: String,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Model {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What the model says.
enum Reply {
    Text(String),
    Call { name: String, input: String },
    Slowly,
}

impl Model {
    #[expect(clippy::disallowed_methods, reason = "the test owns the server and ends it")]
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let router = Router::new()
            .route("/v1/messages", axum::routing::post(messages))
            .route("/v1/chat/completions", axum::routing::post(completions));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, server }
    }
}

/// The texts of a message, without what the agent itself wrote into it.
fn texts(message: &Value) -> Vec<String> {
    let own = |text: &&str| !text.trim_start().starts_with("<system-reminder>");
    match &message["content"] {
        Value::String(text) => Some(text.as_str()).filter(own).map(str::to_owned).into_iter().collect(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            texts.filter(own).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// What a tool gave, if the message is that.
fn result(message: &Value) -> Option<String> {
    if message["role"] == "tool" {
        return Some(texts(message).concat());
    }
    let blocks = message["content"].as_array()?;
    let result = blocks.iter().find(|block| block["type"] == "tool_result")?;
    Some(texts(result).concat())
}

fn reply(body: &Value) -> Reply {
    let messages = body["messages"].as_array().expect("messages");
    // What a turn was interrupted in may stand in one message with what the user said next.
    let from_user = |message: &&Value| message["role"] == "user" && !texts(message).is_empty();
    let last = messages.iter().rev().find(|message| from_user(message) || result(message).is_some());
    if let Some(result) = last.filter(|message| !from_user(message)).and_then(result) {
        return Reply::Text(format!("The tool says: {}", result.trim()));
    }
    let said: Vec<String> = messages.iter().filter(from_user).flat_map(texts).collect();
    let last = said.last().expect("the user said something");
    match last.strip_prefix("call ").and_then(|call| call.split_once(' ')) {
        Some((name, input)) => Reply::Call { name: name.to_owned(), input: input.to_owned() },
        None if last == "slowly" => Reply::Slowly,
        None => Reply::Text(format!("{last} comes after {}", said[..said.len() - 1].join(", "))),
    }
}

/// An answer of these frames, which goes on for ever with `again`.
fn streamed(frames: Vec<String>, again: Option<String>) -> Response {
    let first = tokio_stream::iter(frames.into_iter().map(Ok::<_, Infallible>));
    let rest = again.into_iter().flat_map(|frame| std::iter::repeat_n(frame, 10_000));
    let rest = tokio_stream::iter(rest.map(Ok)).throttle(Duration::from_millis(100));
    let body = Body::from_stream(first.chain(rest));
    Response::builder().header("content-type", "text/event-stream").body(body).expect("a response")
}

/// Anthropic's Messages.
async fn messages(axum::Json(body): axum::Json<Value>) -> Response {
    let event = |kind: &str, mut data: Value| {
        data["type"] = kind.into();
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage });
    let mut frames = vec![event("message_start", json!({ "message": message }))];
    let block = |block: Value| event("content_block_start", json!({ "index": 0, "content_block": block }));
    let delta = |delta: Value| event("content_block_delta", json!({ "index": 0, "delta": delta }));
    let (stop, again) = match reply(&body) {
        Reply::Text(text) => {
            frames.push(block(json!({ "type": "text", "text": "" })));
            frames.push(delta(json!({ "type": "text_delta", "text": text })));
            ("end_turn", None)
        }
        Reply::Call { name, input } => {
            let id = format!("toolu_{}", body["messages"].as_array().map_or(0, Vec::len));
            frames.push(block(json!({ "type": "tool_use", "id": id, "name": name, "input": {} })));
            frames.push(delta(json!({ "type": "input_json_delta", "partial_json": input })));
            ("tool_use", None)
        }
        Reply::Slowly => {
            frames.push(block(json!({ "type": "text", "text": "" })));
            ("", Some(delta(json!({ "type": "text_delta", "text": "still here " }))))
        }
    };
    if again.is_none() {
        frames.push(event("content_block_stop", json!({ "index": 0 })));
        let delta = json!({ "stop_reason": stop, "stop_sequence": null });
        frames.push(event("message_delta", json!({ "delta": delta, "usage": { "output_tokens": 5 } })));
        frames.push(event("message_stop", json!({})));
    }
    streamed(frames, again)
}

/// The Chat Completions of `OpenAI`.
async fn completions(axum::Json(body): axum::Json<Value>) -> Response {
    let chunk = |delta: Value, end: Value| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": end }]);
        let chunk = json!({ "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
            "choices": choices, "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 } });
        format!("data: {chunk}\n\n")
    };
    let text = |text: &str| chunk(json!({ "role": "assistant", "content": text }), Value::Null);
    let frames = match reply(&body) {
        Reply::Slowly => return streamed(Vec::new(), Some(text("still here "))),
        Reply::Text(said) => vec![text(&said), chunk(json!({}), "stop".into())],
        Reply::Call { name, input } => {
            let id = format!("call_{}", body["messages"].as_array().map_or(0, Vec::len));
            let function = json!({ "name": name, "arguments": input });
            let call = json!([{ "index": 0, "id": id, "type": "function", "function": function }]);
            let call = json!({ "role": "assistant", "content": null, "tool_calls": call });
            vec![chunk(call, Value::Null), chunk(json!({}), "tool_calls".into())]
        }
    };
    streamed([frames, vec!["data: [DONE]\n\n".to_owned()]].concat(), None)
}
