//! A failing disk: the gateway cannot know which data is durable. It exits, reports the reason, and starts again with
//! every event that a client has seen.

use std::time::Duration;

use super::disk::EIO;
use super::{LIMITS, on_disk};
use crate::support::log::one;
use crate::support::{Follower, History, Setup, figure};

async fn ends_and_comes_back(kinds: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state");
    let journals = folder.path().join("journals");
    std::fs::create_dir(&journals).expect("the folder is ours");
    let state = state.to_str().expect("UTF-8");
    let of = journals.to_str().expect("UTF-8");
    let setup = Setup::fake(&["--resume", "--state", state, "--journal", of]).settings(LIMITS);
    let (mut gateway, disk) = on_disk(setup);
    let session = gateway.session("fake").await;
    let mut follower = Follower::start(&gateway, &session);
    gateway.prompt(&session, "slow chunks=2000 ms=5").await;
    let is_chunk = |event: &serde_json::Value| {
        event["update"]["content"]["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("chunk 20 "))
    };
    follower.until("the turn is under way", is_chunk).await;

    disk.fail(kinds, EIO, 1..=u64::MAX);
    let code = gateway.ended(Duration::from_secs(30));
    assert_eq!(code, Some(1), "{}", gateway.log());
    let log = gateway.log();
    let why = log.lines().last().expect("it says why");
    assert!(
        why.contains("the log failed: could not write the log: "),
        "{log}"
    );
    assert!(!log.contains("panicked"), "{log}");
    figure(why);
    gateway.none_alive().await;
    let seen = follower.seen().len();

    disk.heal();
    gateway.start();
    assert_eq!(gateway.turn(&session, "echo after").await["text"], "after");
    let events = gateway.lawful(&session).await;
    assert!(events.len() > seen, "{} of {seen}", events.len());
    assert_eq!(
        one(&events, "prompt.failed")["problem"]["code"],
        "interrupted"
    );
    History::of(&gateway, vec![follower])
        .await
        .with_agents(&journals)
        .assert_holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_fails_ends_the_gateway_and_a_restart_has_all_that_was_seen() {
    ends_and_comes_back("w").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_ends_the_gateway_and_a_restart_has_all_that_was_seen() {
    ends_and_comes_back("s").await;
}
