//! Signing in by a call, and out.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::key_life::{by, key};
use crate::support::log::{all, one};
use crate::support::{Answer, Follower, Gateway, Setup, eventually};

const AUTH: &str = "/v1/agents/fake/auth";

async fn sign_in(gateway: &Gateway) {
    let answer = gateway
        .posted(AUTH, &[], &json!({ "methodId": "login" }))
        .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
}

#[tokio::test]
async fn a_session_that_needs_a_sign_in_works_after_it_also_in_new_processes() {
    let gateway = Setup::fake(&["--auth-required"]).start();
    let before = gateway.get(AUTH).await;
    assert_eq!(
        (&before["state"], &before["authMethods"]),
        (&json!("unknown"), &json!(null))
    );
    let body = json!({ "agent": "fake" });
    let problem = gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(424, "agent_auth_required");
    assert_eq!(problem["authMethods"][0]["id"], "login");
    let known = gateway.get(AUTH).await;
    assert_eq!(
        (&known["state"], &known["status"]),
        (&json!("unauthenticated"), &json!(null))
    );
    assert_eq!(known["authMethods"], problem["authMethods"]);
    assert_eq!(
        (&known["canLogout"], &known["terminalAuth"]),
        (&json!(false), &json!(false))
    );

    sign_in(&gateway).await;
    assert_eq!(gateway.get(AUTH).await["state"], "authenticated");
    // The sign-in is in the memory of one process; each of these has another one.
    let a = gateway.session("fake").await;
    let b = gateway.session("fake").await;
    let pids = [
        gateway.turn(&a, "pid").await["text"].clone(),
        gateway.turn(&b, "pid").await["text"].clone(),
    ];
    assert_ne!(pids[0], pids[1]);
}

#[tokio::test]
async fn restart_discards_state_of_processes() {
    let mut gateway = Setup::fake(&["--auth-required"]).start();
    sign_in(&gateway).await;
    gateway.session("fake").await;
    gateway.stop();
    gateway.start();
    let body = json!({ "agent": "fake" });
    gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(424, "agent_auth_required");
}

