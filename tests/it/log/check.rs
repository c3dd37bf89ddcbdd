//! The check of a log that another gateway did not close.

use std::time::Duration;

use base::types::{Ids, SessionId, UserId};
use log::limits::Limits;
use log::store::{Batch, RecordStore as _, Run, SqliteStore};
use serde_json::json;

use super::{LIMITS, break_structure, leave_open};
use crate::support::{Setup, eventually};

const LEFT: &str = "the log was not closed cleanly; checking it";
const MUCH: &str = "the log is large when decompressed; serving it while the check continues";
const IN_ORDER: &str = "checked the log and found no damage";

#[tokio::test]
async fn unclean_log_is_checked_before_it_is_served() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    let before = gateway.all_events(&session).await;
    gateway.kill();
    gateway.start();
    // The gateway logged this before it printed the link that `start` waits for.
    let log = gateway.log();
    assert!(log.contains(LEFT) && log.contains(IN_ORDER), "{log}");
    assert_eq!(gateway.all_events(&session).await[..before.len()], before);
    assert_eq!(gateway.stop(), Some(0));
    gateway.start();
    assert_eq!(
        gateway.log().matches(LEFT).count(),
        1,
        "one that was closed is not checked: {}",
        gateway.log()
    );
}

#[tokio::test]
async fn a_large_log_is_checked_while_it_is_served() {
    let mut gateway = Setup::fake(&[])
        .settings(&format!("{LIMITS}testing.max_start_check_bytes = 1"))
        .start();
    let session = gateway.session("fake").await;
    gateway.kill();
    gateway.start();
    assert_eq!(gateway.turn(&session, "echo one").await["text"], "one");
    eventually("the log was checked", Duration::from_secs(20), || async {
        gateway.log().contains(IN_ORDER).then_some(())
    })
    .await;
}

/// The check limits the uncompressed size, whatever size the file declares.
#[tokio::test]
async fn small_log_with_much_compressed_data_is_checked_during_service() {
    let mut gateway = Setup::fake(&[])
        .settings(&format!("{LIMITS}testing.max_start_check_bytes = \"8MiB\""))
        .start();
    let session = gateway.session("fake").await;
    for (sessions, much) in [(1..5, false), (5..17, true)] {
        assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
        let store = SqliteStore::open(&super::file(&gateway), Ids::system(), &Limits::default());
        let runs = sessions
            .map(|session| one_word_again_and_again(session, 1 << 20))
            .collect();
        store
            .expect("the log")
            .commit(&Batch {
                runs,
                ..Batch::default()
            })
            .expect("it takes them");
        leave_open(&gateway);
        let size = std::fs::metadata(super::file(&gateway))
            .expect("the log")
            .len();
        assert!(size < 1 << 20, "{size}");
        gateway.start();
        assert_eq!(gateway.log().contains(MUCH), much, "{}", gateway.log());
        gateway.turn(&session, "echo one").await;
        let checks = if much { 2 } else { 1 };
        eventually("the log was checked", Duration::from_secs(20), || async {
            (gateway.log().matches(IN_ORDER).count() == checks).then_some(())
        })
        .await;
    }
}

/// The only event of a session, of so many bytes.
fn one_word_again_and_again(session: u128, bytes: usize) -> Run {
    let session = SessionId::from_uuid(uuid::Uuid::from_u128(session));
    let frames = format!(
        "id: e-1\nevent: test\ndata: {{\"id\":\"e-1\",\"x\":\"{}\"}}\n\n",
        "x".repeat(bytes)
    );
    Run {
        owner: UserId::owner(),
        session,
        first_seq: 1,
        last_seq: 1,
        last_pos: 0,
        frames: frames.into(),
    }
}

#[tokio::test]
async fn log_with_a_broken_structure_is_not_served() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    break_structure(&gateway);
    leave_open(&gateway);
    let broken = std::fs::read(super::file(&gateway)).expect("the log");
    for _ in 0..2 {
        let refused = gateway
            .serve("127.0.0.1:0")
            .output()
            .expect("the binary was built");
        let text = super::output_text(&refused, false);
        assert!(
            refused.stdout.is_empty(),
            "no link of a gateway that does not serve"
        );
        assert!(
            text.contains("the log is damaged") && text.contains("acp-gateway restore"),
            "{text}"
        );
        assert!(
            std::fs::read(super::file(&gateway)).expect("the log") == broken,
            "it is left as it is"
        );
    }
}

#[tokio::test]
async fn large_log_with_a_broken_structure_stops_the_gateway_at_its_next_commit() {
    let mut gateway = Setup::fake(&[])
        .settings(&format!("{LIMITS}testing.max_start_check_bytes = 1"))
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    break_structure(&gateway);
    leave_open(&gateway);
    gateway.start();
    eventually(
        "the check has found it",
        Duration::from_secs(20),
        || async { gateway.log().contains("the log is damaged").then_some(()) },
    )
    .await;
    let path = format!("{}/v1/sessions/{session}/prompts", gateway.url);
    let prompt = gateway
        .http
        .post(path)
        .bearer_auth(crate::support::gateway::KEY);
    drop(prompt.json(&json!({ "prompt": "echo two" })).send().await);
    let code = gateway.ended(Duration::from_secs(20));
    assert_eq!(code, Some(1), "{}", gateway.log());
    assert!(
        gateway.log().contains("the log failed"),
        "{}",
        gateway.log()
    );
}
