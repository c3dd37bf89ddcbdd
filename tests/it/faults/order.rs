//! Messages at a wrong time: twice, before the session, after the end, without a receiver, and in a flood.

use serde_json::{Value, json};

use super::Case;
use crate::support::figure;
use crate::support::log::{agent_text, all, noise, one};

#[tokio::test]
async fn second_response_to_a_prompt_changes_nothing() {
    let (case, session) = Case::fake(&[]).await;
    for (first, second) in [
        ("end_turn", "refusal"),
        ("refusal", "end_turn"),
        ("cancelled", "max_tokens"),
    ] {
        let turn = case
            .turn(&session, &format!("twice first={first} second={second}"))
            .await;
        assert_eq!(
            (&turn["status"], &turn["stopReason"]),
            (&json!("completed"), &json!(first))
        );
    }
    assert_eq!(case.turn(&session, "echo next").await["text"], "next");
    let log = case.holds().await;
    assert_eq!((all(&log, "prompt.completed").len(), noise(&log)), (4, 3));
}

#[tokio::test]
async fn of_the_updates_before_a_session_exists_the_last_ones_are_kept() {
    let (case, session) = Case::fake_with(
        &["--early-updates"],
        "",
        "testing.max_pre_attach_updates = 1",
    )
    .await;
    case.log_until(&session, |event| event["type"] == "session.update")
        .await;
    let log = case.holds().await;
    assert_eq!(
        one(&log, "session.update")["update"]["sessionUpdate"],
        "usage_update"
    );
}

#[tokio::test]
async fn flood_after_the_end_of_its_turn_is_late_and_ends_nothing() {
    const UPDATES: usize = 3000;
    let (case, session) = Case::fake(&[]).await;
    assert_eq!(
        case.turn(&session, &format!("late n={UPDATES} ms=0")).await["status"],
        "completed"
    );
    // After the events that created and attached the session, and began and ended the turn.
    let last = 4 + UPDATES as u64;
    case.log_until(&session, |event| event["seq"] == last).await;
    assert_eq!(case.turn(&session, "echo next").await["text"], "next");
    let log = case.holds().await;
    let late: Vec<&Value> = all(&log, "session.update")
        .into_iter()
        .filter(|e| e["late"] == true)
        .collect();
    assert_eq!(late.len(), UPDATES);
    assert!(late.iter().all(|event| event["promptId"] == "p1"));
    assert_eq!(all(&log, "prompt.completed").len(), 2);
}

/// Nothing of it is shown, kept, or written to the gateway's own log line by line.
#[tokio::test]
async fn flood_for_an_unknown_session_has_no_effect() {
    const UPDATES: u64 = 50_000;
    let (mut case, session) = Case::fake(&["--collide-ids"]).await;
    let other = case.session().await;
    let turn = case
        .turn(
            &session,
            &format!("flood n={UPDATES} session=nobody; stream n=1 size=8"),
        )
        .await;
    assert_eq!(
        (&turn["status"], &turn["text"]),
        (&json!("completed"), &json!("00000000")),
        "{turn}"
    );
    assert_eq!(case.turn(&other, "echo hello").await["text"], "hello");
    let grown = case.grown();
    let written = case.log().len();
    figure(&format!(
        "{UPDATES} updates for nobody: {grown} KiB more memory, {written} bytes of log"
    ));
    assert!(
        written < 16 << 10,
        "the gateway's own log has {written} bytes"
    );
    let logs = case.hold().await;
    assert_eq!(
        (agent_text(&logs[0]).as_str(), agent_text(&logs[1]).as_str()),
        ("00000000", "hello")
    );
    assert_eq!(all(&logs[0], "session.update").len(), 1);
}
