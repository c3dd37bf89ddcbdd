//! Each turn has one end, for every order of the agent's messages.

use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{fake, setup};
use crate::support::Gateway;
use crate::support::log::{agent_text, all, one};

fn ended(event: &Value) -> bool {
    ["prompt.completed", "prompt.failed"].contains(&event["type"].as_str().unwrap_or(""))
}

#[tokio::test]
async fn idle_ends_the_turn_and_the_answer_does_not() {
    let (gateway, session) = fake().await;
    gateway
        .prompt(&session, "say text=one;pause ms=300;say text=two;usage")
        .await;
    let events = gateway.log_until(&session, ended).await;
    assert_eq!(agent_text(&events), "onetwo");
    let end = events.last().expect("its end");
    assert_eq!(
        (&end["type"], &end["stopReason"]),
        (&json!("prompt.completed"), &json!("end_turn"))
    );
    assert_eq!(end["usage"]["totalTokens"], 3);
    let update = &events[events.len() - 2];
    assert_eq!(update["update"]["state"], "idle");
    assert_eq!(
        end["result"], update["update"],
        "the raw message that ended it"
    );
    let events = gateway.lawful(&session).await;
    assert!(
        all(&events, "session.update")
            .iter()
            .all(|event| event["promptId"] != json!("p2"))
    );
    assert_eq!(
        gateway.turn(&session, "say text=next").await["text"],
        "next"
    );
    assert_eq!(
        all(&gateway.lawful(&session).await, "session.attached").len(),
        1
    );
}

#[tokio::test]
async fn every_order_of_the_answer_and_the_states_is_one_turn() {
    let (gateway, session) = fake().await;
    for (number, script) in [
        "raw;answer;running;user;say text=x;idle",
        "raw;running;user;say text=x;idle;answer",
        "raw;running;answer;say text=x;idle;user",
        "raw;user;answer;running;requires-action;running;say text=x;idle",
        // An unknown state is not an end, and neither is a repeated idle.
        "raw;answer;running;state name=_mine;pause ms=20;say text=x;state name=open;idle",
        "raw;idle reason=none;answer;idle reason=none;running;say text=x;idle",
        "raw;running;idle;running;say text=x;answer;idle",
        // Some agents report neither the start nor the stop reason.
        "raw;answer;user;say text=x;idle",
        "raw;answer;running;say text=x;idle reason=none",
    ]
    .into_iter()
    .enumerate()
    {
        let turn = gateway.turn(&session, script).await;
        assert_eq!(
            (&turn["stopReason"], &turn["text"]),
            (&json!("end_turn"), &json!("x")),
            "{script}"
        );
        let events = gateway.lawful(&session).await;
        assert_eq!(
            all(&events, "prompt.completed").len(),
            number + 1,
            "{script}"
        );
    }
}

/// Every way to put `answer` and `user` among the words that are in this order.
fn interleavings(words: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    for answer in 0..=words.len() {
        for user in 0..=words.len() + 1 {
            let mut script: Vec<&str> = words.to_vec();
            script.insert(answer, "answer");
            script.insert(user, "user");
            all.push(format!("raw;{}", script.join(";")));
        }
    }
    all
}

