//! Anthropic's Messages.

use std::cell::Cell;

use axum::response::Response;
use serde_json::{Value, json};

use super::{Message, Reply, failed, reply, streamed, texts};

fn conversation(body: &Value) -> Vec<Message> {
    let messages = body["messages"].as_array().expect("messages").iter();
    let message = |message: &Value| {
        // The text after an interrupted call is in the same message as the call's result.
        let text = texts(&message["content"]);
        if message["role"] == "user" && !text.is_empty() {
            return Some(Message::User(text));
        }
        let blocks = message["content"].as_array()?;
        let result = blocks.iter().find(|block| block["type"] == "tool_result")?;
        Some(Message::ToolResult(texts(&result["content"]).concat()))
    };
    messages.filter_map(message).collect()
}

pub(super) async fn messages(axum::Json(body): axum::Json<Value>) -> Response {
    let event = |kind: &str, mut data: Value| {
        data["type"] = kind.into();
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
    // Claude Code joins messages with the same id.
    let id = format!("msg_{}", body["messages"].as_array().map_or(0, Vec::len));
    let message = json!({ "id": id, "type": "message", "role": "assistant", "model": body["model"],
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage });
    let mut frames = vec![event("message_start", json!({ "message": message }))];
    let index = Cell::new(0);
    let block = |block: Value| {
        event(
            "content_block_start",
            json!({ "index": index.get(), "content_block": block }),
        )
    };
    let delta = |delta: Value| {
        event(
            "content_block_delta",
            json!({ "index": index.get(), "delta": delta }),
        )
    };
    let (stop, again) = match reply(&conversation(&body)) {
        Reply::Text(text) => {
            if text.starts_with("think ") {
                frames.push(block(
                    json!({ "type": "thinking", "thinking": "", "signature": "" }),
                ));
                frames.push(delta(
                    json!({ "type": "thinking_delta", "thinking": "let me " }),
                ));
                frames.push(delta(
                    json!({ "type": "thinking_delta", "thinking": "think" }),
                ));
                frames.push(delta(
                    json!({ "type": "signature_delta", "signature": "sig" }),
                ));
                frames.push(event("content_block_stop", json!({ "index": 0 })));
                index.set(1);
            }
            frames.push(block(json!({ "type": "text", "text": "" })));
            frames.push(delta(json!({ "type": "text_delta", "text": text })));
            ("end_turn", None)
        }
        Reply::Call { name, input } => {
            let id = format!("toolu_{}", body["messages"].as_array().map_or(0, Vec::len));
            frames.push(block(
                json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
            ));
            frames.push(delta(
                json!({ "type": "input_json_delta", "partial_json": input }),
            ));
            ("tool_use", None)
        }
        Reply::Fail { status, reason } => return failed(status, &reason),
        Reply::Slowly => {
            frames.push(block(json!({ "type": "text", "text": "" })));
            (
                "",
                Some(delta(
                    json!({ "type": "text_delta", "text": "still here " }),
                )),
            )
        }
    };
    if again.is_none() {
        frames.push(event("content_block_stop", json!({ "index": index.get() })));
        let delta = json!({ "stop_reason": stop, "stop_sequence": null });
        frames.push(event(
            "message_delta",
            json!({ "delta": delta, "usage": { "output_tokens": 5 } }),
        ));
        frames.push(event("message_stop", json!({})));
    }
    streamed(frames, again)
}
