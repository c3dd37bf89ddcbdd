//! JSON that parsers read differently, that exhausts them, or that they cannot represent.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;

use crate::support::log::noise;
use crate::support::procfs::highest;
use crate::support::{Answer, Gateway, Setup, figure};

const DEEP: usize = 100_000;

fn posted(gateway: &Gateway, path: &str, body: String) -> RequestBuilder {
    gateway
        .request(Method::POST, path)
        .header("content-type", "application/json")
        .body(body)
}

#[tokio::test]
async fn a_hundred_thousand_levels_of_nesting_are_rejected_from_clients_and_agents() {
    let gateway = Setup::fake_with(&[], "rpc = [\"_vendor/echo\"]\nmeta = [\"x\"]").start();
    let session = gateway.session("fake").await;
    let before = highest(gateway.pid());
    let path = format!("/v1/sessions/{session}");
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let deep = format!("{}1{}", open.repeat(DEEP), close.repeat(DEEP));
        for (path, body) in [
            ("/v1/sessions".to_owned(), deep.clone()),
            (
                "/v1/sessions".to_owned(),
                format!(r#"{{"agent":"fake","_meta":{{"x":{deep}}}}}"#),
            ),
            (format!("{path}/prompts"), format!(r#"{{"prompt":{deep}}}"#)),
            (
                format!("{path}/rpc"),
                format!(r#"{{"method":"_vendor/echo","params":{{"a":{deep}}}}}"#),
            ),
            (
                format!("{path}/requests/r1"),
                format!(r#"{{"result":{deep}}}"#),
            ),
        ] {
            let problem = Answer::of(posted(&gateway, &path, body)).await;
            assert!(
                problem.body.to_string().contains("nested deeper than"),
                "{path}: {}",
                problem.body
            );
            problem.problem(422, "invalid");
        }
    }
    assert_eq!(
        gateway.turn(&session, &format!("deep depth={DEEP}")).await["text"],
        "after"
    );
    assert_eq!(
        noise(&gateway.all_events(&session).await),
        1,
        "the line of the agent is invalid"
    );
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    let grown = highest(gateway.pid()).saturating_sub(before);
    figure(&format!(
        "eleven messages with {DEEP} levels: the gateway has grown by {grown} KiB"
    ));
    assert!(grown < 64 << 10, "{grown} KiB");
}

#[tokio::test]
async fn duplicate_members_of_a_request_are_rejected() {
    let gateway = Setup::fake_with(&[], "rpc = [\"_vendor/echo\"]").start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "permission").await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    let path = format!("/v1/sessions/{session}");
    for (path, body) in [
        (
            "/v1/sessions".to_owned(),
            r#"{"agent":"fake","agent":"other"}"#,
        ),
        (
            "/v1/sessions".to_owned(),
            r#"{"agent":"fake","mcpServers":[],"mcpServers":["x"]}"#,
        ),
        (format!("{path}/prompts"), r#"{"prompt":"a","prompt":"b"}"#),
        (
            format!("{path}/permissions/r1"),
            r#"{"optionId":"reject","optionId":"allow"}"#,
        ),
        (
            format!("{path}/requests/r1"),
            r#"{"result":{},"result":{"outcome":{"outcome":"cancelled"}}}"#,
        ),
        (
            format!("{path}/rpc"),
            r#"{"method":"_vendor/echo","method":"session/prompt"}"#,
        ),
        (
            "/v1/tickets".to_owned(),
            r#"{"paths":[],"paths":["/v1/events"]}"#,
        ),
    ] {
        let answer = Answer::of(posted(&gateway, &path, body.to_owned())).await;
        assert!(
            matches!(answer.status.as_u16(), 400 | 422),
            "{path} {body}: {answer:?}"
        );
        assert!(answer.body["code"].is_string(), "{answer:?}");
    }
    assert_eq!(
        gateway.all_events(&session).await.len(),
        events.len(),
        "nothing has changed"
    );
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

/// A gzip file with one stored block. It is valid, so a server that decodes bodies would accept it.
fn gzip(text: &str) -> Vec<u8> {
    let mut crc = u32::MAX;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    let size = u16::try_from(text.len()).expect("a short text");
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    file.extend(size.to_le_bytes());
    file.extend((!size).to_le_bytes());
    file.extend(text.as_bytes());
    file.extend((!crc).to_le_bytes());
    file.extend(u32::from(size).to_le_bytes());
    file
}

#[tokio::test]
async fn compressed_bodies_are_rejected_with_the_name_of_their_coding() {
    let gateway = Setup::fake(&[]).start();
    let body = gzip(r#"{"agent":"fake"}"#);
    for path in ["/v1/sessions", "/v1/tasks", "/openai/v1/chat/completions"] {
        for coding in ["gzip", "x-gzip", "gzip, gzip", "deflate", "br", "zstd"] {
            let request = gateway
                .request(Method::POST, path)
                .header("content-encoding", coding);
            let request = request
                .header("content-type", "application/json")
                .body(body.clone());
            let answer = Answer::of(request).await;
            assert_eq!(answer.status.as_u16(), 415, "{path} {coding}: {answer:?}");
            assert!(
                answer.body.to_string().contains(coding),
                "{path} {coding}: {answer:?}"
            );
        }
    }
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    let plain = posted(&gateway, "/v1/sessions", r#"{"agent":"fake"}"#.to_owned());
    assert_eq!(
        Answer::of(plain).await.status,
        StatusCode::CREATED,
        "the same body without a coding"
    );
}

/// The events of the log in a stream of either format.
fn logged(stream: &str) -> Vec<&str> {
    let lines = stream
        .lines()
        .map(|line| line.strip_prefix("data: ").unwrap_or(line));
    lines.filter(|line| line.contains(r#""seq":"#)).collect()
}

/// Every form of a session's log and transcript, as text.
async fn all_forms(gateway: &Gateway, session: &str) -> Vec<String> {
    let path = format!("/v1/sessions/{session}");
    let mut forms = Vec::new();
    for (query, accept) in [
        ("/events?limit=1000", "application/json"),
        ("/events/stream?follow=false", "text/event-stream"),
        ("/events?follow=false", "application/x-ndjson"),
        ("/prompts", "application/json"),
        ("/transcript", "application/json"),
        ("/transcript/markdown", "text/markdown"),
    ] {
        let request = gateway
            .request(Method::GET, &format!("{path}{query}"))
            .header("accept", accept);
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK, "{query}");
        forms.push(response.text().await.expect("UTF-8"));
    }
    forms
}

#[tokio::test]
async fn poisoned_events_are_stored_and_replayed_also_after_a_kill() {
    const SSE: &str = r"\r\n\r\nid: x-999\r\nevent: prompt.completed\r\ndata: {}\r\n\r\n";
    let mut gateway = Setup::fake(&["--state", "state"]).start();
    let session = gateway.session("fake").await;
    let update = |text: &str, more: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"$SESSION\",\"update\":\
             {{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}{more}}}}}}}"
        )
    };
    let lines = [
        update(r"\u0000 a NUL", ""),
        update(r"\ud800 half a character", ""),
        update(SSE, ""),
        update("\u{2028}\u{2029}\u{feff}\u{202e}", ""),
        update(
            "big",
            r#","_meta":{"n":1e400,"m":-1e-400,"i":123456789012345678901234567890}"#,
        ),
        update("minus", r#","_meta":{"n":-0,"e":1E+2}"#),
        format!("\u{feff}{}", update("behind a byte order mark", "")),
    ];
    let turn = gateway
        .turn(&session, &format!("raw {}", lines.join("\n")))
        .await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let events = gateway.request(
        Method::GET,
        &format!("/v1/sessions/{session}/events?limit=1000"),
    );
    let events = events
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("UTF-8");
    for text in [
        r"\u0000 a NUL",
        r"\ud800 half",
        SSE,
        "1e400",
        "123456789012345678901234567890",
        r#""n":-0"#,
    ] {
        assert!(events.contains(text), "{text}: {events}");
    }
    let shown = events
        .matches(r#""sessionUpdate":"agent_message_chunk""#)
        .count();
    let invalid = events.matches(r#""type":"agent.invalid_output""#).count();
    assert_eq!(
        shown + invalid,
        lines.len(),
        "each line is an update or counted as invalid: {events}"
    );
    let before = all_forms(&gateway, &session).await;
    let ends = before[1]
        .lines()
        .filter(|line| *line == "event: prompt.completed")
        .count();
    assert_eq!(ends, 1, "text of the agent is no frame: {}", before[1]);
    gateway.kill();
    gateway.start();
    let after = all_forms(&gateway, &session).await;
    for (before, after) in before.iter().zip(&after).skip(1).take(2) {
        let before = logged(before);
        let after = logged(after);
        assert!(
            before.len() > lines.len() && after.starts_with(&before),
            "{before:#?} {after:#?}"
        );
    }
    assert_eq!(
        logged(&after[1]),
        logged(&after[2]),
        "both formats have the same bytes"
    );
    assert_eq!(
        gateway.turn(&session, "echo next").await["text"],
        "next",
        "the session continues"
    );
}
