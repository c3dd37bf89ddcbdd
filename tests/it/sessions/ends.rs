//! Close, attach again, delete.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::log::{agent_text, all, kinds, one};
use crate::support::{Answer, Gateway, Setup, eventually};

async fn post(gateway: &Gateway, session: &str, what: &str) -> Answer {
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/{what}"))
        .await
}

fn received(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("data/homes/default/fake/received")).unwrap_or_default()
}

#[tokio::test]
async fn a_closed_session_is_read_and_not_prompted_until_it_is_attached() {
    let gateway = Setup::fake(&["--state", "state"]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    let closed = post(&gateway, &session, "close").await;
    assert_eq!(
        (closed.status, &closed.body["state"]),
        (StatusCode::OK, &json!("closed"))
    );
    assert_eq!(closed.body["attached"], false);
    gateway.none_alive().await;
    let before = gateway.lawful(&session).await;
    let by = gateway.get("/v1").await["principal"]["id"].clone();
    assert_eq!(one(&before, "session.closed")["by"], by);
    assert_eq!(one(&before, "session.detached")["reason"], "closed");
    for queue in [false, true] {
        let body = json!({ "prompt": "hello", "queue": queue });
        let answer = gateway
            .posted(&format!("/v1/sessions/{session}/prompts"), &[], &body)
            .await;
        answer.problem(409, "session_closed");
    }
    let mode = gateway.request(Method::PUT, &format!("/v1/sessions/{session}/mode"));
    Answer::of(mode.json(&json!({ "modeId": "code" })))
        .await
        .problem(409, "session_closed");
    let again = post(&gateway, &session, "close").await;
    assert_eq!(
        (again.status, &again.body["state"]),
        (StatusCode::OK, &json!("closed"))
    );
    assert_eq!(gateway.all_events(&session).await, before);
    assert_eq!(
        gateway
            .get(&format!("/v1/sessions/{session}/prompts/p1"))
            .await["text"],
        "one"
    );

    let attached = post(&gateway, &session, "attach").await;
    assert_eq!(
        (attached.status, &attached.body["state"]),
        (StatusCode::OK, &json!("idle"))
    );
    assert_eq!(attached.body["attached"], true);
    assert_eq!(gateway.turn(&session, "echo two").await["text"], "two");
    let events = gateway.lawful(&session).await;
    assert_eq!(all(&events, "session.attached")[1]["by"], "load");
    assert_eq!(agent_text(&events), "onetwo");
}

#[tokio::test]
async fn agent_with_close_receives_session_close() {
    let gateway = Setup::fake(&["--close", "--log", "received"]).start();
    let session = gateway.session("fake").await;
    post(&gateway, &session, "close").await;
    eventually(
        "the agent was asked to close",
        Duration::from_secs(30),
        || async {
            received(&gateway)
                .contains(r#""method":"session/close""#)
                .then_some(())
        },
    )
    .await;
}

#[tokio::test]
async fn close_ends_the_running_turn_and_queued_prompts() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "permission").await;
    gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    let body = json!({ "prompt": "echo never", "queue": true });
    gateway
        .posted(&format!("/v1/sessions/{session}/prompts"), &[], &body)
        .await;
    let closed = post(&gateway, &session, "close").await;
    assert_eq!(
        (closed.status, &closed.body["state"]),
        (StatusCode::OK, &json!("closed"))
    );
    assert_eq!(
        (&closed.body["queued"], &closed.body["requests"]),
        (&json!([]), &json!([]))
    );
    let events = gateway.lawful(&session).await;
    let ends = all(&events, "prompt.completed");
    assert_eq!(ends.len(), 2);
    assert!(ends.iter().all(|end| end["stopReason"] == "cancelled"));
    assert_eq!(one(&events, "request.resolved")["resolution"], "cancelled");
    assert_eq!(
        kinds(&events)[events.len() - 2..],
        ["session.closed", "session.detached"]
    );
    gateway.none_alive().await;
}

#[tokio::test]
async fn attach_starts_a_process_and_is_idempotent() {
    let gateway = Setup::fake(&["--state", "state"])
        .settings("testing.min_backoff = \"10ms\"")
        .start();
    let session = gateway.session("fake").await;
    let before = gateway.all_events(&session).await;
    assert_eq!(
        post(&gateway, &session, "attach").await.body["attached"],
        true
    );
    assert_eq!(gateway.all_events(&session).await, before);
    gateway.turn(&session, "crash").await;
    assert_eq!(gateway.get_session(&session).await["attached"], false);
    let answers = tokio::join!(
        post(&gateway, &session, "attach"),
        post(&gateway, &session, "attach")
    );
    for answer in [answers.0, answers.1] {
        assert_eq!(
            (answer.status, &answer.body["attached"]),
            (StatusCode::OK, &json!(true))
        );
    }
    assert_eq!(
        all(&gateway.lawful(&session).await, "session.attached").len(),
        2
    );
}

/// Every route of a session is 404.
async fn assert_gone(gateway: &Gateway, session: &str) {
    for path in [
        "",
        "/events",
        "/prompts",
        "/prompts/p1",
        "/requests",
        "/transcript",
        "/stderr",
    ] {
        let answer = gateway
            .call(Method::GET, &format!("/v1/sessions/{session}{path}"))
            .await;
        answer.problem(404, "not_found");
    }
    let prompt = json!({ "prompt": "hello" });
    let answer = gateway
        .posted(&format!("/v1/sessions/{session}/prompts"), &[], &prompt)
        .await;
    answer.problem(404, "not_found");
    for what in ["attach", "close", "cancel"] {
        post(gateway, session, what).await.problem(404, "not_found");
    }
    gateway
        .call(Method::DELETE, &format!("/v1/sessions/{session}"))
        .await
        .problem(404, "not_found");
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
}

