//! Removal of logs that are too large or too old, and the events that their readers receive.

use std::time::Duration;

use serde_json::json;

use super::{LIMITS, file};
use crate::support::{Event, Gateway, Random, Setup, eventually};

/// The seq of the first event that exists.
async fn first_seq(gateway: &Gateway, session: &str) -> u64 {
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events?follow=false"))
        .await;
    let first = stream.next().await.expect("a frame");
    if first.of("reset") {
        before(&first) + 1
    } else {
        first.seq()
    }
}

/// The seq after which a reset continues.
fn before(reset: &Event) -> u64 {
    let id = reset.id.as_deref().expect("a reset moves the cursor");
    id.rsplit_once('-')
        .and_then(|(_, seq)| seq.parse().ok())
        .expect("<epoch>-<seq>")
}

async fn until_pruned(gateway: &Gateway, session: &str) -> u64 {
    eventually(
        "its oldest events are gone",
        Duration::from_secs(20),
        || async { Some(first_seq(gateway, session).await).filter(|first| *first > 1) },
    )
    .await
}

#[tokio::test]
async fn large_session_loses_its_oldest_events_and_readers_are_reset() {
    // The store compresses the following runs.
    let limits = format!(
        "{LIMITS}retention.max_session_bytes = \"64KiB\"\ntesting.max_session_tail_bytes = 1\n"
    );
    let gateway = Setup::fake(&[]).settings(&limits).start();
    let large = gateway.session("fake").await;
    let small = gateway.session("fake").await;
    gateway.turn(&small, "echo small").await;
    let behind = gateway.all_events(&large).await[0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    // It is pruned while its turn runs, and its reader at the tail misses nothing.
    let mut live = gateway
        .events(&format!("/v1/sessions/{large}/events"))
        .await;
    for _ in 0..10 {
        gateway.turn(&large, "stream n=400 size=400").await;
    }
    let mut next = 1;
    let last = gateway.last_seq(&large).await;
    while next <= last {
        let event = live.next().await.expect("it goes on");
        if event.of("reset") {
            next = before(&event) + 1;
        } else if event.data["seq"].is_u64() {
            assert_eq!(event.seq(), next);
            next += 1;
        }
    }
    until_pruned(&gateway, &large).await;
    let mut stream = gateway
        .events_after(&format!("/v1/sessions/{large}/events"), Some(&behind))
        .await;
    let mut frame = stream.next().await.expect("a frame");
    assert!(frame.of("reset"), "{frame:?}");
    let mut first = 0;
    // More may go while it reads.
    while frame.of("reset") {
        assert_eq!(
            (&frame.data["reason"], &frame.data["session"]["sessionId"]),
            (&json!("pruned"), &json!(large))
        );
        first = before(&frame) + 1;
        frame = stream.next().await.expect("the next");
    }
    assert_eq!(frame.seq(), first);
    assert_eq!(
        first_seq(&gateway, &small).await,
        1,
        "no other session loses events"
    );
    assert_eq!(gateway.turn(&large, "echo on").await["text"], "on");

    // A client that follows another session on the stream of all sessions is not reset, although events were removed.
    let own = gateway
        .events(&format!("/v1/events?session={small}&follow=false"))
        .await
        .rest()
        .await;
    let id = own
        .iter()
        .find(|event| event.of("session.created"))
        .and_then(|event| event.id.clone());
    let rest = gateway
        .events_after(
            &format!("/v1/events?session={small}&follow=false"),
            id.as_deref(),
        )
        .await;
    let rest = rest.rest().await;
    assert!(!rest.iter().any(|event| event.of("reset")), "{rest:?}");
}

#[tokio::test]
async fn all_logs_together_shrink_by_the_largest_and_the_disk_gets_its_room_back() {
    let limits = format!("{LIMITS}retention.max_total_bytes = \"1MiB\"\n");
    let mut gateway = Setup::fake(&[]).settings(&limits).start();
    let old = gateway.session("fake").await;
    let large = gateway.session("fake").await;
    for _ in 0..4 {
        gateway.turn(&old, "stream n=50").await;
    }
    // Prompts that repeat, with content that cannot be compressed.
    for n in 0..200 {
        let noise = Random::new(n).noise(24_000);
        gateway.turn(&large, &format!("echo {noise}")).await;
    }
    until_pruned(&gateway, &large).await;
    assert_eq!(
        first_seq(&gateway, &old).await,
        1,
        "a small session keeps everything, although it is older"
    );
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    let bytes = std::fs::metadata(file(&gateway)).expect("the log").len();
    assert!(
        bytes < 4 << 20,
        "9 MiB were written, and {bytes} bytes are left of them"
    );
}

#[tokio::test]
async fn an_old_session_keeps_the_last_of_its_events() {
    let gateway = Setup::fake(&[])
        .settings(&format!(
            "{LIMITS}retention.max_age = \"2s\"\ntesting.max_session_tail_bytes = 1\n"
        ))
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "stream n=50 rate=100").await;
    let last = gateway.last_seq(&session).await;
    let first = until_pruned(&gateway, &session).await;
    assert!(first <= last, "the last stays");
    let turn = gateway.turn(&session, "echo on").await;
    let next = turn["lastEventId"]
        .as_str()
        .and_then(|id| id.rsplit_once('-')?.1.parse::<u64>().ok());
    assert!(
        next.is_some_and(|next| next > last),
        "numbers go on: {turn}"
    );
}
