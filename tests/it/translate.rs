//! `acp-gateway translate`: the binary on pipes, in front of scripted agents.

pub(crate) mod client;
mod sdk;

use std::os::unix::process::ExitStatusExt as _;

use serde_json::{Value, json};

use self::client::{Client, request, translate};
use crate::support::places::{claude_cli, fake_agent, gateway_program};

/// The arguments for an agent that speaks `dialect`, and a client that speaks `client`.
fn scripted(dialect: &str, client: &str) -> Vec<String> {
    let mut arguments = vec![
        format!("--from={dialect}"),
        format!("--to={client}"),
        "--".to_owned(),
    ];
    match dialect {
        "stream-json" => arguments.extend(["python3".to_owned(), claude_cli()]),
        _ => arguments.extend(early_agent().map(str::to_owned)),
    }
    arguments
}

/// An agent with the early protocol: the fake agent behind another translation.
fn early_agent() -> [&'static str; 6] {
    let gateway = gateway_program();
    [
        gateway,
        "translate",
        "--from=acp",
        "--to=early-acp",
        "--",
        fake_agent(),
    ]
}

/// Runs a turn with a permission, and one that is cancelled, through a client of ACP.
async fn run_acp_client(mut client: Client) {
    let session = client.create_session().await;
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
    run_acp_client(Client::start(translate(&scripted("stream-json", "acp")))).await;
}

#[tokio::test]
async fn acp_client_drives_an_early_agent() {
    run_acp_client(Client::start(translate(&scripted("early-acp", "acp")))).await;
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
    let mut client = Client::start(translate(&scripted("early-acp", "early-acp")));
    crate::attach::run_early_client(&mut client).await;
}

#[tokio::test]
async fn end_of_the_agent_is_the_end_of_the_translation() {
    let code = "while read -r line; do exit 7; done";
    let signal = "while read -r line; do kill -KILL $$; done";
    for (script, code, ended_by) in [(code, Some(7), None), (signal, None, Some(9))] {
        let arguments = ["--from", "acp", "--", "/bin/sh", "-c", script];
        let mut client = Client::start(translate(&arguments));
        let params = json!({ "sessionId": "s", "prompt": [] });
        client.send(&request(1, "session/prompt", &params)).await;
        let status = client.status().await;
        assert_eq!((status.code(), status.signal()), (code, ended_by));
    }
}

#[tokio::test]
async fn lines_without_a_meaning_pass_and_are_no_messages() {
    let mut client = Client::start(translate(&scripted("stream-json", "acp")));
    let session = client.create_session().await;
    let prompt = json!([{ "type": "text", "text": "noise Log in first" }]);
    let params = json!({ "sessionId": session, "prompt": prompt });
    client.send(&request(2, "session/prompt", &params)).await;
    let mut noise = Vec::new();
    loop {
        let line = client.next_line().await;
        match serde_json::from_str::<Value>(&line) {
            Ok(line) if line["id"] == 2 => break,
            Ok(_) => {}
            Err(_) => noise.push(line),
        }
    }
    assert_eq!(
        noise,
        [
            "Log in first",
            r#"not translated: {"jsonrpc": "2.0", "id": 1, "result": {}}"#
        ]
    );
    let prompt = json!([{ "type": "text", "text": "long 17000000" }]);
    let params = json!({ "sessionId": session, "prompt": prompt });
    client.send(&request(3, "session/prompt", &params)).await;
    let (code, log) = client.ended().await;
    assert!(
        code == Some(1) && log.contains("a line of the agent is longer than 16777216 bytes"),
        "{code:?} {log}"
    );
}

