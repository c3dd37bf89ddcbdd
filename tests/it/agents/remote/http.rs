//! Agents over HTTP with Server-Sent Events: resumed streams, hosts that restart, and rejected connections.

use std::time::Duration;

use serde_json::{Value, json};

use super::{near, pair_over, pair_with_proxy};
use crate::support::log::{agent_text, all, one};
use crate::support::{Gateway, Setup};

const CHUNKS: usize = 60;

async fn until_chunk(gateway: &Gateway, session: &str, number: usize) -> Vec<Value> {
    let text = format!("chunk {number} ");
    let has_chunk = |event: &Value| event["update"]["content"]["text"] == text.as_str();
    gateway.log_until(session, has_chunk).await
}

#[tokio::test]
async fn turn_continues_after_cuts_of_its_streams_without_loss_or_duplicates() {
    let (near, proxy, _far) = pair_with_proxy("http").await;
    let session = near.session("far").await;
    near.turn(&session, "echo before").await;
    let prompt = near
        .prompt(&session, &format!("slow chunks={CHUNKS} ms=50"))
        .await;
    for number in [3, 12, 21, 30, 39] {
        until_chunk(&near, &session, number).await;
        proxy.cut();
    }
    // Messages that are sent during a cut arrive after it.
    until_chunk(&near, &session, 45).await;
    proxy.refuse(true);
    proxy.cut();
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.refuse(false);
    near.log_until(&session, |event| {
        event["type"] == "prompt.completed" && event["promptId"] == prompt["promptId"]
    })
    .await;
    let turn = near.turn(&session, "echo after").await;
    assert_eq!(
        (&turn["status"], &turn["text"]),
        (&json!("completed"), &json!("after")),
        "{turn}"
    );
    let events = near.lawful(&session).await;
    let chunks = (0..CHUNKS)
        .map(|number| format!("chunk {number} "))
        .collect::<Vec<_>>()
        .concat();
    assert_eq!(agent_text(&events), format!("before{chunks}after"));
    assert_eq!(all(&events, "prompt.completed").len(), 3);
    assert_eq!(
        all(&events, "session.attached").len(),
        1,
        "the connection was kept"
    );
}

#[tokio::test]
async fn restarted_host_fails_the_turn_and_the_next_prompt_restores_the_session() {
    let (near, mut far) = pair_over("http");
    let session = near.session("far").await;
    assert_eq!(near.turn(&session, "echo before").await["text"], "before");
    near.prompt(&session, "slow chunks=200 ms=50").await;
    until_chunk(&near, &session, 1).await;
    far.kill();
    far.start();
    let events = near
        .log_until(&session, |event| event["type"] == "prompt.failed")
        .await;
    let problem = &one(&events, "prompt.failed")["problem"];
    assert_eq!(
        (&problem["code"], &problem["retryable"]),
        (&json!("agent_disconnected"), &json!(true))
    );
    let exited = one(&events, "agent.exited");
    assert!(
        exited["disconnected"]
            .as_str()
            .is_some_and(|reason| reason.contains("404")),
        "{exited}"
    );
    let turn = near.turn(&session, "echo after").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert!(
        turn["text"]
            .as_str()
            .is_some_and(|text| text.ends_with("after")),
        "{turn}"
    );
    let events = near.lawful(&session).await;
    assert_ne!(all(&events, "session.attached")[1]["by"], "new");
}

#[tokio::test]
async fn wrong_path_and_unknown_agent_are_reported() {
    let far = Setup::fake(&[]).start();
    for (path, status, expected) in [
        ("nothing", 502, "404"),
        ("", 502, "check `url` of [agents.far]"),
        ("acp/none", 422, "there is no such agent"),
    ] {
        let near = near(&format!("http://{}/{path}", far.address()), &far, "").start();
        let failed = near
            .posted("/v1/sessions", &[], &json!({ "agent": "far" }))
            .await;
        assert_eq!(failed.status.as_u16(), status, "{path}: {}", failed.body);
        assert!(
            failed.body.to_string().contains(expected),
            "{path}: {}",
            failed.body
        );
    }
}
