//! Requests that only clients may know.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{answer, answer_accepted, ask, asked, asking, end, final_text, pointers};
use crate::support::log::{agent_text, all, one};
use crate::support::{Follower, Setup};

const PARAMS: &str = r#"{"sessionId":$SESSION,"thing":{"sessionId":"inner","n":1.10}}"#;

#[tokio::test]
async fn following_client_can_answer_unknown_requests_with_any_value() {
    let gateway = Setup::fake(&[]).start();
    for (method, result) in [
        ("_vendor/thing", "null"),
        ("later/method", "[1.10,\"\\u00e9\"]"),
        ("_x", "\"yes\""),
    ] {
        let session = gateway.session("fake").await;
        let created = asked(&gateway, &session, &ask(method, PARAMS)).await;
        assert_eq!(
            (&created["method"], &created["params"]["sessionId"]),
            (&json!(method), &json!(session))
        );
        assert_eq!(created["params"]["thing"]["sessionId"], "inner");
        assert!(created["deadline"].as_str() > created["time"].as_str());
        let refused = answer(
            &gateway,
            &session,
            "elicitations/r1",
            r#"{"action":"cancel"}"#,
        )
        .await;
        assert_eq!(pointers(refused), [""]);
        answer_accepted(
            &gateway,
            &session,
            "requests/r1",
            &format!(r#"{{"result":{result}}}"#),
        )
        .await;
        assert_eq!(
            final_text(&gateway, &session).await,
            format!("{method}: {result}\n")
        );
    }
}

#[tokio::test]
async fn params_need_not_name_a_session_nor_be_an_object() {
    let gateway = Setup::fake(&[]).start();
    for params in [r#"{"thing":1}"#, "[1,{\"sessionId\":\"x\"}]", "null"] {
        let session = gateway.session("fake").await;
        let created = asked(&gateway, &session, &ask("_vendor/thing", params)).await;
        assert_eq!(
            created["params"],
            serde_json::from_str::<Value>(params).expect("JSON")
        );
        answer_accepted(
            &gateway,
            &session,
            "requests/r1",
            r#"{"error":{"code":7,"message":"no"}}"#,
        )
        .await;
        assert_eq!(
            final_text(&gateway, &session).await,
            "_vendor/thing: error 7\n"
        );
    }
}

#[tokio::test]
async fn request_without_a_follower_is_rejected_at_once() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let other = gateway.session("fake").await;
    let follower = Follower::start(&gateway, &other);
    let began = Instant::now();
    let turn = gateway.turn(&session, &ask("_vendor/thing", PARAMS)).await;
    assert_eq!(turn["text"], "_vendor/thing: error -32601\n");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    let events = gateway.lawful(&session).await;
    assert!(
        events
            .iter()
            .all(|event| event["type"] != "request.created"),
        "no client received a request"
    );
    drop(follower);
}

#[tokio::test]
async fn reader_of_all_sessions_counts_as_follower() {
    let gateway = Setup::fake(&[])
        .settings("testing.extension_answer_timeout = \"300ms\"")
        .start();
    let session = gateway.session("fake").await;
    let mut all = gateway.events("/v1/events").await;
    gateway
        .prompt(&session, &ask("_vendor/thing", PARAMS))
        .await;
    while !all
        .next()
        .await
        .expect("the stream goes on")
        .of("request.created")
    {}
    // Nobody answers in time.
    let events = end(&gateway, &session).await;
    assert_eq!(agent_text(&events), "_vendor/thing: error -32601\n");
    let resolved = one(&events, "request.resolved");
    assert_eq!(
        (&resolved["resolution"], &resolved["error"]["code"]),
        (&json!("expired"), &json!(-32601))
    );
}

#[tokio::test]
async fn disconnected_client_does_not_count_as_follower() {
    let setup = Setup::fake(&[]).settings("testing.extension_answer_timeout = \"500ms\"");
    let (gateway, session, _) = asking(setup, &ask("_vendor/thing", PARAMS)).await;
    let asked = async || {
        let turn = gateway.turn(&session, &ask("_vendor/thing", PARAMS)).await;
        assert_eq!(turn["text"], "_vendor/thing: error -32601\n");
        all(&gateway.all_events(&session).await, "request.created").len()
    };
    end(&gateway, &session).await;
    // Its connection ends a moment later.
    let mut before = 0;
    let began = Instant::now();
    loop {
        let now = asked().await;
        if now == before {
            break;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "a client still follows"
        );
        before = now;
    }
}
