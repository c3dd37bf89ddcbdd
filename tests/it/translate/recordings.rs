//! Recordings of agents, converted to another protocol and back.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::{Client, translate};
use super::{request, scripted};
use crate::support::places::project;

/// The number of recordings of Claude Code.
const RECORDINGS: usize = 22;

fn recordings() -> Vec<PathBuf> {
    let folder = project().join("tests/agents/claude-code-2.1.197");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the recordings")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    files
}

/// Converts a recording. Returns the file with the result.
fn convert(from: &str, to: &str, recording: &Path, folder: &Path) -> PathBuf {
    let mut command = translate(&["--from", from, "--to", to, "--replay"]);
    let done = command
        .arg(recording)
        .output()
        .expect("the binary was built");
    assert!(
        done.status.success(),
        "{}: {}",
        recording.display(),
        String::from_utf8_lossy(&done.stderr)
    );
    let name = recording
        .file_stem()
        .expect("a name")
        .to_str()
        .expect("UTF-8");
    let file = folder.join(format!("{name}-{to}.jsonl"));
    std::fs::write(&file, done.stdout).expect("the folder is ours");
    file
}

fn entries(file: &Path) -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(file).expect("a recording");
    let entry = |line: &str| {
        let entry: Value = serde_json::from_str(line).expect("JSON");
        (
            entry["dir"].as_str().expect("a direction").to_owned(),
            entry["msg"].clone(),
        )
    };
    text.lines().map(entry).collect()
}

/// The tokens of a turn; absent ones are zero.
fn tokens(usage: &Value, names: [&str; 4]) -> Vec<u64> {
    names
        .iter()
        .map(|name| usage[name].as_u64().unwrap_or(0))
        .collect()
}

/// The content of a recording in `stream-json`: prompts, whole texts and thoughts, tools with their results,
/// permissions, and the ends of turns with usage and cost.
fn stream_json(file: &Path) -> Vec<Value> {
    let mut found = Vec::new();
    for (direction, line) in entries(file) {
        match (&*direction, line["type"].as_str().unwrap_or_default()) {
            ("c2a", "user") => found.push(json!(["prompt", line["message"]["content"]])),
            ("c2a", "control_response") => {
                found.push(json!(["answer", line["response"]["response"]["behavior"]]));
            }
            ("a2c", "control_request") => {
                let request = &line["request"];
                let lasting = request["permission_suggestions"].is_array();
                found.push(json!([
                    "permission",
                    request["tool_name"],
                    request["input"],
                    request["tool_use_id"],
                    lasting
                ]));
            }
            // The result of the turn has the text of an error.
            ("a2c", "assistant") if line["error"].is_null() => {
                for block in line["message"]["content"].as_array().expect("content") {
                    let of = |name: &str| json!([name, block[name]]);
                    found.push(match block["type"].as_str().expect("a type") {
                        "text" => of("text"),
                        "thinking" => of("thinking"),
                        _ => json!(["tool", block["id"], block["name"], block["input"]]),
                    });
                }
            }
            ("a2c", "user") => {
                let blocks = line["message"]["content"]
                    .as_array()
                    .map_or(&[][..], Vec::as_slice);
                let results = blocks.iter().filter(|block| block["type"] == "tool_result");
                found.extend(results.map(|block| {
                    json!([
                        "result",
                        block["tool_use_id"],
                        block["content"],
                        block["is_error"] == true
                    ])
                }));
            }
            ("a2c", "result") => {
                let names = [
                    "input_tokens",
                    "output_tokens",
                    "cache_read_input_tokens",
                    "cache_creation_input_tokens",
                ];
                let aborted = line["terminal_reason"]
                    .as_str()
                    .is_some_and(|reason| reason.starts_with("aborted"));
                found.push(json!([
                    "end",
                    line["subtype"],
                    line["is_error"],
                    aborted,
                    line["result"],
                    line["errors"],
                    line["api_error_status"],
                    tokens(&line["usage"], names),
                    line["total_cost_usd"].as_f64()
                ]));
            }
            _ => {}
        }
    }
    // The translation sends a prompt when the turn before it has ended.
    found.sort_by_key(|found| found[0] != "prompt");
    // The CLI reports errors of an aborted turn that ACP does not have.
    for end in found
        .iter_mut()
        .filter(|found| found[0] == "end" && found[3] == true)
    {
        end[5] = Value::Null;
    }
    found
}

/// The content of a recording in ACP. `early`: only what the early protocol has.
fn acp(file: &Path, early: bool) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for (direction, line) in entries(file) {
        let (params, result) = (&line["params"], &line["result"]);
        match (&*direction, line["method"].as_str()) {
            ("c2a", Some("session/prompt")) => found.push(json!(["prompt", params["prompt"]])),
            ("c2a", Some("session/cancel")) => found.push(json!(["cancel"])),
            ("c2a", Some("session/set_mode" | "session/set_config_option")) if !early => {
                found.push(json!(["set", params["modeId"], params["value"]]));
            }
            ("c2a", None) if result["outcome"].is_object() => {
                found.push(json!(["answer", result["outcome"]["optionId"]]));
            }
            ("a2c", Some("session/request_permission")) => {
                let options = params["options"].as_array().expect("options");
                let kinds: Vec<_> = options.iter().map(|option| &option["kind"]).collect();
                let input = if early {
                    &Value::Null
                } else {
                    &params["toolCall"]["rawInput"]
                };
                found.push(json!([
                    "permission",
                    params["toolCall"]["toolCallId"],
                    kinds,
                    input
                ]));
            }
            ("a2c", Some("session/update")) => update(&params["update"], early, &mut found),
            ("a2c", None) if !line["error"].is_null() => {
                found.push(json!([
                    "error",
                    line["error"]["code"],
                    line["error"]["message"]
                ]));
            }
            ("a2c", None) if result["stopReason"].is_string() => {
                let names = [
                    "inputTokens",
                    "outputTokens",
                    "cachedReadTokens",
                    "cachedWriteTokens",
                ];
                let tokens = if early {
                    Vec::new()
                } else {
                    tokens(&result["usage"], names)
                };
                found.push(json!(["end", result["stopReason"], tokens]));
            }
            _ => {}
        }
    }
    found
}

