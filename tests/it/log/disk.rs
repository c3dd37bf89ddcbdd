//! A disk with too little room.

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::json;

use super::LIMITS;
use crate::support::Setup;

#[tokio::test]
async fn almost_full_disk_rejects_prompts_and_serves_other_requests() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    let before = gateway.all_events(&session).await;
    let path = format!("/v1/sessions/{session}");
    let config = std::fs::read_to_string(gateway.path("config.toml")).expect("the folder is ours");
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    // No disk has all of its room free.
    let low = format!("retention.min_free_disk_percent = 100\n{config}");
    std::fs::write(gateway.path("config.toml"), low).expect("the folder is ours");
    gateway.start();

    let prompt = json!({ "prompt": "echo two" });
    gateway
        .posted(&format!("{path}/prompts"), &[], &prompt)
        .await
        .problem(507, "storage_full");
    gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "fake" }))
        .await
        .problem(507, "storage_full");
    let now = gateway.all_events(&session).await;
    assert_eq!(now[..before.len()], before);
    let frames = gateway
        .events(&format!("{path}/events?follow=false"))
        .await
        .rest()
        .await;
    assert_eq!(crate::support::log::logged(frames), now);
    for read in [
        "/v1/sessions",
        &path,
        &format!("{path}/transcript"),
        &format!("{path}/prompts/p1"),
    ] {
        assert_eq!(
            gateway.call(Method::GET, read).await.status,
            StatusCode::OK,
            "{read}"
        );
    }
    let (status, _) = gateway
        .send(Method::PATCH, &path, &json!({ "title": "Low" }))
        .await;
    assert_eq!(status, StatusCode::OK, "small records are still written");

    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended(std::time::Duration::from_secs(20)), Some(0));
    std::fs::write(gateway.path("config.toml"), config).expect("the folder is ours");
    gateway.start();
    assert_eq!(gateway.turn(&session, "echo two").await["text"], "two");
}
