//! `acp-gateway translate`: the binary on pipes, in front of scripted agents and of recordings.

pub(crate) mod client;
mod recordings;
mod sdk;

use serde_json::{Value, json};

use self::client::{Client, translate};
use crate::support::places::{fake_agent, gateway_program};

/// The arguments of a chain: an agent that speaks `dialect`, made of the fake agent and another translation.
fn scripted(dialect: &str) -> Vec<String> {
    chain(dialect, "acp")
}

/// The same for a client that speaks `client`.
fn chain(dialect: &str, client: &str) -> Vec<String> {
    // The dialect `stream-json` appends the arguments of the CLI, which the shell drops.
    let gateway = gateway_program();
    let fake = fake_agent();
    let command = format!("exec {gateway} translate --from acp --to {dialect} -- {fake}");
    [
        "--from", dialect, "--to", client, "--", "/bin/sh", "-c", &command,
    ]
    .map(str::to_owned)
    .to_vec()
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Runs a turn with a permission, and one that is cancelled, through a client of ACP.
async fn run_acp_client(mut client: Client) {
    client
        .send(&request(
            0,
            "initialize",
            &json!({ "protocolVersion": 1, "clientCapabilities": {} }),
        ))
        .await;
    assert_eq!(client.response(0).await["result"]["protocolVersion"], 1);
    let cwd = std::env::temp_dir();
    client
        .send(&request(
            1,
            "session/new",
            &json!({ "cwd": cwd, "mcpServers": [] }),
        ))
        .await;
    let created = client.response(1).await;
    let session = created["result"]["sessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("{created}"))
        .to_owned();
    let prompt =
        |text: &str| json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
    client
        .send(&request(2, "session/prompt", &prompt("permission")))
        .await;
    let asked = client
        .until(|line| line["method"] == "session/request_permission")
        .await;
    let options = asked["params"]["options"].as_array().expect("options");
    let allow = options
        .iter()
        .find(|option| option["kind"] == "allow_once")
        .expect("an option");
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": allow["optionId"] } });
    client
        .send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": outcome }))
        .await;
    assert_eq!(client.response(2).await["result"]["stopReason"], "end_turn");
    assert_eq!(client.text(), "permission: allow");

    client
        .send(&request(
            3,
            "session/prompt",
            &prompt("slow chunks=1000 ms=20"),
        ))
        .await;
    client
        .until(|line| line["params"]["update"]["sessionUpdate"] == "agent_message_chunk")
        .await;
    let cancel = json!({ "sessionId": session });
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": cancel }))
        .await;
    assert_eq!(
        client.response(3).await["result"]["stopReason"],
        "cancelled"
    );
    client.write("no JSON").await;
    let invalid = client.until(|line| line["error"]["code"] == -32700).await;
    assert!(invalid["id"].is_null(), "{invalid}");
    let (code, log) = client.end().await;
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test]
async fn acp_client_drives_a_stream_json_agent() {
    run_acp_client(Client::start(translate(&scripted("stream-json")))).await;
}

#[tokio::test]
async fn acp_client_drives_an_early_agent() {
    run_acp_client(Client::start(translate(&scripted("early-acp")))).await;
}

#[tokio::test]
async fn acp_client_drives_an_acp_agent() {
    run_acp_client(Client::start(translate(&[
        "--from",
        "acp",
        "--to",
        "acp",
        "--",
        fake_agent(),
    ])))
    .await;
}

#[tokio::test]
async fn stream_json_client_uses_a_tool_and_interrupts_a_turn() {
    run_stream_json_client(Client::start(translate(&[
        "--from",
        "acp",
        "--to",
        "stream-json",
        "--",
        fake_agent(),
    ])))
    .await;
}

#[tokio::test]
async fn stream_json_client_drives_a_stream_json_agent() {
    run_stream_json_client(Client::start(translate(&chain(
        "stream-json",
        "stream-json",
    ))))
    .await;
}

async fn run_stream_json_client(mut client: Client) {
    let control = |id: &str, request: Value| json!({ "type": "control_request", "request_id": id, "request": request });
    let prompt =
        |text: &str| json!({ "type": "user", "message": { "role": "user", "content": text } });
    client.write("no JSON").await;
    client
        .send(&control("r1", json!({ "subtype": "initialize" })))
        .await;
    client
        .until(|line| {
            line["response"]["request_id"] == "r1" && line["response"]["subtype"] == "success"
        })
        .await;
    client.send(&prompt("permission")).await;
    let asked = client
        .until(|line| line["request"]["subtype"] == "can_use_tool")
        .await;
    let answer = json!({ "behavior": "allow", "updatedInput": asked["request"]["input"] });
    let answer =
        json!({ "subtype": "success", "request_id": asked["request_id"], "response": answer });
    client
        .send(&json!({ "type": "control_response", "response": answer }))
        .await;
    let result = client.until(|line| line["type"] == "result").await;
    assert_eq!(
        (
            &result["subtype"],
            &result["result"],
            &result["stop_reason"]
        ),
        (
            &json!("success"),
            &json!("permission: allow"),
            &json!("end_turn")
        ),
        "{result}"
    );
    assert!(
        client.seen().iter().any(|line| line["subtype"] == "init"),
        "{:?}",
        client.seen()
    );

    client.send(&prompt("slow chunks=1000 ms=20")).await;
    client
        .until(|line| line["event"]["delta"]["type"] == "text_delta")
        .await;
    client
        .send(&control("r2", json!({ "subtype": "interrupt" })))
        .await;
    let result = client.until(|line| line["type"] == "result").await;
    assert_eq!(result["terminal_reason"], "aborted_streaming", "{result}");
    client
        .send(&control("r3", json!({ "subtype": "no_such" })))
        .await;
    client
        .until(|line| {
            line["response"]["request_id"] == "r3" && line["response"]["subtype"] == "error"
        })
        .await;
    // The end of stdin waits for the turn, as in the CLI.
    client.send(&prompt("echo last")).await;
    let (code, log) = client
        .end_after(|line| line["type"] == "result" && line["result"] == "last")
        .await;
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("skipped an invalid line"), "{log}");
}

#[tokio::test]
async fn early_client_creates_a_session_prompts_cancels_and_shuts_down() {
    let mut client = Client::start(translate(&[
        "--from",
        "acp",
        "--to",
        "early-acp",
        "--",
        fake_agent(),
    ]));
    crate::attach::run_early_client(&mut client).await;
}

#[tokio::test]
async fn early_client_drives_an_early_agent() {
    let mut client = Client::start(translate(&chain("early-acp", "early-acp")));
    crate::attach::run_early_client(&mut client).await;
}

#[tokio::test]
async fn end_of_the_agent_fails_the_prompt_and_is_the_exit_code() {
    let script = r#"while read -r line; do case "$line" in *session/prompt*) exit 7;; esac; done"#;
    let mut client = Client::start(translate(&[
        "--from", "acp", "--to", "acp", "--", "/bin/sh", "-c", script,
    ]));
    let params = json!({ "sessionId": "s", "prompt": [] });
    client.send(&request(1, "session/prompt", &params)).await;
    let failed = client.response(1).await;
    let message = failed["error"]["message"].as_str().expect("a message");
    assert!(
        message.ends_with("the agent ended with the exit code 7"),
        "{failed}"
    );
    assert_eq!(client.ended().await.0, Some(7));
}

#[tokio::test]
async fn agent_writes_to_stderr_and_a_missing_program_is_an_error() {
    let script = "echo from the agent >&2; cat > /dev/null";
    let client = Client::start(translate(&[
        "--from", "acp", "--to", "acp", "--", "/bin/sh", "-c", script,
    ]));
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let (code, log) = client.end().await;
    assert_eq!((code, log.trim()), (Some(0), "from the agent"));
    let client = Client::start(translate(&[
        "--from",
        "acp",
        "--to",
        "acp",
        "--",
        "/nonexistent/agent",
    ]));
    let (code, log) = client.ended().await;
    assert!(
        code == Some(1) && log.contains("/nonexistent/agent"),
        "{code:?} {log}"
    );
}
