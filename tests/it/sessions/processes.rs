//! Sessions outlive their processes.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::log::{agent_text, all, one};
use crate::support::{Gateway, Setup, eventually};

#[tokio::test]
async fn idle_session_releases_its_process_and_the_next_prompt_attaches_one() {
    let setup = Setup::fake_with(
        &["--state", "state"],
        "pool = { max_size = 2, min_idle = 0, idle_timeout = \"200ms\" }",
    );
    let gateway = setup.start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;
    assert_eq!(events.last().expect("the end")["reason"], "idle");
    gateway.none_alive().await;
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["state"], &shown["attached"]),
        (&json!("idle"), &json!(false))
    );
    assert_eq!(gateway.turn(&session, "echo two").await["text"], "two");
    let events = gateway.lawful(&session).await;
    assert_eq!(all(&events, "session.attached")[1]["by"], "load");
    assert_eq!(agent_text(&events), "onetwo");
}

#[tokio::test]
async fn turn_or_open_request_keeps_the_process() {
    let gateway = Setup::fake_with(
        &[],
        "pool = { max_size = 2, min_idle = 0, idle_timeout = \"100ms\" }",
    )
    .start();
    let session = gateway.session("fake").await;
    let turn = gateway.turn(&session, "slow chunks=3 ms=300").await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    assert!(gateway.get_session(&session).await["attached"].is_boolean());
    let before = all(&gateway.lawful(&session).await, "session.detached").len();
    assert!(before <= 1, "not within the turn");
}

#[tokio::test]
async fn many_sessions_live_on_few_processes() {
    let setup = Setup::fake_with(
        &["--state", "state"],
        "pool = { max_size = 2, min_idle = 0 }",
    );
    let gateway = setup.start();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(gateway.session("fake").await);
    }
    for round in 0..2 {
        for (number, session) in sessions.iter().enumerate() {
            let turn = gateway
                .turn(session, &format!("echo {number}.{round};"))
                .await;
            assert_eq!(turn["text"], format!("{number}.{round};"), "{turn}");
        }
        let agents = gateway.get("/v1/agents/fake").await;
        assert!(
            agents["pool"]["processes"]
                .as_u64()
                .is_some_and(|live| live <= 2),
            "{agents}"
        );
    }
    for (number, session) in sessions.iter().enumerate() {
        let events = gateway.lawful(session).await;
        assert_eq!(agent_text(&events), format!("{number}.0;{number}.1;"));
        assert!(
            all(&events, "session.detached")
                .iter()
                .all(|event| event["reason"] == "reclaimed")
        );
        assert!(
            all(&events, "session.attached")[1..]
                .iter()
                .all(|event| event["by"] == "load")
        );
    }
    assert!(
        gateway.agents_alive().len() <= 4,
        "two agents and their supervisors"
    );
}

#[tokio::test]
async fn a_process_that_closed_its_session_serves_the_next() {
    let setup = Setup::fake_with(&["--close"], "pool = { max_size = 1, min_idle = 0 }");
    let gateway = setup.start();
    let one = gateway.session("fake").await;
    let pid = gateway.turn(&one, "pid").await["text"].clone();
    let other = gateway.session("fake").await;
    assert_eq!(
        gateway.turn(&other, "pid").await["text"],
        pid,
        "it closed the first, and was kept"
    );
    let gateway = Setup::fake_with(&[], "pool = { max_size = 1, min_idle = 0 }").start();
    let one = gateway.session("fake").await;
    let pid = gateway.turn(&one, "pid").await["text"].clone();
    let other = gateway.session("fake").await;
    assert_ne!(
        gateway.turn(&other, "pid").await["text"],
        pid,
        "a process without close serves no other session"
    );
}

