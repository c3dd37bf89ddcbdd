//! Output of an agent in unusual pieces, or without an end.

use std::time::Duration;

use serde_json::json;

use super::Case;
use crate::support::log::{agent_text, noise, one};
use crate::support::{eventually, figure};

/// The default of `max_line_bytes`.
const CAP: u64 = 16 << 20;

#[tokio::test]
async fn line_that_arrives_byte_by_byte_is_one_line() {
    let (case, session) = Case::fake(&[]).await;
    let turn = case.turn(&session, "drip").await;
    assert_eq!(
        (&turn["stopReason"], &turn["text"]),
        (&json!("end_turn"), &json!("é漢😀 drop by drop"))
    );
    assert_eq!(noise(&case.holds().await), 0);
}

/// Three bytes do not divide the size of a read from a pipe, so reads end inside characters.
#[tokio::test]
async fn characters_that_lie_across_the_edges_of_reads_are_whole() {
    const CHARACTERS: usize = 300_000;
    let (case, session) = Case::fake(&[]).await;
    let turn = case
        .turn(&session, &format!("wide chars={CHARACTERS}"))
        .await;
    let text = turn["text"].as_str().expect("a text");
    assert_eq!(text.len(), 3 * CHARACTERS + "after".len());
    assert_eq!(text.trim_start_matches('漢'), "after");
    assert_eq!(noise(&case.holds().await), 0);
}

#[tokio::test]
async fn a_line_of_a_hundred_megabytes_ends_the_agent_and_costs_less_than_four_caps() {
    let (mut case, session) = Case::fake(&[]).await;
    case.budget(4 * CAP / 1024);
    let turn = case
        .turn(&session, "stream n=1 size=8; endless bytes=104857600")
        .await;
    assert_eq!(turn["error"]["code"], "agent_exited", "{turn}");
    let detail = turn["error"]["detail"].as_str().expect("a detail");
    assert!(
        detail.contains(&format!("longer than {CAP} bytes")),
        "{detail}"
    );
    figure(&format!(
        "a line of 100 MiB: the gateway has grown by {} KiB at its highest",
        case.grown()
    ));
    assert_eq!(case.turn(&session, "echo next").await["text"], "next");
    assert_eq!(
        agent_text(&case.holds().await),
        "00000000next",
        "nothing of the line is shown"
    );
}

#[tokio::test]
async fn a_flood_on_stderr_is_drained_and_costs_no_memory() {
    const BYTES: usize = 50_000_000;
    let (mut case, session) = Case::fake(&[]).await;
    case.budget(16 << 10);
    let turn = case
        .turn(
            &session,
            &format!("stderr bytes={BYTES}; stderr text=the-last"),
        )
        .await;
    assert_eq!(
        turn["stopReason"], "end_turn",
        "the agent does not wait for the reader of its stderr"
    );
    let path = format!("/v1/sessions/{session}/stderr");
    let tail = eventually("the end of stderr", Duration::from_secs(20), async || {
        let tail = case
            .request(reqwest::Method::GET, &path)
            .send()
            .await
            .expect("an answer");
        let tail = tail.text().await.expect("a body");
        tail.ends_with("the-last\n").then_some(tail)
    })
    .await;
    assert!(tail.len() <= 64 << 10, "{}", tail.len());
    figure(&format!(
        "{BYTES} bytes on stderr: the gateway has grown by {} KiB at its highest",
        case.grown()
    ));
    assert!(
        case.log().len() < 64 << 10,
        "nor does its own log grow: {}",
        case.log().len()
    );
    one(&case.holds().await, "prompt.completed");
}
