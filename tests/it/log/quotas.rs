//! A session that writes too much is stopped, and nobody else is.

use reqwest::Method;
use serde_json::json;

use super::LIMITS;
use crate::support::log::{all, one};
use crate::support::{Gateway, Setup};

/// What a session may write is less than what its flood would be.
async fn stopped(limit: &str) -> (Gateway, String) {
    let gateway = Setup::fake(&[]).limits(&format!("{LIMITS}{limit}")).start();
    let (loud, other) = (gateway.session("fake").await, gateway.session("fake").await);
    gateway.prompt(&loud, "flood n=100000000").await;
    let queue = json!({ "prompt": "echo next", "queue": true });
    let (status, _) = gateway.post(&format!("/v1/sessions/{loud}/prompts"), &queue).await;
    assert!([202, 429].contains(&status.as_u16()), "{status}");
    let events = gateway.log_until(&loud, |event| event["type"] == "prompt.failed").await;
    assert_eq!(one(&events, "prompt.failed")["problem"]["code"], "rate_limited");
    assert!(all(&events, "session.update").len() > 100, "what it said is there");
    assert_eq!(gateway.turn(&other, "echo hello").await["text"], "hello", "nobody else is stopped");
    (gateway, loud)
}

#[tokio::test]
async fn a_session_that_writes_too_many_bytes_in_an_hour_is_stopped() {
    let (gateway, loud) = stopped("session_bytes_per_hour = \"2MiB\"").await;
    let path = format!("/v1/sessions/{loud}/prompts");
    let refused = gateway.posted(&path, &[], &json!({ "prompt": "echo again" })).await;
    let after: u64 = refused.header("retry-after").and_then(|after| after.parse().ok()).expect("a number");
    assert!((3000..=3600).contains(&after), "{after}");
    refused.problem(429, "rate_limited");
    let now = gateway.get(&format!("/v1/sessions/{loud}")).await;
    assert_eq!((&now["attached"], &now["state"]), (&json!(false), &json!("idle")), "{now}");
    let log = gateway.lawful(&loud).await;
    let bytes: usize = log.iter().map(|event| event.to_string().len()).sum();
    assert!(bytes < 8 << 20, "no more than a little above: {bytes}");
    // What needs no agent goes on.
    assert_eq!(gateway.call(Method::GET, &format!("/v1/sessions/{loud}/transcript")).await.status, 200);
    let (status, _) =
        gateway.send(Method::PATCH, &format!("/v1/sessions/{loud}"), &json!({ "title": "Loud" })).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_session_that_writes_too_many_events_in_an_hour_is_stopped() {
    let (gateway, loud) = stopped("session_events_per_hour = 2000").await;
    let events = gateway.lawful(&loud).await;
    assert!((2000..40_000).contains(&events.len()), "{}", events.len());
}
