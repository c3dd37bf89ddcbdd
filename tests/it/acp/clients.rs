//! The official clients run complete turns: permission, cancel, load and resume on new connections.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::gateway::{KEY, command};
use crate::support::places::project;
use crate::support::{Gateway, Setup};

fn folder() -> PathBuf {
    project().join("tests/agents")
}

/// Runs a client to its end. Returns its steps.
fn steps(mut client: Command) -> Vec<Value> {
    let output = client.stdin(Stdio::null()).output();
    let output = output.expect("its program is there: `scripts/test rust` installs it");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect()
}

fn step<'a>(steps: &'a [Value], name: &str) -> &'a Value {
    steps
        .iter()
        .find(|step| step["step"] == name)
        .unwrap_or_else(|| panic!("no step {name}: {steps:?}"))
}

/// The scenario of `acp.mjs`, `acp_client.py` and `tests/acp_client`.
async fn runs_complete_turns(client: impl FnOnce(&str) -> Command) {
    let gateway = Setup::fake(&[]).start();
    let steps = steps(client(&format!("{}/acp", gateway.url)));
    let of = |name| step(&steps, name);
    assert_eq!(of("initialize")["loadSession"], true);
    let turn = of("turn");
    assert_eq!(turn["stopReason"], "end_turn");
    assert_eq!(turn["seen"]["chunks"], 21, "{turn}");
    assert_eq!(
        turn["seen"]["options"],
        json!(["allow", "allow_always", "reject"])
    );
    assert_eq!(turn["seen"]["text"], "permission: allow");
    assert_eq!(
        turn["seen"]["user"], 0,
        "a client does not get back its own prompt"
    );
    assert_eq!(of("cancel")["stopReason"], "cancelled");
    assert_eq!(of("outside")["error"]["code"], -32602);
    assert_eq!(of("unknown")["error"]["code"], -32002);
    let load = of("load");
    assert_eq!(
        (&load["seen"]["chunks"], &load["seen"]["user"]),
        (&json!(21), &json!(2)),
        "{load}"
    );
    let again = of("again");
    assert_eq!(
        (&again["stopReason"], &again["seen"]["chunks"]),
        (&json!("end_turn"), &json!(4)),
        "{again}"
    );
    assert_eq!(again["seen"]["text"], "stream n=3; echo é☃😀");
    assert_eq!(of("resume")["seen"]["chunks"], 0, "no history");
    assert_eq!(of("resumed")["seen"]["text"], "last");
    same_session_in_rest(&gateway, of("new")["sessionId"].as_str().expect("an id")).await;
}

async fn same_session_in_rest(gateway: &Gateway, session: &str) {
    let listed = gateway.get("/v1/sessions").await;
    assert_eq!(listed["sessions"][0]["sessionId"], session);
    let prompts = gateway
        .get(&format!("/v1/sessions/{session}/prompts"))
        .await;
    let texts: Vec<_> = prompts["prompts"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|p| &p["stopReason"])
        .collect();
    assert_eq!(texts, ["end_turn", "end_turn", "cancelled", "end_turn"]);
}

fn node(transport: &str, url: &str) -> Command {
    let mut node = command("node");
    node.arg(folder().join("clients/acp.mjs"))
        .args([transport, url, KEY]);
    node
}

fn python(transport: &str, url: &str) -> Command {
    let mut python = command(folder().join(".venv/bin/python").to_str().expect("UTF-8"));
    python
        .arg(folder().join("clients/acp_client.py"))
        .args([transport, url, KEY]);
    python
}

/// `scripts/test rust` builds it. Its workspace has a target folder of its own.
fn rust(transport: &str, url: &str) -> Command {
    let program = project().join("target/acp-client/debug/acp-client");
    let mut client = command(program.to_str().expect("UTF-8"));
    client.args([transport, url, KEY]);
    client
}

#[tokio::test]
async fn rust_sdk_over_http() {
    runs_complete_turns(|url| rust("http", url)).await;
}

#[tokio::test]
async fn rust_sdk_over_websocket() {
    runs_complete_turns(|url| rust("ws", url)).await;
}

#[tokio::test]
async fn typescript_sdk_over_http() {
    runs_complete_turns(|url| node("http", url)).await;
}

#[tokio::test]
async fn typescript_sdk_over_websocket() {
    runs_complete_turns(|url| node("ws", url)).await;
}

#[tokio::test]
async fn python_sdk_over_http() {
    runs_complete_turns(|url| python("http", url)).await;
}

#[tokio::test]
async fn python_sdk_over_websocket() {
    runs_complete_turns(|url| python("ws", url)).await;
}

/// The client of the SDK serves files and a terminal of the agent. The script has a deadline.
async fn serves_files_and_terminals(transport: &str) {
    let gateway = Setup::fake_with(&[], "files = \"gateway\"\nterminals = \"gateway\"").start();
    let steps_of_terminal =
        json!([{ "create": { "command": "make" } }, "wait", "output", "release"]);
    let prompts = [
        "read path=/editor/a; write path=/editor/b text=new".to_owned(),
        format!("terminal {steps_of_terminal}"),
    ];
    let mut node = command("node");
    node.arg(folder().join("clients/acp_files.mjs")).args([
        transport,
        &format!("{}/acp", gateway.url),
        KEY,
    ]);
    node.args(prompts);
    let turns = steps(node);
    assert_eq!(turns[0]["text"], "[unsaved][written]");
    let calls = json!([{ "method": "read", "path": "/editor/a" }, { "method": "write", "path": "/editor/b", "content": "new" }]);
    assert_eq!(turns[0]["calls"], calls);
    let methods: Vec<_> = turns[1]["calls"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|call| &call["method"])
        .collect();
    assert_eq!(
        methods,
        ["create", "wait", "output", "release"],
        "{turns:?}"
    );
    assert_eq!(turns[1]["stopReason"], "end_turn");
    let listed = gateway.get("/v1/sessions").await;
    let events = gateway
        .all_events(listed["sessions"][0]["sessionId"].as_str().expect("an id"))
        .await;
    assert!(
        !events
            .iter()
            .any(|event| event["type"] == "terminal.created"),
        "no command runs at the gateway"
    );
}

#[tokio::test]
async fn typescript_sdk_serves_files_and_terminals_over_http() {
    serves_files_and_terminals("http").await;
}

#[tokio::test]
async fn typescript_sdk_serves_files_and_terminals_over_websocket() {
    serves_files_and_terminals("ws").await;
}
