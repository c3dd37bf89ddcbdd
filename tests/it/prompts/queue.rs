//! Prompts that wait behind the turn that runs.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::log::{agent_text, all, one};
use crate::support::{Answer, Gateway, Setup, eventually};

/// A session whose first turn runs until a cancel.
pub(super) async fn busy(setup: Setup) -> (Gateway, String) {
    let gateway = setup.start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "stream n=1 size=8; hang").await;
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    (gateway, session)
}

pub(super) async fn queue(gateway: &Gateway, session: &str, text: &str) -> Answer {
    let body = json!({ "prompt": text, "queue": true });
    gateway
        .posted(&format!("/v1/sessions/{session}/prompts"), &[], &body)
        .await
}

pub(super) async fn cancel(gateway: &Gateway, session: &str, what: &str) -> Answer {
    gateway
        .call(
            Method::POST,
            &format!("/v1/sessions/{session}{what}/cancel"),
        )
        .await
}

/// Waits for the end of this turn and returns it.
pub(super) async fn ended(gateway: &Gateway, session: &str, prompt: &str) -> Value {
    let path = format!("/v1/sessions/{session}/prompts/{prompt}");
    let answer = Answer::of(
        gateway
            .request(Method::GET, &path)
            .header("Prefer", "wait=60"),
    )
    .await;
    assert!(answer.body["endedAt"].is_string(), "{answer:?}");
    answer.body
}

#[tokio::test]
async fn a_second_prompt_is_refused_while_a_turn_runs() {
    let (gateway, session) = busy(Setup::fake(&[])).await;
    let before = gateway.all_events(&session).await;
    let body = json!({ "prompt": "me too" });
    let answer = gateway
        .posted(&format!("/v1/sessions/{session}/prompts"), &[], &body)
        .await;
    let problem = answer.problem(409, "turn_running");
    assert_eq!(
        (&problem["promptId"], &problem["retryable"]),
        (&json!("p1"), &json!(true))
    );
    assert_eq!(gateway.all_events(&session).await, before);
}

#[tokio::test]
async fn queued_prompts_run_one_after_the_other_in_their_order() {
    let (gateway, session) = busy(Setup::fake(&[])).await;
    for (number, text) in (2..).zip(["echo a", "error", "echo b", "crash chunks=0", "echo c"]) {
        let answer = queue(&gateway, &session, text).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["status"]),
            (202, &json!("queued"))
        );
        assert_eq!(answer.body["promptId"], format!("p{number}"));
    }
    let shown = gateway.get_session(&session).await;
    assert_eq!(shown["queued"], json!(["p2", "p3", "p4", "p5", "p6"]));
    assert_eq!(
        (&shown["promptId"], &shown["state"]),
        (&json!("p1"), &json!("running"))
    );
    assert_eq!(
        cancel(&gateway, &session, "/prompts/p1").await.body["promptIds"],
        json!(["p1"])
    );
    assert_eq!(ended(&gateway, &session, "p6").await["text"], "c");

    let events = gateway.lawful(&session).await;
    let positions: Vec<&Value> = all(&events, "prompt.queued")
        .iter()
        .map(|e| &e["position"])
        .collect();
    assert_eq!(positions, [1, 2, 3, 4, 5]);
    let mut open = None;
    let mut order = Vec::new();
    for event in &events {
        match event["type"].as_str() {
            Some("prompt.started") => {
                assert_eq!(open, None, "one turn at a time");
                open = event["promptId"].as_str();
                order.extend(open);
            }
            Some("prompt.completed" | "prompt.failed") => open = None,
            _ => {}
        }
    }
    assert_eq!(order, ["p1", "p2", "p3", "p4", "p5", "p6"]);
    let codes: Vec<&Value> = all(&events, "prompt.failed")
        .iter()
        .map(|e| &e["problem"]["code"])
        .collect();
    assert_eq!(
        codes,
        ["agent_error", "agent_exited"],
        "one that fails does not stop the others"
    );
    // `prompt.started` does not repeat the prompt of `prompt.queued`.
    assert!(
        all(&events, "prompt.started")[1..]
            .iter()
            .all(|event| event["prompt"].is_null())
    );
}

#[tokio::test]
async fn queueable_prompt_starts_at_once_on_an_idle_session() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let answer = queue(&gateway, &session, "hello").await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["status"]),
        (202, &json!("running"))
    );
    ended(&gateway, &session, "p1").await;
    assert!(all(&gateway.lawful(&session).await, "prompt.queued").is_empty());
}

