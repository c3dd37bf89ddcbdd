//! Requests that no person answers: policy, deadline, cancel, the agent's own second thoughts, a restart.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::asking;
use crate::support::log::{agent_text, all, one};
use crate::support::{Setup, eventually};

const CANCELLED: &str = r#"{"outcome":{"outcome":"cancelled"}}"#;

fn cancelled() -> Value {
    serde_json::from_str(CANCELLED).expect("JSON")
}

#[tokio::test]
async fn a_kind_that_the_operator_allows_is_answered_by_the_policy() {
    let gateway = Setup::fake_with(&[], "permissions = { allow = [\"edit\"] }").start();
    let session = gateway.session("fake").await;
    assert_eq!(
        gateway.turn(&session, "permission").await["text"],
        "permission: allow"
    );
    let events = gateway.lawful(&session).await;
    let resolved = one(&events, "request.resolved");
    assert_eq!(
        (&resolved["resolution"], &resolved["by"]),
        (&json!("policy"), &Value::Null)
    );
    assert_eq!(
        resolved["result"]["outcome"]["optionId"], "allow",
        "once, never for always"
    );
    one(&events, "request.created");
}

#[tokio::test]
async fn a_kind_that_the_operator_does_not_allow_waits_for_a_person() {
    let setup = Setup::fake_with(&[], "permissions = { allow = [\"read\", \"search\"] }");
    let (gateway, session, _) = asking(setup, "permission").await;
    assert_eq!(gateway.get_session(&session).await["state"], "waiting");
}

#[tokio::test]
async fn session_can_restrict_but_not_extend_the_operators_policy() {
    let gateway = Setup::fake_with(&[], "permissions = { allow = [\"edit\"] }").start();
    for policy in [
        json!({ "permissions": { "allow": ["edit", "execute"] } }),
        json!({ "permissions": { "onTimeout": "wait" } }),
        json!({ "files": "gateway" }),
        json!({ "terminals": "client" }),
    ] {
        let body = json!({ "agent": "fake", "policy": policy });
        let problem = gateway
            .posted("/v1/sessions", &[], &body)
            .await
            .problem(422, "invalid");
        let pointer = problem["errors"][0]["pointer"].as_str().expect("a pointer");
        assert!(pointer.starts_with("/policy/"), "{problem}");
    }
    gateway.assert_nothing_left().await;
    let policy = json!({ "permissions": { "allow": [], "timeoutSeconds": 1 } });
    let body = json!({ "agent": "fake", "policy": policy });
    let created = gateway.posted("/v1/sessions", &[], &body).await;
    assert_eq!(
        (created.status.as_u16(), &created.body["policy"]),
        (201, &policy)
    );
    let session = created.body["sessionId"].as_str().expect("an id");
    assert_eq!(
        gateway.turn(session, "permission").await["text"],
        "permission: reject"
    );
    assert_eq!(
        one(&gateway.lawful(session).await, "request.resolved")["resolution"],
        "expired"
    );
}

#[tokio::test]
async fn unanswered_permission_is_rejected_by_policy() {
    let gateway = Setup::fake_with(&[], "permissions = { timeout = \"300ms\" }").start();
    let session = gateway.session("fake").await;
    let began = Instant::now();
    assert_eq!(
        gateway.turn(&session, "permission").await["text"],
        "permission: reject"
    );
    assert!((Duration::from_millis(300)..Duration::from_secs(30)).contains(&began.elapsed()));
    let events = gateway.lawful(&session).await;
    let resolved = one(&events, "request.resolved");
    assert_eq!(
        (&resolved["resolution"], &resolved["by"]),
        (&json!("expired"), &Value::Null)
    );
    let deadline = &one(&events, "request.created")["deadline"];
    assert!(
        deadline.as_str() <= resolved["time"].as_str(),
        "not before its deadline"
    );
    let path = format!("/v1/sessions/{session}/permissions/r1");
    let late = gateway
        .posted(&path, &[], &json!({ "optionId": "allow" }))
        .await;
    assert_eq!(
        late.problem(409, "request_resolved")["resolution"],
        "expired"
    );
}

#[tokio::test]
async fn request_with_policy_wait_has_no_deadline() {
    let more =
        "permissions = { on_timeout = \"wait\", timeout = \"50ms\" }\nturn_idle_timeout = \"6s\"";
    let (gateway, session, created) = asking(Setup::fake_with(&[], more), "permission").await;
    assert_eq!(created["deadline"], Value::Null);
    // Another session lives through many such deadlines meanwhile.
    let other = gateway.session("fake").await;
    gateway.turn(&other, "slow chunks=70 ms=100").await;
    assert_eq!(
        gateway.get_session(&session).await["state"],
        "waiting",
        "nor is it taken for silence"
    );
    let path = format!("/v1/sessions/{session}/permissions/r1");
    assert_eq!(
        gateway
            .posted(&path, &[], &json!({ "optionId": "allow" }))
            .await
            .status,
        204
    );
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(agent_text(&events), "permission: allow");
}

