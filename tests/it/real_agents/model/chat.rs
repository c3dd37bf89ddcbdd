//! The Chat Completions of `OpenAI`.

use axum::response::Response;
use serde_json::{Value, json};

use super::{Message, Reply, failed, reply, streamed, texts};

fn conversation(body: &Value) -> Vec<Message> {
    let messages = body["messages"].as_array().expect("messages").iter();
    let message = |message: &Value| {
        let content = texts(&message["content"]);
        match message["role"].as_str()? {
            "tool" => Some(Message::ToolResult(content.concat())),
            "user" if !content.is_empty() => Some(Message::User(content)),
            _ => None,
        }
    };
    messages.filter_map(message).collect()
}

pub(super) async fn completions(axum::Json(body): axum::Json<Value>) -> Response {
    let chunk = |delta: Value, end: Value| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": end }]);
        let chunk = json!({ "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
            "choices": choices, "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 } });
        format!("data: {chunk}\n\n")
    };
    let text = |text: &str| chunk(json!({ "role": "assistant", "content": text }), Value::Null);
    let frames = match reply(&conversation(&body)) {
        Reply::Slowly => return streamed(Vec::new(), Some(text("still here "))),
        Reply::Fail { status, reason } => return failed(status, &reason),
        Reply::Text(reply) => vec![text(&reply), chunk(json!({}), "stop".into())],
        Reply::Call { name, input } => {
            let id = format!("call_{}", body["messages"].as_array().map_or(0, Vec::len));
            let function = json!({ "name": name, "arguments": input });
            let call = json!([{ "index": 0, "id": id, "type": "function", "function": function }]);
            let call = json!({ "role": "assistant", "content": null, "tool_calls": call });
            vec![
                chunk(call, Value::Null),
                chunk(json!({}), "tool_calls".into()),
            ]
        }
    };
    streamed([frames, vec!["data: [DONE]\n\n".to_owned()]].concat(), None)
}
