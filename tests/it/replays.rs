//! The same request again, after its result was removed from the log.

use std::time::Duration;

use base::types::Ids;
use log::limits::Limits;
use log::store::{Cut, Maintenance as _, SqliteStore};
use reqwest::Method;
use serde_json::json;

use crate::support::{Events, Setup};

#[tokio::test]
async fn replayed_stream_ends_if_its_turn_was_removed_from_the_log() {
    let mut gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/prompts");
    let first = || async {
        let request = gateway
            .request(Method::POST, &path)
            .json(&json!({ "prompt": "hello" }));
        let request = request
            .header("idempotency-key", "one")
            .header("accept", "text/event-stream");
        Events::new(request.send().await.expect("an answer"))
            .rest()
            .await
    };
    let events = first().await;
    let [.., end, _] = &*events else {
        panic!("{events:?}")
    };
    assert!(end.of("prompt.completed"));
    let replayed = first().await;
    assert_eq!(
        replayed.iter().rev().nth(1).map(|event| &event.data),
        Some(&end.data)
    );

    gateway.turn(&session, "again").await;
    assert!(gateway.stop().is_some());
    let log = gateway.path("data/private/log.sqlite");
    let store =
        SqliteStore::open(&log, Ids::system(), &Limits::default()).expect("the gateway has ended");
    let cut = Cut {
        session: session.parse().expect("an id"),
        through: end.seq(),
    };
    assert!(store.prune(&[cut], 1000).expect("the store works").runs > 0);
    drop(store);
    gateway.start();

    let request = gateway
        .request(Method::POST, &path)
        .json(&json!({ "prompt": "hello" }));
    let request = request
        .header("idempotency-key", "one")
        .header("accept", "text/event-stream");
    let stream = Events::new(request.send().await.expect("an answer"));
    let events = tokio::time::timeout(Duration::from_secs(20), stream.rest())
        .await
        .expect("it ends");
    let [reset, .., ready, end] = &*events else {
        panic!("{events:?}")
    };
    assert!(
        reset.of("reset") && ready.of("ready") && end.data["reason"] == "turn_ended",
        "{events:?}"
    );
}