#[tokio::test]
async fn cancel_answers_open_requests_as_cancelled() {
    for text in ["permissions n=3", "permission wait=yes"] {
        let (gateway, session, _) = asking(Setup::fake(&["--log", "received"]), text).await;
        let count = if text.contains("n=3") { 3 } else { 1 };
        gateway
            .log_until(&session, |event| event["requestId"] == format!("r{count}"))
            .await;
        let answer = gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
            .await;
        assert_eq!(answer.status, 202);
        let events = gateway
            .log_until(&session, |event| event["type"] == "prompt.completed")
            .await;
        assert_eq!(events.last().expect("the end")["stopReason"], "cancelled");
        let resolved = all(&events, "request.resolved");
        assert_eq!(resolved.len(), count);
        for event in resolved {
            assert_eq!(
                (&event["resolution"], &event["result"]),
                (&json!("cancelled"), &cancelled())
            );
        }
        gateway.lawful(&session).await;
        // The agent may end its turn at the cancel, and read the answers that follow it a moment later.
        let received = gateway.path("data/homes/default/fake/received");
        eventually(
            "the agent received each answer",
            Duration::from_secs(10),
            async || {
                let received = std::fs::read_to_string(&received).expect("the agent's own record");
                (received.matches(CANCELLED).count() == count).then_some(())
            },
        )
        .await;
        let late = format!("/v1/sessions/{session}/permissions/r1");
        let late = gateway
            .posted(&late, &[], &json!({ "optionId": "allow" }))
            .await;
        assert_eq!(
            late.problem(409, "request_resolved")["resolution"],
            "cancelled"
        );
    }
}

#[tokio::test]
async fn request_cancelled_by_the_agent_is_withdrawn() {
    for ids in [&[][..], &["--zero-ids"], &["--string-ids"]] {
        let gateway = Setup::fake(ids).start();
        let session = gateway.session("fake").await;
        let turn = gateway.turn(&session, "cancel-notify ms=50").await;
        assert_eq!(turn["stopReason"], "end_turn", "{ids:?}");
        assert_eq!(
            turn["text"], "cancel-notify: cancelled",
            "it is answered as the protocol asks"
        );
        let events = gateway.lawful(&session).await;
        assert_eq!(one(&events, "request.resolved")["resolution"], "withdrawn");
        assert_eq!(
            gateway
                .get(&format!("/v1/sessions/{session}/requests"))
                .await["requests"],
            json!([])
        );
    }
}

#[tokio::test]
async fn crash_withdraws_open_requests() {
    let (gateway, session, _) = asking(Setup::fake(&[]), "pid; permission").await;
    let pid = agent_text(&gateway.all_events(&session).await);
    let pid: i32 = pid
        .strip_prefix("pid=")
        .and_then(|pid| pid.parse().ok())
        .expect("its pid");
    let agent = rustix::process::Pid::from_raw(pid).expect("not zero");
    rustix::process::kill_process(agent, rustix::process::Signal::KILL).expect("it runs");
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.failed")
        .await;
    assert_eq!(one(&events, "request.resolved")["resolution"], "withdrawn");
    assert_eq!(
        one(&events, "prompt.failed")["problem"]["code"],
        "agent_exited"
    );
    gateway.lawful(&session).await;
    assert_eq!(gateway.get_session(&session).await["requests"], json!([]));
}

#[tokio::test]
async fn after_a_kill_of_the_gateway_an_open_request_has_expired_and_its_turn_has_one_end() {
    let (mut gateway, session, created) = asking(Setup::fake(&[]), "permissions n=2").await;
    gateway
        .log_until(&session, |event| event["requestId"] == "r2")
        .await;
    gateway.kill();
    gateway.start();
    let events = gateway.lawful(&session).await;
    assert!(
        events.contains(&created),
        "earlier events are still in the log"
    );
    let resolved = all(&events, "request.resolved");
    assert_eq!(resolved.len(), 2);
    for event in resolved {
        assert_eq!(
            (&event["resolution"], &event["promptId"]),
            (&json!("expired"), &json!("p1"))
        );
    }
    let failed = one(&events, "prompt.failed");
    assert_eq!(
        (&failed["problem"]["code"], &failed["promptId"]),
        (&json!("interrupted"), &json!("p1"))
    );
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["state"], &shown["requests"]),
        (&json!("idle"), &json!([]))
    );
    assert_eq!(
        (&shown["attached"], &shown["promptId"]),
        (&json!(false), &Value::Null)
    );
    let path = format!("/v1/sessions/{session}/permissions/r1");
    let late = gateway
        .posted(&path, &[], &json!({ "optionId": "allow" }))
        .await;
    assert_eq!(
        late.problem(409, "request_resolved")["resolution"],
        "expired"
    );
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn more_requests_than_may_wait_are_refused_to_the_agent() {
    let gateway = Setup::fake(&[])
        .settings("testing.max_pending_requests = 2")
        .start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "permissions n=3").await;
    gateway
        .log_until(&session, |event| event["requestId"] == "r2")
        .await;
    for request in ["r1", "r2"] {
        let path = format!("/v1/sessions/{session}/permissions/{request}");
        assert_eq!(
            gateway
                .posted(&path, &[], &json!({ "optionId": "allow" }))
                .await
                .status,
            204
        );
    }
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let expected = "permission 1: allow\npermission 2: allow\npermission 3: error -32603\n";
    assert_eq!(agent_text(&events), expected);
    assert_eq!(all(&events, "request.created").len(), 2);
}