#[tokio::test]
async fn delete_removes_log_folder_and_process_of_a_session() {
    let mut gateway = Setup::fake(&["--delete", "--log", "received"]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    let folder = gateway.path("data/workspaces").join(&session);
    std::fs::write(folder.join("file"), "work").expect("the folder is there");
    let mut own = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    own.until("ready").await;
    let mut everything = gateway.events("/v1/events").await;
    everything.until("ready").await;
    let answer = gateway
        .call(Method::DELETE, &format!("/v1/sessions/{session}"))
        .await;
    assert_eq!(
        (answer.status, &answer.body),
        (StatusCode::NO_CONTENT, &Value::Null)
    );
    assert_gone(&gateway, &session).await;
    let frames = own.rest().await;
    let [.., deleted, end] = &*frames else {
        panic!("two frames at least")
    };
    assert!(
        deleted.of("session.deleted"),
        "the last of its log: {frames:?}"
    );
    assert_eq!(end.data["reason"], "session_deleted");
    let deleted = everything
        .until("session.deleted")
        .await
        .pop()
        .expect("a frame");
    assert_eq!(deleted.data["sessionId"], session);
    assert_eq!(
        deleted.data["by"],
        gateway.get("/v1").await["principal"]["id"]
    );
    gateway.none_alive().await;
    eventually("its folder is gone", Duration::from_secs(30), || async {
        (!folder.exists()).then_some(())
    })
    .await;
    assert!(
        received(&gateway).contains(r#""method":"session/delete""#),
        "the agent was asked to"
    );
    gateway.kill();
    gateway.start();
    assert_gone(&gateway, &session).await;
}

#[tokio::test]
async fn session_can_be_deleted_in_every_state() {
    for text in [
        "stream n=1; hang cancel=no",
        "permission",
        "ignore-cancel ms=20",
        "crash",
    ] {
        let gateway = Setup::fake(&["--ignore-eof"])
            .settings(
                "testing.stop_stdin_timeout = \"200ms\"\ntesting.session_close_timeout = \"200ms\"",
            )
            .start();
        let session = gateway.session("fake").await;
        gateway.prompt(&session, text).await;
        gateway
            .log_until(&session, |event| event["type"] == "session.update")
            .await;
        let answer = gateway
            .call(Method::DELETE, &format!("/v1/sessions/{session}"))
            .await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{text}: {answer:?}");
        assert_gone(&gateway, &session).await;
        gateway.none_alive().await;
    }
}

#[tokio::test]
async fn delete_keeps_a_folder_that_the_session_did_not_create() {
    let gateway = Setup::fake(&[]).start();
    let project = gateway.path("data/workspaces/project");
    std::fs::create_dir(&project).expect("the root is there");
    std::fs::write(project.join("file"), "work").expect("the folder is ours");
    let body = json!({ "agent": "fake", "cwd": "project" });
    let created = gateway.posted("/v1/sessions", &[], &body).await;
    let session = created.body["sessionId"].as_str().expect("an id");
    gateway
        .call(Method::DELETE, &format!("/v1/sessions/{session}"))
        .await;
    gateway.none_alive().await;
    assert_eq!(
        std::fs::read_to_string(project.join("file"))
            .ok()
            .as_deref(),
        Some("work")
    );
}

#[tokio::test]
async fn requests_that_meet_a_delete_are_404_and_repeated_deletes_204() {
    const ROUNDS: usize = 12;
    let gateway = Setup::fake(&[]).start();
    for round in 0..ROUNDS {
        let session = gateway.session("fake").await;
        if round % 2 == 0 {
            // The actor of a session with a process runs until the process has stopped.
            gateway.turn(&session, "echo hello").await;
        }
        let path = format!("/v1/sessions/{session}");
        let mut pending = JoinSet::new();
        let mut send = |method: Method, path: String| {
            let request = gateway.request(method.clone(), &path);
            pending.spawn(async move { (method, request.send().await.expect("an answer")) });
        };
        for _ in 0..4 {
            send(Method::DELETE, path.clone());
            send(Method::GET, path.clone());
            send(Method::POST, format!("{path}/close"));
            send(Method::POST, format!("{path}/attach"));
        }
        let mut deleted = 0;
        while let Some(joined) = pending.join_next().await {
            let (method, answer) = joined.expect("no panic");
            let status = answer.status().as_u16();
            deleted += usize::from(method == Method::DELETE && status == 204);
            let expected: &[u16] = match method {
                Method::DELETE => &[204, 404],
                // A close or an attach may also come before the delete, and then find the session closed.
                _ => &[200, 404, 409],
            };
            let body = answer.text().await.expect("a body");
            assert!(expected.contains(&status), "{method} {status}: {body}");
        }
        assert!(deleted >= 1, "a delete has succeeded");
        gateway
            .call(Method::GET, &path)
            .await
            .problem(404, "not_found");
    }
    assert!(
        !gateway.log().contains("internal error"),
        "{}",
        gateway.log()
    );
}