#[tokio::test]
async fn turn_ends_once_for_every_order_of_response_and_message() {
    let (gateway, session) = fake().await;
    let lawful_words = [
        "running",
        "say text=x",
        "requires-action",
        "running",
        "idle",
    ];
    let scripts = interleavings(&lawful_words);
    assert_eq!(scripts.len(), 42);
    for (number, script) in scripts.iter().enumerate() {
        let prompt = gateway.turn(&session, script).await;
        assert_eq!(prompt["stopReason"], "end_turn", "{script}");
        assert_eq!(prompt["promptId"], format!("p{}", number + 1));
    }
    // The last update may be late. It arrives before the next turn, or now.
    assert_eq!(
        gateway.turn(&session, "say text=last").await["text"],
        "last"
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(all(&events, "prompt.completed").len(), scripts.len() + 1);
    assert_eq!(all(&events, "session.attached").len(), 1);
}

#[tokio::test]
async fn reasons_of_the_future_pass_and_an_error_is_a_failure() {
    let (gateway, session) = fake().await;
    let turn = gateway.turn(&session, "idle reason=_budget").await;
    assert_eq!(
        (&turn["status"], &turn["stopReason"]),
        (&json!("completed"), &json!("_budget"))
    );
    let turn = gateway
        .turn(&session, "say text=x;error code=-32050 message=broke")
        .await;
    assert_eq!(
        (&turn["status"], &turn["error"]["code"]),
        (&json!("failed"), &json!("agent_error"))
    );
    assert_eq!(
        (
            &turn["error"]["acp"]["code"],
            &turn["error"]["acp"]["message"]
        ),
        (&json!(-32050), &json!("broke"))
    );
    assert_eq!(turn["text"], "x");
    let turn = gateway.turn(&session, "error code=0").await;
    assert_eq!(
        (&turn["status"], &turn["error"]["acp"]["code"]),
        (&json!("failed"), &json!(-32603))
    );
    let turn = gateway.turn(&session, "error code=-32000").await;
    assert_eq!(turn["error"]["code"], "agent_auth_required");
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn rejected_prompt_fails_and_later_output_belongs_to_no_turn() {
    let (gateway, session) = fake().await;
    let turn = gateway.turn(&session, "raw;refuse code=-32602").await;
    assert_eq!(
        (&turn["status"], &turn["error"]["code"]),
        (&json!("failed"), &json!("invalid"))
    );
    let turn = gateway
        .turn(&session, "raw;running;idle reason=error;refuse")
        .await;
    assert_eq!(
        (&turn["status"], &turn["error"]["acp"]["message"]),
        (&json!("failed"), &json!("not taken"))
    );
    let turn = gateway
        .turn(&session, "raw;running;refuse;pause ms=50;error")
        .await;
    assert_eq!(turn["error"]["acp"]["message"], "not taken");
    gateway
        .log_until(&session, |event| event["update"]["error"].is_object())
        .await;
    assert_eq!(
        gateway.turn(&session, "say text=next").await["text"],
        "next"
    );
    gateway.lawful(&session).await;
}

async fn impatient() -> (Gateway, String) {
    let setup = setup(&["--state", "state"], "");
    let gateway = setup.settings("testing.min_backoff = \"10ms\"\ntesting.cancel_timeout = \"4s\"\ntesting.cancel_total_timeout = \"8s\"").start();
    let session = gateway.session("fake").await;
    (gateway, session)
}

/// Cancels the turn after the agent's first output. Returns the turn's end.
async fn cancelled(gateway: &Gateway, session: &str, script: &str) -> Value {
    let prompt = gateway.prompt(session, script).await["promptId"].clone();
    gateway
        .log_until(session, |event| {
            event["promptId"] == prompt && event["type"] == "session.update"
        })
        .await;
    let answer = gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    assert_eq!(answer.body["promptIds"], json!([prompt]), "{script}");
    let events = gateway
        .log_until(session, |event| ended(event) && event["promptId"] == prompt)
        .await;
    events.last().expect("its end").clone()
}

#[tokio::test]
async fn a_cancel_ends_with_idle() {
    let (gateway, session) = fake().await;
    let began = Instant::now();
    for script in ["say text=x;hang", "permission", "raw;running;user;hold"] {
        let end = cancelled(&gateway, &session, script).await;
        assert_eq!(
            (&end["type"], &end["stopReason"]),
            (&json!("prompt.completed"), &json!("cancelled"))
        );
        // A message that was not put into the conversation is refused, which is an end too.
        let state = if script.ends_with("hold") {
            &Value::Null
        } else {
            &json!("idle")
        };
        assert_eq!(&end["result"]["state"], state, "{script}");
    }
    assert!(began.elapsed() < Duration::from_secs(30));
    let answer = gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    assert_eq!(answer.status, 204, "it is over");
    assert_eq!(
        gateway.turn(&session, "say text=next").await["text"],
        "next"
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(
        all(&events, "session.attached").len(),
        1,
        "with the same process"
    );
}

#[tokio::test]
async fn cancel_keeps_an_agent_that_accepted_the_prompt_without_work() {
    let (gateway, session) = impatient().await;
    let end = cancelled(&gateway, &session, "raw;answer;user").await;
    assert_eq!(
        (&end["type"], &end["stopReason"]),
        (&json!("prompt.completed"), &json!("cancelled"))
    );
    assert_eq!(
        gateway.turn(&session, "say text=next").await["text"],
        "next"
    );
    assert_eq!(
        all(&gateway.lawful(&session).await, "session.attached").len(),
        1
    );
}

#[tokio::test]
async fn agent_that_ignores_a_cancel_is_stopped() {
    let (gateway, session) = impatient().await;
    let end = cancelled(&gateway, &session, "deaf").await;
    assert_eq!(end["problem"]["code"], "cancel_timeout");
    assert_eq!(
        gateway.turn(&session, "say text=next").await["text"],
        "next"
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(all(&events, "session.attached")[1]["by"], "resume");
}

#[tokio::test]
async fn missing_answer_does_not_block_an_ended_turn() {
    let (gateway, session) = impatient().await;
    let turn = gateway
        .turn(&session, "raw;running;user;say text=x;idle")
        .await;
    assert_eq!(
        (&turn["stopReason"], &turn["text"]),
        (&json!("end_turn"), &json!("x"))
    );
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn a_process_that_dies_in_a_turn_fails_it_and_the_session_is_resumed() {
    let setup = setup(&["--state", "state"], "").settings("testing.min_backoff = \"10ms\"");
    let gateway = setup.start();
    let session = gateway.session("fake").await;
    for script in [
        "say text=x;crash code=7",
        "raw;running;crash code=7",
        "raw;running;user;idle;crash code=7",
    ] {
        let turn = gateway.turn(&session, script).await;
        assert_eq!(
            (&turn["status"], &turn["error"]["code"]),
            (&json!("failed"), &json!("agent_exited")),
            "{script}"
        );
        assert_eq!(turn["error"]["exitCode"], 7);
    }
    assert_eq!(
        gateway.turn(&session, "say text=after").await["text"],
        "after"
    );
    let events = gateway.lawful(&session).await;
    assert!(
        all(&events, "session.attached")[1..]
            .iter()
            .all(|event| event["by"] == "resume")
    );
}

#[tokio::test]
async fn kill_of_the_gateway_in_a_turn_gives_one_end() {
    let mut gateway = setup(&["--state", "state"], "")
        .settings("testing.drain_cancel_timeout = \"10s\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "say text=x;hang").await;
    gateway
        .log_until(&session, |event| event["update"]["messageId"] == "a1")
        .await;
    gateway.kill();
    gateway.start();
    let events = gateway.lawful(&session).await;
    assert_eq!(
        one(&events, "prompt.failed")["problem"]["code"],
        "interrupted"
    );
    assert_eq!(gateway.get_session(&session).await["state"], "idle");
    assert_eq!(
        gateway.turn(&session, "say text=after").await["text"],
        "after"
    );
    gateway.prompt(&session, "say text=y;hang").await;
    gateway
        .log_until(&session, |event| event["update"]["messageId"] == "a2")
        .await;
    gateway.signal(Signal::TERM);
    gateway.ended(Duration::from_secs(30));
    gateway.start();
    let events = gateway.lawful(&session).await;
    assert_eq!(
        all(&events, "prompt.completed")[1]["stopReason"],
        "cancelled"
    );
}