fn update(update: &Value, early: bool, found: &mut Vec<Value>) {
    let kind = update["sessionUpdate"].as_str().expect("a kind");
    match kind {
        "agent_message_chunk" | "agent_thought_chunk" => {
            found.push(json!([kind, update["content"]["text"]]));
        }
        // The early protocol has one message for a call with its input.
        "tool_call" | "tool_call_update"
            if early && update["rawInput"].is_null() && update["status"] == "pending" => {}
        "tool_call" | "tool_call_update" => {
            let ended = matches!(update["status"].as_str(), Some("completed" | "failed"));
            let status = ended.then(|| update["status"].clone());
            found.push(json!([
                "tool",
                update["toolCallId"],
                update["rawInput"],
                update["rawOutput"],
                status
            ]));
        }
        "usage_update" if !early => {
            found.push(json!([
                kind,
                update["used"],
                update["size"],
                update["cost"]
            ]));
        }
        "available_commands_update" => {}
        _ if !early => found.push(json!([kind])),
        _ => {}
    }
}

#[test]
fn recordings_are_equal_after_both_directions() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = recordings();
    assert_eq!(files.len(), RECORDINGS);
    for recording in files {
        let first = convert("stream-json", "acp", &recording, folder.path());
        let back = convert("acp", "stream-json", &first, folder.path());
        assert_eq!(stream_json(&recording), stream_json(&back), "{recording:?}");
        let again = convert("stream-json", "acp", &back, folder.path());
        assert_eq!(acp(&first, false), acp(&again, false), "{recording:?}");
        let early = convert("acp", "early-acp", &first, folder.path());
        let back = convert("early-acp", "acp", &early, folder.path());
        assert_eq!(acp(&first, true), acp(&back, true), "{recording:?}");
    }
}

#[tokio::test]
async fn recording_of_an_early_agent_is_equal_after_both_directions() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let recording = folder.path().join("early.jsonl");
    let mut command = translate(&["--record"]);
    command.arg(&recording).args(scripted("early-acp"));
    let mut client = Client::start(command);
    let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
    client.send(&request(0, "initialize", &params)).await;
    client.response(0).await;
    client
        .send(&request(
            1,
            "session/new",
            &json!({ "cwd": "/tmp", "mcpServers": [] }),
        ))
        .await;
    let session = client.response(1).await["result"]["sessionId"].clone();
    for (id, text) in [(2, "permission"), (3, "echo after")] {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        client.send(&request(id, "session/prompt", &params)).await;
        if text == "permission" {
            let asked = client
                .until(|line| line["method"] == "session/request_permission")
                .await;
            let option = asked["params"]["options"][0]["optionId"].clone();
            let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option } });
            client
                .send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": outcome }))
                .await;
        }
        assert_eq!(
            client.response(id).await["result"]["stopReason"],
            "end_turn"
        );
    }
    assert_eq!(client.end().await.0, Some(0));
    let methods: Vec<_> = entries(&recording)
        .into_iter()
        .filter_map(|(_, line)| line["method"].as_str().map(str::to_owned))
        .collect();
    for method in [
        "initialize",
        "agent/createSession",
        "agent/prompt",
        "agent/update",
        "shutdown",
    ] {
        assert!(
            methods.iter().any(|found| found == method),
            "{method}: {methods:?}"
        );
    }
    let first = convert("early-acp", "acp", &recording, folder.path());
    let early = convert("acp", "early-acp", &first, folder.path());
    let again = convert("early-acp", "acp", &early, folder.path());
    assert_eq!(acp(&first, true), acp(&again, true));
    assert!(acp(&first, true).contains(&json!(["agent_message_chunk", "after"])));
    let stream = convert("early-acp", "stream-json", &recording, folder.path());
    let again = convert("stream-json", "acp", &stream, folder.path());
    let texts = |file: &Path| -> Vec<Value> {
        acp(file, true)
            .into_iter()
            .filter(|found| found[0] == "agent_message_chunk" || found[0] == "end")
            .collect()
    };
    assert_eq!(texts(&first), texts(&again));
}

#[test]
fn recording_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("r.jsonl");
    std::fs::write(&file, "{\"dir\":\"a2c\",\"msg\":{}}\nno entry\n").expect("the folder is ours");
    let mut command = translate(&["--from", "acp", "--to", "acp", "--replay"]);
    let done = command.arg(&file).output().expect("the binary was built");
    let log = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.code() == Some(1) && log.contains("line 2 of the recording"),
        "{log}"
    );
}
