//! Agents that do not read their stdin.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Case;
use super::ids::PERMISSION;
use crate::support::figure;
use crate::support::log::{all, one};

/// The size of a prompt that exceeds the buffer of a pipe.
const HUGE: usize = 4 << 20;

/// A session whose agent reads at most the beginning of the next line.
async fn deaf(args: &[&str], limits: &str) -> (Case, String) {
    let (case, session) = Case::fake_with(args, "", limits).await;
    assert_eq!(case.turn(&session, "deaf").await["stopReason"], "end_turn");
    (case, session)
}

#[tokio::test]
async fn a_huge_prompt_to_an_agent_that_stopped_reading_ends_it_and_the_turn() {
    let (mut case, session) = deaf(&[], "testing.stdin_stall_timeout = \"500ms\"").await;
    case.budget(16 * HUGE as u64 / 1024);
    let other = case.session().await;
    let began = Instant::now();
    let text = "x".repeat(HUGE);
    let (turn, beside) = tokio::join!(case.turn(&session, &text), case.turn(&other, "echo beside"));
    assert_eq!(
        beside["text"], "beside",
        "another session does not wait for it"
    );
    assert_eq!(turn["error"]["code"], "agent_exited", "{}", turn["error"]);
    let detail = turn["error"]["detail"].as_str().expect("a detail");
    assert!(detail.contains("read nothing from its stdin"), "{detail}");
    figure(&format!(
        "{HUGE} bytes to a deaf agent: ended after {:?}, {} KiB more",
        began.elapsed(),
        case.grown()
    ));
    assert_eq!(case.turn(&session, "echo next").await["text"], "next");
    assert_eq!(
        case.received("xxxxxxxxxx"),
        0,
        "it never had the whole line"
    );
    case.hold().await;
}

#[tokio::test]
async fn a_huge_prompt_to_an_agent_that_reads_arrives_whole() {
    let (mut case, session) = Case::fake(&[]).await;
    // It is echoed: both directions hold it.
    case.budget(32 * HUGE as u64 / 1024);
    let text = format!("{}<end>", "x".repeat(HUGE));
    let turn = case.turn(&session, &text).await;
    assert_eq!(
        (&turn["stopReason"], turn["text"].as_str().map(str::len)),
        (&json!("end_turn"), Some(text.len()))
    );
    assert_eq!(case.received("xxx<end>"), 1);
    case.holds().await;
}

#[tokio::test]
async fn a_cancel_that_is_never_read_ends_the_agent_and_the_turn_once() {
    let (case, session) = deaf(
        &["--ignore-term"],
        "testing.cancel_timeout = \"200ms\"\ntesting.cancel_total_timeout = \"5s\"",
    )
    .await;
    // The last that it reads.
    case.prompt(&session, "hang").await;
    case.log_until(&session, |event| {
        event["type"] == "prompt.started" && event["promptId"] == "p2"
    })
    .await;
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(
            case.post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
                .await
                .0,
            202
        );
    }
    case.log_until(&session, |event| event["type"] == "prompt.failed")
        .await;
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(case.turn(&session, "echo next").await["text"], "next");
    assert_eq!(case.received("session/cancel"), 0);
    assert_eq!(
        one(&case.holds().await, "prompt.failed")["problem"]["code"],
        "cancel_timeout"
    );
}

/// Each is to be answered, and the answers have nowhere to go.
#[tokio::test]
async fn a_flood_of_questions_from_an_agent_that_does_not_read_ends_it() {
    let (case, session) = deaf(&[], "testing.stdin_stall_timeout = \"30s\"").await;
    let turn = case
        .turn(
            &session,
            &format!("ask {PERMISSION} n=5000 report=no ms=60000"),
        )
        .await;
    assert_eq!(turn["error"]["code"], "agent_exited", "{turn}");
    figure(&format!(
        "5000 questions of a deaf agent: {} KiB more",
        case.grown()
    ));
    assert_eq!(case.turn(&session, "echo next").await["text"], "next");
    let log = case.holds().await;
    assert_eq!(
        all(&log, "request.created").len(),
        64,
        "more than may wait are not shown"
    );
    assert!(
        all(&log, "request.resolved")
            .iter()
            .all(|event| event["resolution"] == "withdrawn")
    );
    one(&log, "prompt.failed");
}
