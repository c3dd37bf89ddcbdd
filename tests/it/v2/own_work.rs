//! Background work of the agent, without a prompt.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{fake, setup};
use crate::support::log::{agent_text, all};

fn of_message<'a>(events: &'a [Value], text: &str) -> &'a Value {
    let found = events
        .iter()
        .find(|event| event["update"]["content"]["text"] == *text);
    found.expect("it was said")
}

#[tokio::test]
async fn work_of_its_own_belongs_to_no_turn_and_shows_as_running() {
    let (gateway, session) = fake().await;
    let script =
        "say text=asked;idle;pause ms=50;say text=late;running;say text=own;pause ms=3000;idle";
    let turn = gateway
        .turn(&session, &format!("raw;answer;user;running;{script}"))
        .await;
    assert_eq!(
        (&turn["stopReason"], &turn["text"]),
        (&json!("end_turn"), &json!("asked"))
    );
    gateway
        .log_until(&session, |event| {
            event["update"]["content"]["text"] == "own"
        })
        .await;
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["state"], &shown["promptId"]),
        (&json!("running"), &Value::Null)
    );
    let listed = gateway.get("/v1/sessions").await["sessions"][0].clone();
    assert_eq!(listed["state"], "running");
    let idle = |event: &Value| event["update"]["state"] == "idle" && event["promptId"].is_null();
    gateway.log_until(&session, idle).await;
    assert_eq!(gateway.get_session(&session).await["state"], "idle");
    let events = gateway.lawful(&session).await;
    let late = of_message(&events, "late");
    assert_eq!(
        (&late["promptId"], &late["late"]),
        (&json!("p1"), &json!(true))
    );
    let own = of_message(&events, "own");
    assert!(own["promptId"].is_null() && own["late"].is_null(), "{own}");
    assert_eq!(
        gateway.turn(&session, "say text=next").await["text"],
        "next"
    );
}

#[tokio::test]
async fn end_of_background_work_is_not_the_end_of_a_later_prompt() {
    let (gateway, session) = fake().await;
    gateway
        .turn(
            &session,
            "raw;answer;user;running;idle;running;pause ms=400;idle",
        )
        .await;
    gateway
        .log_until(&session, |event| {
            event["update"]["state"] == "running" && event["promptId"].is_null()
        })
        .await;
    let turn = gateway
        .turn(
            &session,
            "raw;pause ms=800;answer;user;running;say text=mine;idle",
        )
        .await;
    assert_eq!(
        (&turn["stopReason"], &turn["text"]),
        (&json!("end_turn"), &json!("mine"))
    );
    // A prompt that joined the running work ends with it.
    gateway
        .turn(
            &session,
            "raw;answer;user;running;idle;running;pause ms=3000;idle",
        )
        .await;
    let running =
        |event: &Value| event["update"]["state"] == "running" && event["promptId"].is_null();
    let before = all(&gateway.lawful(&session).await, "session.update").len();
    gateway
        .log_until(&session, |event| {
            running(event) && event["seq"].as_u64() > Some(before as u64)
        })
        .await;
    let turn = gateway.turn(&session, "raw;answer;user").await;
    assert_eq!(turn["stopReason"], "end_turn");
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn its_own_work_keeps_the_process_can_be_cancelled_and_is_not_waited_for_in_silence() {
    let gateway = setup(
        &[],
        "pool = { max_size = 2, min_idle = 0, idle_timeout = \"100ms\" }\nturn_idle_timeout = \"8s\"",
    )
    .start();
    let session = gateway.session("fake").await;
    gateway
        .turn(
            &session,
            "raw;answer;user;running;idle;running;say text=own;hang",
        )
        .await;
    gateway
        .log_until(&session, |event| {
            event["update"]["content"]["text"] == "own"
        })
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        gateway.get_session(&session).await["attached"],
        true,
        "it works"
    );
    let answer = gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    assert_eq!(answer.status, 204, "no turn runs");
    gateway
        .log_until(&session, |event| {
            event["update"]["stopReason"] == "cancelled"
        })
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;

    let session = gateway.session("fake").await;
    gateway
        .turn(
            &session,
            "raw;answer;user;running;idle;running;pause ms=60000",
        )
        .await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;
    assert_eq!(events.last().expect("the end")["reason"], "idle");
    assert_eq!(agent_text(&events), "");
}
