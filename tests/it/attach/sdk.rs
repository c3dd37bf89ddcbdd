//! The examples of the guide for editors: clients of the official SDKs on stdio, with a gateway that is killed and started
//! again in a turn.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use crate::support::gateway::{KEY, command};
use crate::support::places::{gateway_program, project};
use crate::support::{Gateway, Setup};

const PATIENCE: Duration = Duration::from_mins(1);

fn agents() -> PathBuf {
    project().join("tests/agents")
}

/// Sends three prompts: one that asks for a permission, one during which the gateway is killed, and one after it.
async fn run_through_a_restart(program: impl FnOnce(&Path) -> Command) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().canonicalize().expect("it exists");
    let state = path.join("state");
    let workspace = path.to_str().expect("UTF-8");
    let mut gateway = Setup::fake(&["--resume", "--state", state.to_str().expect("UTF-8")])
        .table(&format!("[workspaces]\nallow = [{workspace:?}]"))
        .start();
    let mut client = program(&path);
    client.args([
        &gateway.url,
        "fake",
        "permission",
        "slow chunks=20 ms=200",
        "echo after",
    ]);
    let binaries = Path::new(gateway_program()).parent().expect("a folder");
    client
        .current_dir(&path)
        .env(
            "PATH",
            format!("{}:/usr/local/bin:/usr/bin:/bin", binaries.display()),
        )
        .env("ACP_GATEWAY_KEY", KEY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut client = tokio::process::Command::from(client);
    let mut client = client
        .kill_on_drop(true)
        .spawn()
        .expect("`scripts/test rust` installs it");
    let mut lines = BufReader::new(client.stdout.take().expect("it is piped")).lines();
    let mut seen: Vec<Value> = Vec::new();
    let mut results = 0;
    while let Some(line) = timeout(PATIENCE, lines.next_line())
        .await
        .expect("a line")
        .expect("a pipe")
    {
        let line: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        results += usize::from(line["update"].is_null());
        let is_slow_turn = results == 2 && line["update"]["sessionUpdate"] == "agent_message_chunk";
        seen.push(line);
        if is_slow_turn && gateway.runs() && !seen.iter().any(|line| line["restarted"] == true) {
            seen.push(serde_json::json!({ "restarted": true, "update": {} }));
            gateway.kill();
            gateway.start();
        }
    }
    assert!(
        client.wait().await.expect("it is our child").success(),
        "{seen:?}"
    );
    let results: Vec<&Value> = seen
        .iter()
        .filter(|line| line["update"].is_null())
        .collect();
    let [session, permission, killed, after] = results[..] else {
        panic!("{results:?}")
    };
    assert_eq!(permission["stopReason"], "end_turn");
    assert!(killed["error"].is_string(), "{killed}");
    assert_eq!(after["stopReason"], "end_turn");
    let chunks = seen
        .iter()
        .filter(|line| line["update"]["sessionUpdate"] == "agent_message_chunk");
    let texts: Vec<_> = chunks
        .map(|line| {
            line["update"]["content"]["text"]
                .as_str()
                .expect("a text")
                .to_owned()
        })
        .collect();
    let session = session["sessionId"].as_str().expect("an id");
    assert_eq!(texts, super::logged(&gateway, session).await);
    assert_eq!(texts.last().map(String::as_str), Some("after"));
    assert_eq!(end(gateway), Some(0));
}

fn end(mut gateway: Gateway) -> Option<i32> {
    gateway.stop()
}

#[tokio::test]
async fn attach_serves_the_typescript_sdk_through_a_restart() {
    run_through_a_restart(|folder| {
        // The example imports the package by its own name. The tests install two versions.
        let packages = folder.join("node_modules/@agentclientprotocol");
        std::fs::create_dir_all(&packages).expect("the folder is ours");
        std::os::unix::fs::symlink(
            agents().join("node_modules/acp-sdk-2"),
            packages.join("sdk"),
        )
        .expect("the folder is ours");
        let example = folder.join("attach.mjs");
        std::fs::copy(agents().join("clients/attach.mjs"), &example).expect("the folder is ours");
        let mut node = command("node");
        node.arg(example);
        node
    })
    .await;
}

#[tokio::test]
async fn attach_serves_the_python_sdk_through_a_restart() {
    run_through_a_restart(|_| {
        let mut python = command(agents().join(".venv/bin/python").to_str().expect("UTF-8"));
        python.arg(agents().join("clients/attach.py"));
        python
    })
    .await;
}
