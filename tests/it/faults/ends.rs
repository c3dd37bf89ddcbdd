//! Ends of an agent, with an incomplete line, an incomplete character, an open request, or a descendant that keeps
//! stdout open.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::Case;
use super::ids::PERMISSION;
use crate::support::log::{agent_text, all, noise, one};
use crate::support::{Random, eventually, figure, is_alive};

/// A turn in which the agent exits successfully, and another turn after it.
async fn cut_off(text: &str) -> (Value, Vec<Value>) {
    let (case, session) = Case::fake(&[]).await;
    let turn = case.turn(&session, text).await;
    let error = &turn["error"];
    assert_eq!(
        (&turn["status"], &error["code"]),
        (&json!("failed"), &json!("agent_exited")),
        "{turn}"
    );
    assert_eq!(
        (&error["exitCode"], &error["signal"]),
        (&json!(0), &Value::Null),
        "{turn}"
    );
    assert_eq!(case.turn(&session, "echo next").await["text"], "next");
    (turn, case.holds().await)
}

#[tokio::test]
async fn an_answer_without_the_end_of_its_line_ends_no_turn() {
    let (turn, log) = cut_off("stream n=1 size=8; unfinished at=line").await;
    assert_eq!(turn["stopReason"], Value::Null, "{turn}");
    let half = r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#;
    assert_eq!(
        (
            noise(&log),
            one(&log, "agent.invalid_output")["bytes"].as_u64()
        ),
        (1, Some(half.len() as u64))
    );
    assert_eq!(agent_text(&log), "00000000next");
}

#[tokio::test]
async fn half_a_character_at_the_end_of_file_is_counted_and_not_shown() {
    let (turn, log) = cut_off("stream n=1 size=8; unfinished at=character").await;
    assert_eq!(turn["text"], "00000000", "only complete lines are kept");
    assert_eq!(
        (noise(&log), agent_text(&log)),
        (1, "00000000next".to_owned())
    );
}

#[tokio::test]
async fn agent_that_closes_stdout_and_ignores_signals_is_killed() {
    let (case, session) = Case::fake(&["--ignore-eof", "--ignore-term"]).await;
    let turn = case.turn(&session, "fork; close-stdout").await;
    assert_eq!(turn["error"]["code"], "agent_exited", "{turn}");
    case.none_alive().await;
    assert_eq!(case.turn(&session, "echo next").await["text"], "next");
    let log = case.holds().await;
    one(&log, "agent.exited");
}

#[tokio::test]
async fn grandchild_with_open_stdout_does_not_block_the_turn() {
    let (case, session) = Case::fake(&[]).await;
    let began = Instant::now();
    let turn = case
        .turn(&session, "fork stdout=yes; crash code=7 chunks=0")
        .await;
    let took = began.elapsed();
    assert_eq!(
        (&turn["error"]["code"], &turn["error"]["exitCode"]),
        (&json!("agent_exited"), &json!(7)),
        "{turn}"
    );
    let pid = turn["text"]
        .as_str()
        .and_then(|text| text.strip_prefix("pid="))
        .expect("a pid");
    let pid: u32 = pid.parse().expect("a number");
    eventually(
        "the grandchild is gone",
        Duration::from_secs(10),
        async || (!is_alive(pid)).then_some(()),
    )
    .await;
    // It would hold the pipe for 300 s.
    assert!(took < Duration::from_mins(1), "{took:?}");
    assert_eq!(case.turn(&session, "echo next").await["text"], "next");
    case.holds().await;
}

/// The agent ends while a client answers its open request. Exactly one of both wins.
#[tokio::test]
async fn answer_at_the_agents_end_is_accepted_or_rejected() {
    const ROUNDS: usize = 8;
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let (case, session) = Case::fake(&[]).await;
    let mut accepted = 0;
    for round in 1..=ROUNDS {
        let mut stream = case
            .events(&format!("/v1/sessions/{session}/events?after=tail"))
            .await;
        stream.until("ready").await;
        let ms = random.below(20);
        let text = format!("ask {PERMISSION} report=no ms={ms}; crash code=3 chunks=0");
        case.prompt(&session, &text).await;
        stream.until("request.created").await;
        let path = format!("/v1/sessions/{session}/permissions/r{round}");
        let answer = case
            .posted(&path, &[], &json!({ "optionId": "allow" }))
            .await;
        let events = stream.until("prompt.failed").await;
        let resolved = events
            .iter()
            .find(|event| event.of("request.resolved"))
            .expect("it is resolved");
        if answer.status == StatusCode::NO_CONTENT {
            accepted += 1;
            assert_eq!(resolved.data["resolution"], "answered");
        } else {
            assert_eq!(
                answer.problem(409, "request_resolved")["resolution"],
                "withdrawn"
            );
            assert_eq!(resolved.data["resolution"], "withdrawn");
        }
    }
    figure(&format!(
        "{accepted} of {ROUNDS} answers came before the agent's end"
    ));
    let log = case.holds().await;
    assert_eq!(
        (
            all(&log, "request.resolved").len(),
            all(&log, "prompt.failed").len()
        ),
        (ROUNDS, ROUNDS)
    );
}
