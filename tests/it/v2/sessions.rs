//! Sessions of v2 use resume, and their settings are options.

use std::path::Path;

use reqwest::Method;
use serde_json::json;

use super::{fake, setup};
use crate::support::Gateway;
use crate::support::log::{agent_text, all, one};

#[tokio::test]
async fn session_restored_by_resume_repeats_no_event() {
    let gateway = setup(
        &["--state", "state"],
        "pool = { max_size = 2, min_idle = 0, idle_timeout = \"200ms\" }",
    )
    .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "say text=one").await;
    gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;
    assert_eq!(gateway.turn(&session, "say text=two").await["text"], "two");
    let events = gateway.lawful(&session).await;
    assert_eq!(all(&events, "session.attached")[1]["by"], "resume");
    assert_eq!(agent_text(&events), "onetwo", "resume replays nothing");
    let state = events
        .iter()
        .rfind(|event| event["update"]["state"] == "idle" && event["promptId"].is_null());
    assert!(
        state.is_some_and(|event| event["late"].is_null()),
        "how the agent stands after the resume"
    );
}

#[tokio::test]
async fn session_unknown_to_the_agent_starts_again() {
    let gateway = setup(&["--fail-resume"], "")
        .settings("testing.min_backoff = \"10ms\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "crash").await;
    assert_eq!(gateway.turn(&session, "say text=two").await["text"], "two");
    let events = gateway.lawful(&session).await;
    let again = all(&events, "session.attached")[1];
    assert_eq!(
        (&again["by"], &again["context"]),
        (&json!("fresh"), &json!("lost"))
    );
}

#[tokio::test]
async fn the_mode_is_the_option_of_that_category() {
    let (gateway, session) = fake().await;
    let path = format!("/v1/sessions/{session}/mode");
    let (status, body) = gateway
        .send(Method::PUT, &path, &json!({ "modeId": "code" }))
        .await;
    assert_eq!((status.as_u16(), &body), (200, &json!({ "modes": null })));
    let shown = gateway.get_session(&session).await;
    assert_eq!(shown["configOptions"][0]["currentValue"], "code");
    let events = gateway.lawful(&session).await;
    let changed = one(&events, "session.changed");
    assert_eq!(changed["configOptions"][0]["currentValue"], "code");
    assert!(changed.get("currentModeId").is_none());
    let path = format!("/v1/sessions/{session}/config/model");
    let (status, body) = gateway
        .send(Method::PUT, &path, &json!({ "value": "large" }))
        .await;
    assert_eq!(
        (status.as_u16(), &body["configOptions"][1]["currentValue"]),
        (200, &json!("large"))
    );
}

/// A session with one message that only the agent knows. Returns the agent's id.
async fn left_behind(gateway: &Gateway, cwd: &Path) -> String {
    std::fs::create_dir_all(cwd).expect("the folder is ours");
    let created = gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "fake", "cwd": cwd }))
        .await;
    let session = created.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    gateway.turn(&session, "say text=before;tools").await;
    let deleted = gateway
        .call(Method::DELETE, &format!("/v1/sessions/{session}"))
        .await;
    assert_eq!(deleted.status, 204);
    let listed = gateway.get("/v1/agents/fake/sessions").await;
    listed["sessions"][0]["agentSessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("the agent still has it: {listed}"))
        .to_owned()
}

#[tokio::test]
async fn a_session_of_the_agent_is_adopted_with_its_history() {
    let gateway = setup(&["--state", "state", "--log", "received"], "").start();
    let cwd = gateway.path("data/workspaces/adopted");
    let id = left_behind(&gateway, &cwd).await;
    let body = json!({ "agent": "fake", "agentSessionId": id, "cwd": cwd });
    let adopted = gateway.posted("/v1/sessions", &[], &body).await;
    assert_eq!(adopted.status, 201, "{adopted:?}\n{}", gateway.log());
    let session = adopted.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_eq!(adopted.body["configOptions"][0]["configId"], "how");
    let events = gateway.lawful(&session).await;
    assert_eq!(agent_text(&events), "before");
    let replayed = all(&events, "session.update")
        .into_iter()
        .filter(|event| event["replayed"] == true);
    assert_eq!(
        replayed.count(),
        6,
        "the prompt, the message, four updates of a tool call"
    );
    assert_eq!(one(&events, "session.attached")["by"], "adopt");
    let received = std::fs::read_to_string(gateway.path("data/homes/default/fake/received"));
    let received = received.expect("the agent's own record");
    let resume = received
        .lines()
        .find(|line| line.contains("session/resume"))
        .expect("it was resumed");
    assert!(
        resume.contains(r#""replayFrom":{"type":"start"}"#),
        "{resume}"
    );
    assert_eq!(
        gateway.turn(&session, "say text=after").await["text"],
        "after"
    );
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn servers_are_listed_with_their_transport() {
    let table = "[mcp.files]\ncommand = \"/bin/true\"\nargs = [\"-v\"]";
    let gateway = setup(&["--log", "received"], "").table(table).start();
    let body = json!({ "agent": "fake", "mcpServers": ["files"] });
    assert_eq!(gateway.posted("/v1/sessions", &[], &body).await.status, 201);
    let received = std::fs::read_to_string(gateway.path("data/homes/default/fake/received"));
    let received = received.expect("the agent's own record");
    let new = received
        .lines()
        .find(|line| line.contains("session/new"))
        .expect("a session was made");
    let new: serde_json::Value = serde_json::from_str(new).expect("JSON");
    let servers = json!([{ "type": "stdio", "name": "files", "command": "/bin/true", "args": ["-v"], "env": [] }]);
    assert_eq!(new["params"]["mcpServers"], servers);
}

#[tokio::test]
async fn the_files_and_terminals_of_the_client_are_not_there() {
    let gateway = setup(&[], "files = \"client\"\nterminals = \"client\"").start();
    let session = gateway.session("fake").await;
    assert_eq!(
        gateway.turn(&session, "unserved").await["text"],
        "-32601-32601"
    );
}

#[tokio::test]
async fn a_process_that_closed_its_session_serves_the_next_and_a_close_ends_the_turn() {
    let gateway = setup(&[], "pool = { max_size = 1, min_idle = 0 }").start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "say text=x;hang").await;
    gateway
        .log_until(&session, |event| event["update"]["messageId"] == "a1")
        .await;
    let closed = gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/close"))
        .await;
    assert!(closed.status.is_success());
    let events = gateway.lawful(&session).await;
    assert_eq!(one(&events, "prompt.completed")["stopReason"], "cancelled");
    let pids = gateway.agents_alive();
    let other = gateway.session("fake").await;
    assert_eq!(gateway.turn(&other, "say text=y").await["text"], "y");
    assert_eq!(gateway.agents_alive(), pids, "the same process");
    let events = gateway.lawful(&session).await;
    assert_eq!(
        all(&events, "prompt.completed").len(),
        1,
        "the agent's own word of it is no second end"
    );
}
