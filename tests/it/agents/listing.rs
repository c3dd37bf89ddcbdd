//! The sessions that an agent itself knows of.

use std::cell::Cell;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::key_life::{by, key};
use crate::support::{Answer, Setup, eventually};

const LIST: &str = "/v1/agents/fake/sessions";

#[tokio::test]
async fn sessions_are_listed_with_ours_and_only_below_the_roots() {
    let state = tempfile::NamedTempFile::new().expect("a file");
    let file = state.path().to_str().expect("text");
    let gateway = Setup::fake(&["--list", "--close", "--delete", "--state", file]).start();
    let session = gateway.session("fake").await;
    let folder = gateway.get_session(&session).await["cwd"]
        .as_str()
        .expect("a folder")
        .to_owned();
    std::fs::create_dir(gateway.path("data/workspaces/shared")).expect("the root is ours");
    let shared = gateway
        .path("data/workspaces/shared")
        .canonicalize()
        .expect("it is there");
    let shared = shared.to_str().expect("text");
    let others = [
        format!(r#"{{"sessionId":"theirs","cwd":{shared:?}}}"#),
        r#"{"sessionId":"outside","cwd":"/etc"}"#.to_owned(),
        r#"{"sessionId":"relative","cwd":"shared"}"#.to_owned(),
        format!(r#"{{"sessionId":"gone","cwd":"{shared}/gone"}}"#),
        format!(r#"{{"sessionId":"dots","cwd":"{shared}/../../../"}}"#),
    ];
    let made = std::fs::read_to_string(state.path()).expect("it is ours");
    std::fs::write(state.path(), format!("{made}{}\n", others.join("\n"))).expect("it is ours");

    let list = gateway.get(LIST).await;
    let sessions = list["sessions"].as_array().expect("sessions");
    assert_eq!(sessions.len(), 2, "{list}");
    let ours = sessions
        .iter()
        .find(|one| one["sessionId"] == *session)
        .expect("ours");
    assert_eq!(ours["cwd"], *folder);
    assert!(
        ours["agentSessionId"]
            .as_str()
            .expect("the agent's id")
            .starts_with("fake-"),
        "{ours}"
    );
    assert_eq!(
        (&ours["title"], &ours["_meta"]["x"]),
        (&json!("Fake"), &json!(1.1)),
        "its own members are there"
    );
    let theirs = sessions
        .iter()
        .find(|one| one["agentSessionId"] == "theirs")
        .expect("theirs");
    assert_eq!(
        (&theirs["sessionId"], &theirs["cwd"]),
        (&json!(null), &json!(shared))
    );
    assert_eq!(list["nextCursor"], json!(null));
    let text = gateway
        .request(Method::GET, LIST)
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("text");
    assert!(text.contains(r#""_meta":{"x":1.10}"#), "raw: {text}");

    // A deleted session has no owner.
    gateway
        .call(Method::DELETE, &format!("/v1/sessions/{session}"))
        .await;
    // The folder is deleted after the agent's response, so the file contains the last line.
    eventually(
        "the session's folder has gone with it",
        Duration::from_secs(10),
        || async { std::fs::create_dir(&folder).ok() },
    )
    .await;
    let made = std::fs::read_to_string(state.path()).expect("it is ours");
    let kept: Vec<&str> = made
        .lines()
        .filter(|line| !line.contains(r#""deleted":true"#))
        .collect();
    std::fs::write(state.path(), format!("{}\n", kept.join("\n"))).expect("it is ours");
    let list = gateway.get(LIST).await;
    let left = list["sessions"].as_array().expect("sessions");
    assert_eq!(
        (
            left.len(),
            left.iter().all(|one| one["sessionId"].is_null())
        ),
        (2, true),
        "{list}"
    );
}

#[tokio::test]
async fn a_folder_narrows_the_list_only_below_the_roots() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let gateway = Setup::fake(&["--list", "--log", log.path().to_str().expect("text")]).start();
    std::fs::create_dir(gateway.path("data/workspaces/a")).expect("the root is ours");
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = gateway
        .request(Method::GET, &format!("{LIST}?cwd=a&cursor=0~next"))
        .header("traceparent", parent);
    assert_eq!(Answer::of(request).await.status, StatusCode::OK);
    let folder = gateway
        .path("data/workspaces/a")
        .canonicalize()
        .expect("it is there");
    let params = json!({ "cwd": folder, "cursor": "next", "_meta": { "traceparent": parent } });
    let messages = std::fs::read_to_string(log.path()).expect("it is ours");
    let asked = messages
        .lines()
        .find(|line| line.contains("session/list"))
        .expect("it was asked");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(asked).expect("JSON")["params"],
        params
    );
    gateway
        .call(Method::GET, &format!("{LIST}?cwd=/etc"))
        .await
        .problem(403, "forbidden");
    gateway
        .call(Method::GET, &format!("{LIST}?cwd=b"))
        .await
        .problem(422, "invalid");
    gateway
        .call(Method::GET, &format!("{LIST}?other=b"))
        .await
        .problem(422, "invalid");
}

#[tokio::test]
async fn it_needs_the_agents_capability_and_the_scope_admin() {
    let gateway = Setup::fake(&[]).start();
    gateway
        .call(Method::GET, LIST)
        .await
        .problem(501, "agent_unsupported");
    let key = key(&gateway, "most", "read,prompt,approve,files").await;
    Answer::of(by(&gateway, &key, Method::GET, LIST))
        .await
        .problem(403, "forbidden");
}

#[tokio::test]
async fn calls_without_a_session_reclaim_the_longest_idle_process() {
    let args = ["--list", "--close", "--auth-status", "--state", "state"];
    let more = "pool = { max_size = 1, min_idle = 0 }\nrpc = [\"_vendor/*\"]";
    let gateway = Setup::fake_with(&args, more)
        .settings("testing.short_lease_timeout = \"30s\"")
        .start();
    let session = gateway.session("fake").await;
    let echo = json!({ "method": "_vendor/echo" });
    for round in 0..3 {
        assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
        let answer = match round {
            0 => gateway.call(Method::GET, LIST).await,
            1 => gateway.call(Method::GET, "/v1/agents/fake/auth").await,
            _ => gateway.posted("/v1/agents/fake/rpc", &[], &echo).await,
        };
        assert_eq!(answer.status, StatusCode::OK, "round {round}: {answer:?}");
        let status = &answer.body["status"]["state"];
        assert!(
            round != 1 || status.is_string(),
            "the agent was asked: {answer:?}"
        );
    }
    // The last answer does not wait for the commit of the detach before it.
    let detached = Cell::new(0);
    let log = gateway.log_until(&session, |event| {
        detached.set(detached.get() + usize::from(event["type"] == "session.detached"));
        detached.get() == 3
    });
    log.await;
    let events = gateway.lawful(&session).await;
    let detached = events
        .iter()
        .filter(|event| event["type"] == "session.detached")
        .count();
    assert_eq!(detached, 3, "{events:?}");
    let pool = gateway.get("/v1/agents/fake").await["pool"].clone();
    assert_eq!(
        (&pool["leased"], &pool["waiting"]),
        (&json!(0), &json!(0)),
        "it was given back: {pool}"
    );
}

#[tokio::test]
async fn calls_that_the_agent_does_not_offer_are_refused_at_once() {
    let setup = Setup::fake_with(&["--close"], "pool = { max_size = 1, min_idle = 0 }");
    let gateway = setup
        .settings("testing.short_lease_timeout = \"60s\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "hang").await;
    for (method, path) in [
        (Method::GET, LIST),
        (Method::DELETE, "/v1/agents/fake/auth"),
    ] {
        let began = Instant::now();
        gateway
            .call(method, path)
            .await
            .problem(501, "agent_unsupported");
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{path} waited for a process"
        );
    }
}
