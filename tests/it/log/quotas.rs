//! A session that exceeds its write quota is stopped, and no other session is.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::LIMITS;
use crate::support::log::{all, one};
use crate::support::{Answer, Gateway, Setup};

/// The quota is smaller than the flood.
async fn stopped(limit: &str) -> (Gateway, String) {
    let gateway = Setup::fake(&[])
        .settings(&format!("{LIMITS}{limit}"))
        .start();
    let loud = gateway.session("fake").await;
    let other = gateway.session("fake").await;
    gateway.prompt(&loud, "flood n=100000000").await;
    let queue = json!({ "prompt": "echo next", "queue": true });
    let (status, _) = gateway
        .post(&format!("/v1/sessions/{loud}/prompts"), &queue)
        .await;
    assert!([202, 429].contains(&status.as_u16()), "{status}");
    let events = gateway
        .log_until(&loud, |event| event["type"] == "prompt.failed")
        .await;
    assert_eq!(
        one(&events, "prompt.failed")["problem"]["code"],
        "rate_limited"
    );
    assert!(
        all(&events, "session.update").len() > 100,
        "the log has its output"
    );
    assert_eq!(
        gateway.turn(&other, "echo hello").await["text"],
        "hello",
        "no other session is stopped"
    );
    (gateway, loud)
}

#[tokio::test]
async fn a_session_that_writes_too_many_bytes_in_an_hour_is_stopped() {
    let (gateway, loud) = stopped("limits.per_session.max_bytes_per_hour = \"2MiB\"").await;
    let path = format!("/v1/sessions/{loud}/prompts");
    let refused = gateway
        .posted(&path, &[], &json!({ "prompt": "echo again" }))
        .await;
    let after: u64 = refused
        .header("retry-after")
        .and_then(|after| after.parse().ok())
        .expect("a number");
    assert!((3000..=3600).contains(&after), "{after}");
    refused.problem(429, "rate_limited");
    let now = gateway.get(&format!("/v1/sessions/{loud}")).await;
    assert_eq!(
        (&now["attached"], &now["state"]),
        (&json!(false), &json!("idle")),
        "{now}"
    );
    let log = gateway.lawful(&loud).await;
    let bytes: usize = log.iter().map(|event| event.to_string().len()).sum();
    assert!(bytes < 8 << 20, "no more than a little above: {bytes}");
    // Operations that need no agent continue.
    assert_eq!(
        gateway
            .call(Method::GET, &format!("/v1/sessions/{loud}/transcript"))
            .await
            .status,
        200
    );
    let (status, _) = gateway
        .send(
            Method::PATCH,
            &format!("/v1/sessions/{loud}"),
            &json!({ "title": "Loud" }),
        )
        .await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_session_that_writes_too_many_events_in_an_hour_is_stopped() {
    let (gateway, loud) = stopped("limits.per_session.max_events_per_hour = 2000").await;
    let events = gateway.lawful(&loud).await;
    assert!((2000..40_000).contains(&events.len()), "{}", events.len());
}

#[tokio::test]
async fn unloaded_session_keeps_its_hourly_quota() {
    let limits = format!(
        "{LIMITS}limits.per_session.max_events_per_hour = 2000\ntesting.session_idle_timeout = \"100ms\""
    );
    let setup = Setup::fake_with(
        &[],
        "pool = { max_size = 2, min_idle = 0, idle_timeout = \"100ms\" }",
    )
    .settings(&limits);
    let gateway = setup.start();
    let session = gateway.session("fake").await;
    for _ in 0..2 {
        // Less than the limit, and each time by an owner that was read in again.
        gateway.turn(&session, "flood n=900").await;
        gateway.none_alive().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    gateway.prompt(&session, "flood n=900").await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.failed")
        .await;
    assert_eq!(
        one(&events, "prompt.failed")["problem"]["code"],
        "rate_limited"
    );
    gateway.none_alive().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    // Nor does it get a process by anything else.
    let path = |rest: &str| format!("/v1/sessions/{session}/{rest}");
    gateway
        .posted(&path("attach"), &[], &json!({}))
        .await
        .problem(429, "rate_limited");
    let mode = gateway
        .request(Method::PUT, &path("mode"))
        .json(&json!({ "modeId": "ask" }));
    Answer::of(mode).await.problem(429, "rate_limited");
    let option = gateway
        .request(Method::PUT, &path("config/model"))
        .json(&json!({ "value": "fast" }));
    Answer::of(option).await.problem(429, "rate_limited");
    gateway.none_alive().await;
}
