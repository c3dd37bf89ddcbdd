//! Reads of sessions by users that do not own them, and exports.

use reqwest::Method;
use serde_json::{Value, json};

use super::command::audit_command;
use super::{PATIENCE, audit, of, settled};
use crate::acp::raw::Acp;
use crate::key_life::{by, user_key};
use crate::support::gateway::KEY;
use crate::support::{Answer, Events, Gateway, Setup, eventually};

const LIMITS: &str = "limits.per_key.max_requests_per_minute = 100000\n";

/// A session of the owner with a turn, which bob can read.
async fn shared(gateway: &Gateway) -> String {
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    let path = format!("/v1/sessions/{session}/grants/user:bob");
    let grant = by(gateway, KEY, Method::PUT, &path).json(&json!({ "access": "read" }));
    assert_eq!(Answer::of(grant).await.status, 200);
    session
}

async fn get(gateway: &Gateway, key: &str, path: &str) {
    let request = by(gateway, key, Method::GET, path).header("x-request-id", "read-1");
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{path}");
}

/// The events of this type with their session, in the order of the log.
fn sessions<'a>(events: &'a [Value], kind: &str) -> Vec<&'a str> {
    let events = of(events, kind).into_iter();
    events
        .map(|event| event["sessionId"].as_str().expect("an id"))
        .collect()
}

#[tokio::test]
async fn read_of_anothers_session_is_recorded_once_on_each_surface() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", "read,files").await;
    let mut read = Vec::new();
    for path in [
        "",
        "/events",
        "/transcript",
        "/files",
        "/prompts/p1",
        "/terminals",
        "/changes",
    ] {
        let session = shared(&gateway).await;
        let path = format!("/v1/sessions/{session}{path}");
        for key in [KEY, &bob, &bob] {
            get(&gateway, key, &path).await;
        }
        read.push(session);
    }

    let session = shared(&gateway).await;
    let path = format!("/v1/events?session={session}");
    get(&gateway, &bob, &path).await;
    read.push(session);

    let session = shared(&gateway).await;
    let mut acp = Acp::open_with(&gateway, &bob, &json!({})).await;
    let mut stream = acp.stream(None, None).await;
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    let load = acp.send("session/load", params).await;
    let loaded = stream.response(load).await;
    assert!(loaded["error"].is_null(), "{loaded}");
    read.push(session);

    let events = settled(&mut gateway, "session.read").await;
    assert_eq!(sessions(&events, "session.read"), read);
    for event in &events {
        let actor = &event["actor"];
        assert_eq!(
            (&actor["kind"], &actor["name"]),
            (&json!("key"), &json!("bob"))
        );
        assert_eq!(actor["address"], "127.0.0.1");
        assert_eq!(event["owner"], "default/owner");
    }
    assert_eq!(events[0]["actor"]["httpRequestId"], "read-1");
}

#[tokio::test]
async fn stream_of_all_sessions_records_the_sessions_whose_events_it_contains() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", "read").await;
    let quiet = shared(&gateway).await;
    let session = shared(&gateway).await;
    let request = by(
        &gateway,
        &bob,
        Method::GET,
        "/v1/events/stream?types=prompt.",
    );
    let mut stream = Events::new(request.send().await.expect("a stream"));
    stream.until("ready").await;
    assert!(of(&audit(&gateway).await, "session.read").is_empty());
    gateway.turn(&session, "hello").await;
    stream
        .up_to("the end of the turn", |event| event.of("prompt.completed"))
        .await;
    // Only `session.changed` events, which the stream does not contain.
    let path = format!("/v1/sessions/{quiet}");
    let renamed = gateway
        .send(Method::PATCH, &path, &json!({ "title": "new" }))
        .await;
    assert_eq!(renamed.0, 200);
    let events = settled(&mut gateway, "session.read").await;
    assert_eq!(sessions(&events, "session.read"), [&session]);
}

#[tokio::test]
async fn read_is_recorded_again_in_the_next_period() {
    let gateway = Setup::fake(&[])
        .settings(LIMITS)
        .table("[testing]\naudit_window = \"20ms\"")
        .start();
    let bob = user_key(&gateway, "bob", "read").await;
    let session = shared(&gateway).await;
    let path = format!("/v1/sessions/{session}");
    eventually("the second period", PATIENCE, || async {
        get(&gateway, &bob, &path).await;
        (of(&audit(&gateway).await, "session.read").len() == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn exports_are_recorded_with_their_form() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", "read").await;
    let session = shared(&gateway).await;
    let path = format!("/v1/sessions/{session}/transcript");
    for key in [KEY, &bob] {
        for form in ["", "?format=md", "/markdown"] {
            get(&gateway, key, &format!("{path}{form}")).await;
        }
    }
    let file = gateway.path("moved");
    let moved = crate::support::gateway::command(crate::support::places::gateway_program())
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .args(["export", &session])
        .arg(&file)
        .output()
        .expect("the binary was built");
    assert!(moved.status.success(), "{moved:?}");
    let events = settled(&mut gateway, "session.exported").await;
    let found: Vec<_> = events
        .iter()
        .map(|event| {
            assert_eq!(event["sessionId"], session);
            let actor = &event["actor"];
            (&actor["kind"], &actor["name"], &event["form"])
        })
        .collect();
    let [key, command_line, owner, bob] =
        ["key", "command_line", "owner", "bob"].map(|it| json!(it));
    let [json, markdown, file] = ["json", "markdown", "file"].map(|it| json!(it));
    assert_eq!(
        found,
        [
            (&key, &owner, &json),
            (&key, &owner, &markdown),
            (&key, &bob, &json),
            (&key, &bob, &markdown),
            (&command_line, &Value::Null, &file),
        ]
    );
    assert!(audit_command(&gateway, &["verify"]).status.success());
}