#[tokio::test]
async fn client_selects_the_folder_and_restores_a_session() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = folder.path().canonicalize().expect("it exists");
    let start = || {
        let mut command = translate(&scripted("stream-json", "acp"));
        command.env("HOME", &home);
        Client::start(command)
    };
    let mut client = start();
    client.initialize().await;
    let params = json!({ "cwd": home, "mcpServers": [] });
    client.send(&request(1, "session/new", &params)).await;
    let created = client.response(1).await;
    let session = created["result"]["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "pwd" }] });
    client.send(&request(2, "session/prompt", &prompt)).await;
    client.response(2).await;
    assert_eq!(client.text(), home.to_str().expect("UTF-8"));
    client.end().await;

    let mut client = start();
    client.initialize().await;
    let missing = "11111111-1111-4111-8111-111111111111";
    for (id, named, found) in [(1, missing, false), (2, &*session, true)] {
        let params = json!({ "sessionId": named, "cwd": home, "mcpServers": [] });
        client.send(&request(id, "session/resume", &params)).await;
        let answer = client.response(id).await;
        assert_eq!(answer["error"]["code"] == -32002, !found, "{answer}");
        assert_eq!(answer["result"].is_object(), found, "{answer}");
    }
    client.send(&request(3, "session/prompt", &prompt)).await;
    client.response(3).await;
    assert_eq!(client.end().await.0, Some(0));
}

#[tokio::test]
async fn recording_has_the_lines_in_both_directions() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let recording = folder.path().join("early.jsonl");
    let mut command = translate(&["--record"]);
    command.arg(&recording).args(scripted("early-acp", "acp"));
    let mut client = Client::start(command);
    client.create_session().await;
    assert_eq!(client.end().await.0, Some(0));
    let text = std::fs::read_to_string(recording).expect("it was recorded");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let methods: Vec<_> = lines
        .iter()
        .filter(|line| line["dir"] == "c2a")
        .filter_map(|line| line["msg"]["method"].as_str())
        .collect();
    assert_eq!(
        methods,
        [
            "initialize",
            "initialized",
            "agent/createSession",
            "shutdown"
        ]
    );
    assert!(lines.iter().any(|line| line["dir"] == "a2c"));
}

#[tokio::test]
async fn agent_writes_to_stderr_and_a_missing_program_is_an_error() {
    let script = r#"echo from the agent >&2; echo '{"jsonrpc":"2.0","method":"ready","params":{}}'
        cat > /dev/null"#;
    let mut client = Client::start(translate(&[
        "--from", "acp", "--to", "acp", "--", "/bin/sh", "-c", script,
    ]));
    client.until(|line| line["method"] == "ready").await;
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

/// A command of ACP that runs this script in Python.
fn python(script: &str) -> Client {
    Client::start(translate(&["--from", "acp", "--", "python3", "-c", script]))
}

const ANSWER: &str = r#"'{"jsonrpc":"2.0","id":%d,"result":{}}' % json.loads(line)["id"]"#;

#[tokio::test]
async fn lines_before_the_end_of_stdin_reach_the_command() {
    let script = format!(
        "import json, sys\nlines = sys.stdin.readlines()\nfor line in lines: print({ANSWER})"
    );
    let mut client = python(&script);
    for id in 0..400 {
        client.send(&request(id, "m", &json!({}))).await;
    }
    client.close();
    for id in 0..400 {
        client.response(id).await;
    }
    assert_eq!(client.status().await.code(), Some(0));
}

#[tokio::test]
async fn command_that_writes_before_it_reads_blocks_nothing() {
    let script = format!(
        "import json, sys\n\
         for _ in range(400): print('{{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{{\"x\":\"%s\"}}}}' % ('x' * 20000))\n\
         for line in sys.stdin: print({ANSWER}, flush=True)"
    );
    let mut client = python(&script);
    let params = json!({ "x": "x".repeat(20_000) });
    let requests = (0..200).map(|id| request(id, "m", &params)).collect();
    let sent = client.send_all(requests);
    let answered = async {
        for id in 0..200 {
            client.response(id).await;
        }
    };
    tokio::join!(sent, answered);
    assert_eq!(client.status().await.code(), Some(0));
}

#[tokio::test]
async fn last_lines_of_a_command_wait_for_a_slow_client() {
    let script = "import sys\n\
                  for n in range(300): print('{\"jsonrpc\":\"2.0\",\"method\":\"m%d\",\"params\":{\"x\":\"%s\"}}' % (n, 'x' * 5000))\n\
                  sys.stdout.flush()\n\
                  sys.exit(3)";
    let mut client = python(script);
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    client.until(|line| line["method"] == "m299").await;
    assert_eq!(client.seen().len(), 300);
    assert_eq!(client.status().await.code(), Some(3));
}