#[tokio::test]
async fn when_all_processes_work_a_prompt_waits_in_line_for_one() {
    let setup = Setup::fake_with(
        &["--state", "state"],
        "pool = { max_size = 1, min_idle = 0 }",
    );
    let gateway = setup.start();
    let idle = gateway.session("fake").await;
    let busy = gateway.session("fake").await;
    gateway.prompt(&busy, "stream n=1; hang").await;
    gateway
        .log_until(&busy, |event| event["type"] == "session.update")
        .await;
    let waiting = gateway.prompt(&idle, "hello").await;
    assert_eq!(waiting["status"], "queued");
    let agents = gateway.get("/v1/agents/fake").await;
    assert_eq!(
        (&agents["pool"]["processes"], &agents["pool"]["waiting"]),
        (&json!(1), &json!(1)),
        "{agents}"
    );
    gateway
        .call(Method::POST, &format!("/v1/sessions/{busy}/cancel"))
        .await;
    let events = gateway
        .log_until(&idle, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(agent_text(&events), "hello");
    let events = gateway.lawful(&busy).await;
    assert_eq!(one(&events, "prompt.completed")["stopReason"], "cancelled");
}

#[tokio::test]
async fn full_commit_queue_rejects_and_appends_nothing() {
    let setup = Setup::fake_with(
        &["--state", "state"],
        "pool = { max_size = 1, min_idle = 0 }",
    );
    let gateway = setup.settings("testing.max_queue_places = 1").start();
    let sessions = [gateway.session("fake").await, gateway.session("fake").await];
    let busy = gateway.session("fake").await;
    gateway.prompt(&busy, "stream n=1; hang").await;
    gateway
        .log_until(&busy, |event| event["type"] == "session.update")
        .await;
    gateway.prompt(&sessions[0], "hello").await;
    let before = gateway.all_events(&sessions[1]).await;
    let body = json!({ "prompt": "hello" });
    let answer = gateway
        .posted(&format!("/v1/sessions/{}/prompts", sessions[1]), &[], &body)
        .await;
    assert!(answer.header("retry-after").is_some());
    answer.problem(503, "pool_full");
    gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "fake" }))
        .await
        .problem(503, "pool_full");
    assert_eq!(gateway.all_events(&sessions[1]).await, before);
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
}

#[tokio::test]
async fn a_key_may_have_so_many_live_sessions() {
    let gateway = Setup::fake(&["--state", "state"])
        .settings("limits.per_key.max_live_sessions = 2")
        .start();
    let first = gateway.session("fake").await;
    gateway.session("fake").await;
    let body = json!({ "agent": "fake" });
    let problem = gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(429, "rate_limited");
    assert_eq!(problem["retryable"], true);
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    gateway
        .call(Method::POST, &format!("/v1/sessions/{first}/close"))
        .await;
    eventually(
        "there is room for another one",
        Duration::from_secs(10),
        || async {
            let created = gateway.posted("/v1/sessions", &[], &body).await;
            (created.status == StatusCode::CREATED).then_some(())
        },
    )
    .await;
}

#[tokio::test]
async fn the_stream_over_sessions_has_each_event_of_each_in_its_order() {
    let gateway = Setup::fake(&[]).start();
    let a = gateway.session("fake").await;
    let b = gateway.session("fake").await;
    let outsider = gateway.session("fake").await;
    let path = format!("/v1/events?session={a}&session={b}");
    let both = async {
        let mut stream = gateway.events(&path).await;
        let mut events = Vec::<Value>::new();
        let mut ends = 0;
        while ends < 2 {
            let frame = stream.next().await.expect("it follows");
            ends += usize::from(frame.of("prompt.completed"));
            if frame.data["seq"].is_u64() {
                assert!(
                    frame.id.as_deref().is_some_and(|id| id.contains("-g")),
                    "{frame:?}"
                );
                events.push(frame.data);
            }
        }
        events
    };
    let (events, ..) = tokio::join!(
        both,
        gateway.streamed(&a, "stream n=300 rate=1000"),
        gateway.streamed(&b, "stream n=300 rate=1000"),
        gateway.streamed(&outsider, "stream n=300 rate=1000"),
    );
    for session in [&a, &b] {
        let of_one: Vec<&Value> = events
            .iter()
            .filter(|event| event["sessionId"] == **session)
            .collect();
        assert_eq!(json!(of_one), json!(gateway.lawful(session).await));
    }
    assert!(events.iter().all(|event| event["sessionId"] != *outsider));
}

#[tokio::test]
async fn sessions_and_logs_survive_a_kill_of_the_gateway() {
    let mut gateway: Gateway = Setup::fake(&["--state", "state"]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    let before = gateway.lawful(&session).await;
    let shown = gateway.get_session(&session).await;
    gateway.kill();
    gateway.start();
    let after = gateway.lawful(&session).await;
    assert_eq!(after[..before.len()], before);
    assert_eq!(one(&after, "session.detached")["reason"], "exited");
    let now = gateway.get_session(&session).await;
    for member in [
        "title",
        "metadata",
        "cwd",
        "modes",
        "configOptions",
        "createdAt",
        "promptCapabilities",
    ] {
        assert_eq!(now[member], shown[member], "{member}");
    }
    assert_eq!(
        (&now["state"], &now["attached"]),
        (&json!("idle"), &json!(false))
    );
    assert_eq!(gateway.turn(&session, "echo two").await["text"], "two");
    let events = gateway.lawful(&session).await;
    assert_eq!(all(&events, "session.attached")[1]["by"], "load");
    assert_eq!(agent_text(&events), "onetwo");
}
