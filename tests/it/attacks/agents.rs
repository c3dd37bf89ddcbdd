//! Agents that pose as the gateway, and files that a workspace plants for the start of an agent.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::Setup;
use crate::support::gateway::command;
use crate::support::log::{all, kinds};
use crate::support::places::fake_agent;

/// Event types that only the gateway may append.
const RESERVED: [&str; 8] = [
    "session.closed",
    "session.detached",
    "prompt.completed",
    "prompt.failed",
    "request.created",
    "request.resolved",
    "shutdown",
    "reset",
];

#[tokio::test]
async fn an_agent_cannot_create_events_of_the_gateway() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let mut lines = Vec::new();
    for kind in RESERVED {
        // The type as a method, as the kind of an update, and as a member beside the real one.
        let params = json!({ "sessionId": "$SESSION", "type": kind, "promptId": "p1", "seq": 1, "requestId": "r1" });
        lines.push(
            json!({ "jsonrpc": "2.0", "method": kind, "params": params, "type": kind, "seq": 1 }),
        );
        let update = json!({ "sessionUpdate": kind, "type": kind, "promptId": "p9", "by": { "id": "admin" } });
        let params = json!({ "sessionId": "$SESSION", "update": update, "type": kind, "late": true, "seq": 1 });
        lines.push(json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }
    let script: Vec<String> = lines.iter().map(Value::to_string).collect();
    let turn = gateway
        .turn(&session, &format!("raw {}", script.join("\n")))
        .await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let events = gateway.lawful(&session).await;
    let own = [
        "session.created",
        "session.attached",
        "session.changed",
        "prompt.started",
        "prompt.completed",
    ];
    for kind in kinds(&events) {
        assert!(
            own.contains(&kind) || kind == "session.update" || kind == "extension",
            "{kind}"
        );
    }
    assert_eq!(all(&events, "prompt.completed").len(), 1, "{events:#?}");
    assert_eq!(
        all(&events, "session.update").len() + all(&events, "extension").len(),
        lines.len()
    );
    assert!(
        events.iter().all(|event| event["promptId"] != "p9"),
        "{events:#?}"
    );
    assert_eq!(gateway.get_session(&session).await["state"], "idle");
    let requests = gateway
        .get(&format!("/v1/sessions/{session}/requests"))
        .await;
    assert_eq!(requests["requests"], json!([]));
    assert_eq!(gateway.turn(&session, "echo next").await["text"], "next");
}

/// A workspace with a package and a configuration of npm that run programs of the workspace.
fn plant(workspace: &Path, marker: &Path) {
    let bin = workspace.join("node_modules/.bin");
    fs::create_dir_all(&bin).expect("the folder is ours");
    let evil = format!("#!/bin/sh\necho ran >> {}\n", marker.display());
    for file in [bin.join("planted-agent"), workspace.join("shell.sh")] {
        fs::write(&file, &evil).expect("the folder is ours");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    }
    let shell = workspace.join("shell.sh");
    fs::write(
        workspace.join(".npmrc"),
        format!("script-shell={}\noffline=true\n", shell.display()),
    )
    .expect("the folder is ours");
    fs::write(
        workspace.join("package.json"),
        r#"{"name":"planted","version":"1.0.0"}"#,
    )
    .expect("the folder is ours");
}

#[tokio::test]
async fn packages_planted_in_a_workspace_do_not_run_at_the_start_of_an_agent() {
    let more = "env = { npm_config_offline = \"true\" }\nstart_timeout = \"60s\"";
    let setup = Setup::default().agent("npx", "npx", &["--no", "planted-agent"], more);
    let gateway = setup.start();
    let workspace = gateway.path("data/workspaces/planted");
    let marker = gateway.path("marker");
    plant(&workspace, &marker);
    let body = json!({ "agent": "npx", "cwd": workspace });
    let answer = gateway.posted("/v1/sessions", &[], &body).await;
    assert!(
        !answer.status.is_success(),
        "npx finds no package: {answer:?}"
    );
    assert_ne!(
        answer.status,
        StatusCode::FORBIDDEN,
        "the agent was started: {answer:?}"
    );
    assert!(!marker.exists(), "a program of the workspace has run");

    let mut npx = command("npx");
    npx.args(["--no", "planted-agent"])
        .current_dir(&workspace)
        .env("HOME", gateway.path(""));
    npx.output().expect("npx is there");
    assert!(
        marker.exists(),
        "in the folder of the workspace, npx runs its program"
    );
}

#[tokio::test]
async fn sessions_of_one_agent_share_a_home_and_agents_do_not() {
    let setup = Setup::fake(&[]).agent("other", fake_agent(), &[], "");
    let gateway = setup.start();
    let home = async |agent: &str| {
        let session = gateway.session(agent).await;
        let shown = gateway.turn(&session, "env").await["text"]
            .as_str()
            .expect("a text")
            .to_owned();
        let home = shown
            .lines()
            .find_map(|line| line.strip_prefix("HOME="))
            .expect("it has a HOME")
            .to_owned();
        (session, home)
    };
    let (first, one) = home("fake").await;
    let (second, same) = home("fake").await;
    let (_, other) = home("other").await;
    assert_ne!(first, second);
    assert_eq!(
        one, same,
        "a hook that one session writes runs in the next: SECURITY.md names this limit"
    );
    assert_ne!(one, other);
    let operator = gateway.path("");
    assert_ne!(
        Path::new(&one),
        operator,
        "the HOME of the operator is not that of an agent"
    );
    let limits = include_str!("../../../SECURITY.md").to_lowercase();
    assert!(limits.contains("home"), "SECURITY.md describes the limit");
}