#[tokio::test]
async fn sign_in_stored_on_disk_is_used_and_not_repeated() {
    let file = tempfile::tempdir().expect("a folder");
    let log = tempfile::NamedTempFile::new().expect("a file");
    let signed_in = file.path().join("signed-in");
    let log_path = log.path().to_str().expect("text");
    let args = [
        "--auth-required",
        "--auth-status",
        "--logout",
        "--auth-file",
        signed_in.to_str().expect("text"),
        "--log",
        log_path,
    ];
    let gateway = Setup::fake(&args).start();
    let body = json!({ "agent": "fake" });
    gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(424, "agent_auth_required");
    let auth = gateway.get(AUTH).await;
    assert_eq!(
        auth["status"],
        json!({ "state": "unauthenticated", "accounts": [] })
    );
    assert_eq!(
        (&auth["state"], &auth["canLogout"]),
        (&json!("unauthenticated"), &json!(true))
    );
    sign_in(&gateway).await;
    for _ in 0..2 {
        gateway.session("fake").await;
    }
    assert_eq!(gateway.get(AUTH).await["state"], "authenticated");
    let messages = std::fs::read_to_string(log.path()).expect("it is ours");
    assert_eq!(
        messages.matches(r#""method":"authenticate""#).count(),
        1,
        "{messages}"
    );

    assert_eq!(
        gateway.call(Method::DELETE, AUTH).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(gateway.get(AUTH).await["state"], "unauthenticated");
    gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(424, "agent_auth_required");
}

#[tokio::test]
async fn signing_out_needs_a_capability_and_ends_processes_that_were_signed_in() {
    let gateway = Setup::fake(&["--auth-required"]).start();
    gateway
        .call(Method::DELETE, AUTH)
        .await
        .problem(501, "agent_unsupported");

    let gateway = Setup::fake(&["--auth-required", "--logout", "--close"]).start();
    sign_in(&gateway).await;
    let idle = gateway.session("fake").await;
    let busy = gateway.session("fake").await;
    gateway.prompt(&busy, "stream n=1; hang").await;
    gateway
        .log_until(&busy, |event| event["type"] == "session.update")
        .await;
    assert_eq!(
        gateway.call(Method::DELETE, AUTH).await.status,
        StatusCode::NO_CONTENT
    );
    let events = gateway
        .log_until(&idle, |event| event["type"] == "session.detached")
        .await;
    assert_eq!(one(&events, "session.detached")["reason"], "reclaimed");
    assert!(
        all(&gateway.all_events(&busy).await, "session.detached").is_empty(),
        "a turn goes on"
    );
    gateway
        .call(Method::POST, &format!("/v1/sessions/{busy}/cancel"))
        .await;
    gateway
        .log_until(&busy, |event| event["type"] == "session.detached")
        .await;
    gateway.none_alive().await;
    let body = json!({ "agent": "fake" });
    gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(424, "agent_auth_required");
}

#[tokio::test]
async fn sign_in_works_while_idle_sessions_use_every_process() {
    let setup = Setup::fake_with(
        &["--auth-required", "--close"],
        "pool = { max_size = 1, min_idle = 0 }",
    );
    let gateway = setup.start();
    sign_in(&gateway).await;
    let session = gateway.session("fake").await;
    sign_in(&gateway).await;
    // The process can receive the sign-in in addition to its session, and stops afterwards.
    let mut follower = Follower::start(&gateway, &session);
    follower
        .until("it has no process", |event| {
            event["type"] == "session.detached"
        })
        .await;
    let events = gateway.lawful(&session).await;
    assert_eq!(one(&events, "session.detached")["reason"], "reclaimed");
    assert_eq!(gateway.turn(&session, "echo on").await["text"], "on");
}

#[tokio::test]
async fn invalid_sign_in_is_reported() {
    let gateway = Setup::fake_with(&["--auth-required"], "meta = [\"listed\"]").start();
    let post = async |body: Value| gateway.posted(AUTH, &[], &body).await;
    let pointer = |problem: Value| problem["errors"][0]["pointer"].clone();
    assert_eq!(
        pointer(
            post(json!({ "methodId": "nope" }))
                .await
                .problem(422, "invalid")
        ),
        "/methodId"
    );
    let unlisted = json!({ "methodId": "login", "_meta": { "gateway": {} } });
    assert_eq!(
        pointer(post(unlisted).await.problem(422, "invalid")),
        "/_meta/gateway"
    );
    assert_eq!(
        pointer(
            post(json!({ "methodId": "login", "x": 1 }))
                .await
                .problem(422, "invalid")
        ),
        "/x"
    );
    assert_eq!(
        post(json!({ "methodId": "login", "_meta": { "listed": 1 } }))
            .await
            .status,
        StatusCode::NO_CONTENT
    );
    post(json!({ "methodId": "shell" }))
        .await
        .problem(501, "agent_unsupported");
    gateway
        .call(Method::GET, "/v1/agents/other/auth")
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn reading_needs_read_and_signing_in_and_out_admin() {
    let gateway = Setup::fake(&["--auth-required", "--logout"]).start();
    let most = key(&gateway, "most", "read,prompt,approve,files").await;
    assert_eq!(
        Answer::of(by(&gateway, &most, Method::GET, AUTH))
            .await
            .status,
        StatusCode::OK
    );
    let posted = by(&gateway, &most, Method::POST, AUTH).json(&json!({ "methodId": "login" }));
    Answer::of(posted).await.problem(403, "forbidden");
    Answer::of(by(&gateway, &most, Method::DELETE, AUTH))
        .await
        .problem(403, "forbidden");
    let prompt = key(&gateway, "prompter", "prompt").await;
    Answer::of(by(&gateway, &prompt, Method::GET, AUTH))
        .await
        .problem(403, "forbidden");
}

#[tokio::test]
async fn agent_without_auth_methods_needs_no_sign_in() {
    let gateway = Setup::fake(&[]).start();
    gateway.session("fake").await;
    let auth = gateway.get(AUTH).await;
    assert_eq!(
        (&auth["state"], &auth["authMethods"]),
        (&json!("not_required"), &json!([]))
    );
    eventually("one process runs", Duration::from_secs(30), || async {
        (gateway.get("/v1/agents/fake").await["pool"]["processes"] == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn sign_in_rejected_by_new_processes_is_repeated_once() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let args = [
        "--auth-required",
        "--auth-once",
        "--log",
        log.path().to_str().expect("text"),
    ];
    let gateway = Setup::fake(&args)
        .settings("testing.call_timeout = \"5s\"")
        .start();
    sign_in(&gateway).await;
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo on").await;
    let body = json!({ "agent": "fake" });
    for _ in 0..2 {
        gateway
            .posted("/v1/sessions", &[], &body)
            .await
            .problem(424, "agent_auth_required");
    }
    assert_eq!(gateway.get(AUTH).await["state"], "unauthenticated");
    let messages = eventually("the cancel", Duration::from_secs(30), || async {
        let messages = std::fs::read_to_string(log.path()).expect("it is ours");
        messages.contains("$/cancel_request").then_some(messages)
    })
    .await;
    assert_eq!(
        messages.matches(r#""method":"authenticate""#).count(),
        2,
        "{messages}"
    );
    assert_eq!(
        messages.matches(r#""method":"$/cancel_request""#).count(),
        1,
        "{messages}"
    );
}
