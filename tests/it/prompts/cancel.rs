//! Cancel: the agent's reaction, and a cancel without a running turn.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::log::{agent_text, all, one};
use crate::support::{Answer, Gateway, Setup};

async fn fake(args: &[&str]) -> (Gateway, String) {
    let gateway = Setup::fake(args)
        .settings("testing.min_backoff = \"10ms\"")
        .start();
    let session = gateway.session("fake").await;
    (gateway, session)
}

async fn cancel(gateway: &Gateway, session: &str, what: &str) -> Answer {
    gateway
        .call(
            Method::POST,
            &format!("/v1/sessions/{session}{what}/cancel"),
        )
        .await
}

/// Cancels a running turn. Returns its last event.
async fn cancelled(text: &str) -> Value {
    let (gateway, session) = fake(&[]).await;
    gateway.prompt(&session, text).await;
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    assert_eq!(cancel(&gateway, &session, "/prompts/p1").await.status, 202);
    let ended = |event: &Value| {
        ["prompt.completed", "prompt.failed"].contains(&event["type"].as_str().unwrap_or(""))
    };
    let began = Instant::now();
    let events = gateway.log_until(&session, ended).await;
    // An agent that does not end its turn is stopped after 15 s.
    assert!(began.elapsed() < Duration::from_secs(14));
    assert_eq!(
        cancel(&gateway, &session, "").await.status,
        204,
        "it is over"
    );
    assert_eq!(
        gateway.turn(&session, "hello").await["text"],
        "hello",
        "the session goes on"
    );
    let whole = gateway.lawful(&session).await;
    assert_eq!(
        all(&whole, "session.attached").len(),
        1,
        "with the same process"
    );
    events.last().expect("its end").clone()
}

#[tokio::test]
async fn a_cancelled_turn_is_completed_as_cancelled() {
    let end = cancelled("slow chunks=1000 ms=20").await;
    assert_eq!(
        (&end["type"], &end["stopReason"]),
        (&json!("prompt.completed"), &json!("cancelled"))
    );
    assert_eq!(end["result"], json!({ "stopReason": "cancelled" }));
    assert_eq!(end["cancelCause"], "person");
}

#[tokio::test]
async fn an_agent_that_ends_a_cancelled_turn_in_its_own_way_is_shown_so() {
    let end = cancelled("stream n=1; hang cancel=end_turn").await;
    assert_eq!(end["cancelCause"], "person");
    assert_eq!(
        (&end["type"], &end["stopReason"]),
        (&json!("prompt.completed"), &json!("end_turn"))
    );
    let end = cancelled("stream n=1; hang cancel=error").await;
    assert_eq!(
        (&end["type"], &end["problem"]["code"]),
        (&json!("prompt.failed"), &json!("agent_error"))
    );
}

#[tokio::test]
async fn cancel_without_a_turn_is_204_and_of_an_unknown_turn_404() {
    let (gateway, session) = fake(&[]).await;
    assert_eq!(cancel(&gateway, &session, "").await.status, 204);
    gateway.turn(&session, "hello").await;
    let before = gateway.all_events(&session).await;
    assert_eq!(cancel(&gateway, &session, "").await.status, 204);
    assert_eq!(cancel(&gateway, &session, "/prompts/p1").await.status, 204);
    for unknown in ["p2", "p0", "x"] {
        cancel(&gateway, &session, &format!("/prompts/{unknown}"))
            .await
            .problem(404, "not_found");
    }
    assert_eq!(gateway.all_events(&session).await, before);
}

#[tokio::test]
async fn a_turn_that_waits_for_its_process_is_cancelled_at_once_and_never_sent() {
    let (gateway, session) = fake(&["--slow-start", "6000", "--log", "received"]).await;
    assert_eq!(
        gateway.turn(&session, "crash chunks=0").await["status"],
        "failed"
    );
    let began = Instant::now();
    gateway.prompt(&session, "echo never").await;
    assert_eq!(
        cancel(&gateway, &session, "").await.body["promptIds"],
        json!(["p2"])
    );
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert!(
        began.elapsed() < Duration::from_millis(5900),
        "it does not wait for the process"
    );
    let end = one(&events, "prompt.completed");
    assert_eq!(
        (&end["promptId"], &end["stopReason"]),
        (&json!("p2"), &json!("cancelled"))
    );
    assert_eq!(gateway.turn(&session, "echo then").await["text"], "then");
    assert_eq!(agent_text(&gateway.lawful(&session).await), "then");
    let received = std::fs::read_to_string(gateway.path("data/homes/default/fake/received"));
    let received = received.expect("the agent's own record");
    assert!(
        received.contains("then") && !received.contains("never"),
        "{received}"
    );
}