#[tokio::test]
async fn full_queue_rejects_a_prompt_and_accepts_it_after_a_release() {
    let (gateway, session) =
        busy(Setup::fake(&[]).settings("limits.per_session.max_queued_prompts = 2")).await;
    queue(&gateway, &session, "echo a").await;
    assert_eq!(queue(&gateway, &session, "echo b").await.status, 202);
    let answer = queue(&gateway, &session, "echo c").await;
    assert!(
        answer
            .header("retry-after")
            .is_some_and(|wait| wait.parse::<u64>().is_ok_and(|wait| wait > 0))
    );
    assert_eq!(answer.problem(429, "queue_full")["retryable"], true);
    cancel(&gateway, &session, "/prompts/p2").await;
    assert_eq!(
        queue(&gateway, &session, "echo c").await.body["promptId"],
        "p4"
    );
}

#[tokio::test]
async fn a_queued_prompt_can_be_cancelled_and_the_others_do_not_notice() {
    let (gateway, session) = busy(Setup::fake(&["--log", "received"])).await;
    for text in ["echo never", "echo then"] {
        queue(&gateway, &session, text).await;
    }
    let answer = cancel(&gateway, &session, "/prompts/p2").await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["promptIds"]),
        (202, &json!(["p2"]))
    );
    let turn = ended(&gateway, &session, "p2").await;
    assert_eq!(
        (&turn["status"], &turn["stopReason"]),
        (&json!("completed"), &json!("cancelled"))
    );
    assert_eq!(turn["cancelCause"], "person");
    assert_eq!(
        gateway.get_session(&session).await["promptId"],
        "p1",
        "the running one goes on"
    );
    cancel(&gateway, &session, "/prompts/p1").await;
    assert_eq!(ended(&gateway, &session, "p3").await["text"], "then");
    let events = gateway.lawful(&session).await;
    let started: Vec<&Value> = all(&events, "prompt.started")
        .iter()
        .map(|e| &e["promptId"])
        .collect();
    assert_eq!(started, ["p1", "p3"]);
    let received = std::fs::read_to_string(gateway.path("data/homes/default/fake/received"));
    let received = received.expect("the agent's own record");
    assert!(
        received.contains("then") && !received.contains("never"),
        "{received}"
    );
}

#[tokio::test]
async fn one_cancel_ends_the_running_turn_and_queued_prompts() {
    let (gateway, session) = busy(Setup::fake(&[])).await;
    for text in ["echo a", "echo b"] {
        queue(&gateway, &session, text).await;
    }
    let answer = cancel(&gateway, &session, "").await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["promptIds"]),
        (202, &json!(["p1", "p2", "p3"]))
    );
    for prompt in ["p1", "p2", "p3"] {
        assert_eq!(
            ended(&gateway, &session, prompt).await["stopReason"],
            "cancelled"
        );
    }
    let events = gateway.lawful(&session).await;
    assert_eq!(one(&events, "prompt.started")["promptId"], "p1");
    assert_eq!(agent_text(&events), "00000000");
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
}

#[tokio::test]
async fn queued_prompt_can_wait_for_its_end() {
    let (gateway, session) = busy(Setup::fake(&[])).await;
    let body = json!({ "prompt": "hello", "queue": true });
    let path = format!("/v1/sessions/{session}/prompts");
    let wait = [("Prefer", "wait=60")];
    let release = async {
        eventually("it is in the queue", Duration::from_secs(10), || async {
            (gateway.get_session(&session).await["queued"] == json!(["p2"])).then_some(())
        })
        .await;
        cancel(&gateway, &session, "/prompts/p1").await
    };
    let (answer, _) = tokio::join!(gateway.posted(&path, &wait, &body), release);
    assert_eq!(
        (answer.status.as_u16(), &answer.body["text"]),
        (200, &json!("hello"))
    );
}

#[tokio::test]
async fn restart_ends_running_turns_and_runs_queued_prompts_once() {
    let (mut gateway, session) = busy(Setup::fake(&["--resume-any"])).await;
    for text in ["echo a", "echo b"] {
        assert_eq!(queue(&gateway, &session, text).await.status.as_u16(), 202);
    }
    gateway.kill();
    gateway.start();
    for (prompt, text) in [("p2", "a"), ("p3", "b")] {
        assert_eq!(ended(&gateway, &session, prompt).await["text"], text);
    }
    let events = gateway.lawful(&session).await;
    let failed = one(&events, "prompt.failed");
    assert_eq!(
        (&failed["promptId"], &failed["problem"]["code"]),
        (&json!("p1"), &json!("interrupted"))
    );
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["queued"], &shown["state"]),
        (&json!([]), &json!("idle"))
    );
    assert_eq!(gateway.turn(&session, "echo on").await["text"], "on");
}
