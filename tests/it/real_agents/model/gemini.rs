//! Gemini's `generateContent`, `streamGenerateContent` and `countTokens`.

use axum::extract::Path;
use axum::response::Response;
use serde_json::{Value, json};

use super::{Message, Reply, failed, reply, streamed, texts, whole};

fn conversation(body: &Value) -> Vec<Message> {
    let contents = body["contents"].as_array().expect("contents").iter();
    let message = |content: &Value| {
        if content["role"] != "user" {
            return None;
        }
        let text = texts(&content["parts"]);
        if !text.is_empty() {
            return Some(Message::User(text));
        }
        let parts = content["parts"].as_array()?;
        let results = parts
            .iter()
            .map(|part| &part["functionResponse"]["response"]);
        let result: String = results
            .map(|result| {
                result["output"]
                    .as_str()
                    .map_or_else(|| result.to_string(), str::to_owned)
            })
            .collect();
        parts
            .iter()
            .any(|part| part["functionResponse"].is_object())
            .then_some(Message::ToolResult(result))
    };
    contents.filter_map(message).collect()
}

fn chunk(part: Value, end: Option<&str>) -> Value {
    let part = Value::Array(vec![part]);
    let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": part } });
    if let Some(end) = end {
        candidate["finishReason"] = end.into();
    }
    let usage = json!({ "promptTokenCount": 10, "candidatesTokenCount": 1, "totalTokenCount": 11 });
    json!({ "candidates": [candidate], "usageMetadata": usage })
}

pub(super) async fn generate(
    Path(call): Path<String>,
    axum::Json(body): axum::Json<Value>,
) -> Response {
    let frame = |chunk: &Value| format!("data: {chunk}\r\n\r\n");
    match call.rsplit_once(':').expect("a model and a method").1 {
        "countTokens" => whole(200, &json!({ "totalTokens": 10 })),
        // Gemini CLI sends additional requests: for the next speaker, and for the model of an answer.
        "generateContent" => {
            let choice =
                json!({ "reasoning": "-", "next_speaker": "user", "model_choice": "flash" });
            whole(
                200,
                &chunk(json!({ "text": choice.to_string() }), Some("STOP")),
            )
        }
        "streamGenerateContent" => match reply(&conversation(&body)) {
            Reply::Text(text) => streamed(
                vec![frame(&chunk(json!({ "text": text }), Some("STOP")))],
                None,
            ),
            Reply::Call { name, input } => {
                let input: Value =
                    serde_json::from_str(&input).expect("the input of a call is JSON");
                let call = json!({ "functionCall": { "name": name, "args": input } });
                streamed(vec![frame(&chunk(call, Some("STOP")))], None)
            }
            Reply::Slowly => streamed(
                Vec::new(),
                Some(frame(&chunk(json!({ "text": "still here " }), None))),
            ),
            Reply::Fail { status, reason } => failed(status, &reason),
        },
        other => panic!("Gemini has no method {other}"),
    }
}
