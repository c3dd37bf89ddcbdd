//! The Responses of `OpenAI`, as a stream.

use axum::response::Response;
use serde_json::{Value, json};

use super::{Message, Reply, failed, reply, streamed, texts};

fn conversation(body: &Value) -> Vec<Message> {
    let items = body["input"].as_array().expect("input").iter();
    let message = |item: &Value| match (item["type"].as_str()?, item["role"].as_str()) {
        ("function_call_output", _) => {
            let output = &item["output"];
            Some(Message::ToolResult(
                output
                    .as_str()
                    .map_or_else(|| output.to_string(), str::to_owned),
            ))
        }
        ("message", Some("user")) => Some(texts(&item["content"]))
            .filter(|text| !text.is_empty())
            .map(Message::User),
        _ => None,
    };
    items.filter_map(message).collect()
}

pub(super) async fn responses(axum::Json(body): axum::Json<Value>) -> Response {
    let event = |kind: &str, mut data: Value| {
        data["type"] = kind.into();
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let items = body["input"].as_array().map_or(0, Vec::len);
    let id = format!("msg_{items}");
    let message = |content: Value| json!({ "type": "message", "role": "assistant", "id": id, "content": content });
    let delta = |text: &str| {
        let delta = json!({ "item_id": id, "output_index": 0, "content_index": 0, "delta": text });
        event("response.output_text.delta", delta)
    };
    let mut frames = vec![event(
        "response.created",
        json!({ "response": { "id": "resp_1" } }),
    )];
    let added = event(
        "response.output_item.added",
        json!({ "output_index": 0, "item": message(json!([])) }),
    );
    let item = match reply(&conversation(&body)) {
        Reply::Fail { status, reason } => return failed(status, &reason),
        Reply::Slowly => {
            frames.push(added);
            return streamed(frames, Some(delta("still here ")));
        }
        Reply::Text(text) => {
            frames.extend([added, delta(&text)]);
            message(json!([{ "type": "output_text", "text": text }]))
        }
        Reply::Call { name, input } => {
            json!({ "type": "function_call", "id": format!("fc_{items}"),
            "call_id": format!("call_{items}"), "name": name, "arguments": input })
        }
    };
    frames.push(event(
        "response.output_item.done",
        json!({ "output_index": 0, "item": item }),
    ));
    let usage = json!({ "input_tokens": 10, "input_tokens_details": null, "output_tokens": 1,
        "output_tokens_details": null, "total_tokens": 11 });
    frames.push(event(
        "response.completed",
        json!({ "response": { "id": "resp_1", "usage": usage } }),
    ));
    streamed(frames, None)
}
