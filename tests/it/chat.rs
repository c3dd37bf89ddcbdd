//! The chat protocols: the same sessions for clients that do not know ACP.

mod approvals;
pub(crate) mod clients;
mod history;
mod identity;
mod more_clients;
mod openai;
mod projections;
mod responses;
mod scenarios;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::Gateway;

/// Routes of the protocols for the scripted agent.
const AI_SDK: &str = "/ai-sdk/fake";
const AG_UI: &str = "/ag-ui/fake";
const COMPLETIONS: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";

/// A message of the AI SDK: the text of each message of the user, and the chat.
fn ui_messages(chat: &str, texts: &[&str]) -> Value {
    let message = |text: &&str| json!({ "id": text, "role": "user", "parts": [{ "type": "text", "text": text }] });
    json!({ "id": chat, "messages": texts.iter().map(message).collect::<Vec<_>>(), "trigger": "submit-message" })
}

fn run_input(thread: &str, run: &str, texts: &[&str]) -> Value {
    let message = |text: &&str| json!({ "id": text, "role": "user", "content": text });
    let messages: Vec<_> = texts.iter().map(message).collect();
    json!({ "threadId": thread, "runId": run, "protocolVersion": "1.0", "messages": messages, "tools": [], "context": [] })
}

fn completion(texts: &[&str], stream: bool) -> Value {
    let messages: Vec<_> = texts
        .iter()
        .map(|text| json!({ "role": "user", "content": text }))
        .collect();
    json!({ "model": "fake", "messages": messages, "stream": stream })
}

/// The whole body of a response with the status 200.
async fn body(request: RequestBuilder) -> String {
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let text = response.text().await.expect("a body");
    assert_eq!(status, StatusCode::OK, "{text}");
    text
}

async fn post(gateway: &Gateway, path: &str, content: &Value) -> String {
    body(gateway.request(Method::POST, path).json(content)).await
}

/// The JSON of all frames.
fn frames(text: &str) -> Vec<Value> {
    let data = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")))
        .collect()
}

/// The joined text deltas of any protocol.
fn text(frames: &[Value]) -> String {
    let delta = |frame: &Value| match frame["type"].as_str() {
        Some("text-delta" | "TEXT_MESSAGE_CONTENT" | "response.output_text.delta") => {
            frame["delta"].as_str().map(str::to_owned)
        }
        Some(_) => None,
        None => frame["choices"][0]["delta"]["content"]
            .as_str()
            .map(str::to_owned),
    };
    frames.iter().filter_map(delta).collect()
}

/// The sessions of the gateway.
async fn sessions(gateway: &Gateway) -> Vec<String> {
    let list = gateway.get("/v1/sessions").await;
    let sessions = list["sessions"].as_array().expect("a list");
    sessions
        .iter()
        .map(|session| session["sessionId"].as_str().expect("an id").to_owned())
        .collect()
}

/// The number of turns that began in a session.
async fn turns(gateway: &Gateway, session: &str) -> usize {
    let events = gateway.all_events(session).await;
    events
        .iter()
        .filter(|event| event["type"] == "prompt.started")
        .count()
}

/// The text of each prompt in a session, as the agent got it.
async fn prompts(gateway: &Gateway, session: &str) -> Vec<String> {
    let events = gateway.all_events(session).await;
    let text = |event: &Value| {
        let blocks = event["prompt"].as_array()?;
        Some(
            blocks
                .iter()
                .filter_map(|block| block["text"].as_str())
                .collect::<Vec<_>>()
                .join("|"),
        )
    };
    events.iter().filter_map(text).collect()
}
