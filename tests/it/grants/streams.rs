//! Streams of users whose access changes.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::{ALL, LIMITS, share, unshare};
use crate::key_life::{by, user_key};
use crate::support::gateway::KEY;
use crate::support::{Answer, Events, Gateway, Setup, eventually, figure};

/// The time within which a stream ends after its user has lost the access.
const SOON: Duration = Duration::from_secs(1);

async fn follow(gateway: &Gateway, key: &str, path: &str) -> Events {
    let request = by(gateway, key, Method::GET, path);
    let mut stream = Events::new(request.send().await.expect("a stream"));
    stream.until("ready").await;
    stream
}

#[tokio::test]
async fn streams_and_waits_end_with_the_access() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "hang").await;
    share(&gateway, &session, "user:bob", "read").await;
    let mut streams = Vec::new();
    for path in [
        format!("/v1/sessions/{session}/events/stream"),
        format!("/v1/sessions/{session}/prompts/p1/events/stream"),
        format!("/v1/events/stream?session={session}"),
    ] {
        streams.push(follow(&gateway, &bob, &path).await);
    }
    let mut kept = follow(
        &gateway,
        KEY,
        &format!("/v1/sessions/{session}/events/stream"),
    )
    .await;
    let held = |path: String| {
        let request = by(&gateway, &bob, Method::GET, &path).header("prefer", "wait=60");
        Answer::of(request)
    };
    let page = held(format!("/v1/sessions/{session}/events?after=tail"));
    let turn = held(format!("/v1/sessions/{session}/prompts/p1"));
    let end = async {
        // The waits count as streams, so the gateway shows when they have begun.
        eventually("the waits have begun", Duration::from_secs(20), || async {
            let metrics = gateway
                .request(Method::GET, "/metrics")
                .send()
                .await
                .expect("metrics");
            let text = metrics.text().await.expect("text");
            let open = text
                .lines()
                .filter(|line| line.starts_with("acp_gateway_streams_open{"));
            let open: f64 = open
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum();
            (open >= 6.0).then_some(())
        })
        .await;
        unshare(&gateway, &session, "user:bob").await;
        Instant::now()
    };
    let (page, turn, began) = tokio::join!(page, turn, end);
    page.problem(404, "not_found");
    turn.problem(404, "not_found");
    for stream in &mut streams {
        let last = stream.until("problem").await.pop().expect("the last one");
        assert_eq!(last.data["problem"]["code"], "not_found", "{last:?}");
        assert!(stream.next().await.is_none(), "the stream ends");
    }
    let took = began.elapsed();
    figure(&format!(
        "the streams of a revoked grant ended after {took:?}"
    ));
    assert!(took < SOON, "{took:?}");
    Answer::of(gateway.request(Method::POST, &format!("/v1/sessions/{session}/cancel"))).await;
    kept.until("prompt.completed").await;
}

#[tokio::test]
async fn open_stream_of_all_sessions_reports_shares_and_has_their_events() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    let mut stream = follow(&gateway, &bob, "/v1/events/stream").await;
    gateway.turn(&session, "before").await;
    share(&gateway, &session, "user:bob", "read").await;
    let shared = stream.until("session.shared").await;
    assert_eq!(shared.len(), 1, "nothing of the session before: {shared:?}");
    assert_eq!(shared[0].data["sessionId"], *session);
    assert_eq!(shared[0].data["access"], "read");
    let cursor = shared[0].data["lastEventId"]
        .as_str()
        .expect("a cursor")
        .to_owned();
    gateway.turn(&session, "during").await;
    stream.until("prompt.completed").await;
    share(&gateway, &session, "user:bob", "prompt").await;
    let changed = stream.until("session.shared").await.pop().expect("it");
    assert_eq!(changed.data["access"], "prompt");
    unshare(&gateway, &session, "user:bob").await;
    stream.until("session.unshared").await;
    gateway.turn(&session, "after").await;
    let own = by(&gateway, &bob, Method::POST, "/v1/sessions").json(&json!({ "agent": "fake" }));
    let own = Answer::of(own).await.body["sessionId"].clone();
    let rest = stream.until("session.created").await;
    let others: Vec<_> = rest
        .iter()
        .filter(|event| event.data["sessionId"] == *session)
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(rest.last().expect("it").data["sessionId"], own);

    // A client that reads the same again, after the access has ended, gets nothing of the session.
    let path = format!("/v1/events?after={cursor}");
    let page = Answer::of(by(&gateway, &bob, Method::GET, &path)).await;
    let events = page.body["events"].as_array().expect("a page");
    assert!(
        events.iter().all(|event| event["sessionId"] == own),
        "{}",
        page.body
    );
    share(&gateway, &session, "tenant", "read").await;
    let page = Answer::of(by(&gateway, &bob, Method::GET, &path)).await;
    let of_session = |event: &&Value| event["sessionId"] == *session;
    let events = page.body["events"].as_array().expect("a page");
    assert!(
        events.iter().filter(of_session).count() > 2,
        "{}",
        page.body
    );
}

#[tokio::test]
async fn summaries_follow_the_access() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    let mut stream = follow(&gateway, &bob, "/v1/events/stream?summaries=true").await;
    share(&gateway, &session, "user:bob", "read").await;
    let listed = stream.until("session.summary").await.pop().expect("it");
    assert_eq!(listed.data["session"]["owner"], "owner");
    let path = format!("/v1/sessions/{session}");
    let change = gateway
        .request(Method::PATCH, &path)
        .json(&json!({ "title": "Roof" }));
    assert_eq!(Answer::of(change).await.status, 200);
    let changed = stream.until("session.summary").await.pop().expect("it");
    assert_eq!(changed.data["session"]["title"], "Roof");
    unshare(&gateway, &session, "user:bob").await;
    let gone = stream.until("session.summary").await.pop().expect("it");
    assert_eq!(gone.data["sessionId"], *session);
    assert_eq!(gone.data["session"], Value::Null);
}
