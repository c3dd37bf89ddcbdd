//! Lines on an agent's stdout that are no messages.

use reqwest::Method;
use serde_json::json;

use super::Case;
use crate::support::log::{agent_text, all, noise, one};
use crate::support::{Answer, Setup};

#[tokio::test]
async fn invalid_json_lines_are_counted_and_the_stream_continues() {
    let (gateway, session) = Case::fake(&[]).await;
    let turn = gateway.turn(&session, "garbage n=5").await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    assert_eq!(turn["text"], "chunk 0 chunk 1 chunk 2 chunk 3 chunk 4 end");
    let events = gateway.lawful(&session).await;
    assert_eq!(noise(&events), 5);
    let bytes: u64 = all(&events, "agent.invalid_output")
        .iter()
        .filter_map(|event| event["bytes"].as_u64())
        .sum();
    let lines = [
        "npm WARN deprecated",
        "{\"jsonrpc\":",
        "\"a string\"",
        "{}",
        "]",
    ];
    assert_eq!(
        bytes,
        lines.concat().len() as u64,
        "the count excludes the line ends"
    );
    let reports = all(&events, "agent.invalid_output");
    assert!(reports.iter().all(|event| event["promptId"] == "p1"));
    assert_eq!(reports[0]["excerpt"], lines[0]);
    gateway.holds().await;
}

#[tokio::test]
async fn text_before_the_handshake_does_not_disturb_it() {
    let (gateway, session) = Case::fake(&["--noise-at-start"]).await;
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
    gateway.holds().await;
}

#[tokio::test]
async fn a_json_rpc_batch_is_one_bad_line() {
    let (gateway, session) = Case::fake(&[]).await;
    assert_eq!(
        gateway.turn(&session, "array; stream n=1 size=8").await["status"],
        "completed"
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(noise(&events), 1);
    assert_eq!(
        agent_text(&events).len(),
        8,
        "nothing of the batch is said: {}",
        agent_text(&events)
    );
    gateway.holds().await;
}

#[tokio::test]
async fn line_with_invalid_utf8_is_counted_and_the_stream_continues() {
    let (gateway, session) = Case::fake(&[]).await;
    assert_eq!(
        gateway.turn(&session, "bad-utf8").await["text"],
        "before after"
    );
    assert_eq!(noise(&gateway.lawful(&session).await), 1);
    gateway.holds().await;
}

#[tokio::test]
async fn characters_that_arrive_in_pieces_are_whole() {
    let (gateway, session) = Case::fake(&[]).await;
    assert_eq!(
        gateway.turn(&session, "split-utf8").await["text"],
        "ü 漢字 😀 end"
    );
    assert_eq!(noise(&gateway.lawful(&session).await), 0);
    gateway.holds().await;
}

#[tokio::test]
async fn a_lone_surrogate_passes_byte_for_byte_in_both_directions() {
    // No follower of the test's own: it reads JSON into strings, which such an escape does not fit in.
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let prompts = format!("/v1/sessions/{session}/prompts");
    for (body, text) in [
        (r#"{"prompt":"surrogate"}"#, "a lone \u{fffd} surrogate"),
        (r#"{"prompt":"echo \udead end"}"#, "echo \u{fffd} end"),
    ] {
        let request = gateway
            .request(Method::POST, &prompts)
            .header("Prefer", "wait=60");
        let request = request
            .header("Content-Type", "application/json")
            .body(body);
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        let turn: serde_json::Value = response.json().await.expect("JSON");
        assert_eq!(turn["text"], text);
    }
    let events = gateway.request(Method::GET, &format!("/v1/sessions/{session}/events"));
    let events = events
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("a body");
    assert!(
        events.contains(r#""text":"a lone \ud83d surrogate""#),
        "{events}"
    );
    // The scripted agent returns the text that it cannot parse, in its original spelling.
    let echoed = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"echo \udead end"}}"#;
    assert!(events.contains(echoed), "{events}");
    for path in [
        "",
        "/prompts",
        "/prompts/p1",
        "/transcript",
        "/transcript?format=md",
    ] {
        let answer = gateway
            .request(Method::GET, &format!("/v1/sessions/{session}{path}"))
            .send()
            .await;
        assert_eq!(answer.expect("an answer").status(), 200, "{path}");
    }
}

#[tokio::test]
async fn line_above_the_nesting_limit_is_invalid() {
    let (gateway, session) = Case::fake(&[]).await;
    assert_eq!(
        gateway.turn(&session, "deep depth=200").await["text"],
        "after"
    );
    assert_eq!(noise(&gateway.lawful(&session).await), 1);
    assert_eq!(
        gateway.turn(&session, "deep depth=20").await["text"],
        "deepafter"
    );
    gateway.holds().await;
}

#[tokio::test]
async fn an_over_long_line_ends_the_agent_and_the_next_prompt_works() {
    let (gateway, session) = Case::fake_with(&[], "max_line_bytes = \"64KiB\"", "").await;
    let turn = gateway.turn(&session, "long-line bytes=200000").await;
    assert_eq!(
        (&turn["status"], &turn["error"]["code"]),
        (&json!("failed"), &json!("agent_exited"))
    );
    let detail = turn["error"]["detail"].as_str().expect("a detail");
    assert!(detail.contains("longer than 65536 bytes"), "{detail}");
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
    let events = gateway.lawful(&session).await;
    assert_eq!(
        agent_text(&events),
        "hello",
        "nothing of the long line is shown"
    );
    one(&events, "agent.exited");
    assert_eq!(one(&events, "session.detached")["reason"], "exited");
    gateway.holds().await;
}

#[tokio::test]
async fn a_line_as_long_as_the_cap_allows_passes_whole() {
    let (gateway, session) = Case::fake(&[]).await;
    let events = gateway.streamed(&session, "long-line bytes=3000000").await;
    let text = agent_text(&events);
    assert_eq!(text.len(), 3_000_000 + "after".len());
    assert!(text.trim_start_matches('x') == "after");
    gateway.holds().await;
}

#[tokio::test]
async fn a_flood_of_bad_lines_ends_the_agent_and_the_next_prompt_works() {
    let (gateway, session) =
        Case::fake_with(&[], "", "testing.max_invalid_lines_per_minute = 100").await;
    let turn = gateway.turn(&session, "bad-flood n=500").await;
    assert_eq!(turn["error"]["code"], "agent_exited", "{turn}");
    let detail = turn["error"]["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("more than 100 lines a minute that are not JSON-RPC"),
        "{detail}"
    );
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
    let events = gateway.lawful(&session).await;
    assert_eq!(noise(&events), 101, "the bytes before the end are counted");
    gateway.holds().await;
}

#[tokio::test]
async fn invalid_lines_up_to_the_limit_change_nothing() {
    let (gateway, session) =
        Case::fake_with(&[], "", "testing.max_invalid_lines_per_minute = 100").await;
    let turn = gateway.turn(&session, "bad-flood n=100").await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    assert_eq!(noise(&gateway.lawful(&session).await), 100);
    let answer: Answer = gateway
        .call(Method::GET, &format!("/v1/sessions/{session}"))
        .await;
    assert_eq!(answer.body["attached"], true);
    gateway.holds().await;
}
