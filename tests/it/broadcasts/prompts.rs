//! Prompts in the queues of sessions.

use serde_json::{Value, json};

use super::{announce, reached, reasons, send};
use crate::route_walk::operations::UNKNOWN;
use crate::support::log::{all, one};
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Gateway, Setup};

async fn prompt(gateway: &Gateway, to: &Value) -> Value {
    let body =
        json!({ "type": "pattern_learned", "content": "echo use tabs", "to": to, "as": "prompt" });
    send(gateway, &body).await
}

async fn turn_ended(gateway: &Gateway, session: &str, prompt: &Value) -> Vec<Value> {
    eventually("the turn has ended", LONGEST, || async {
        let events = gateway.all_events(session).await;
        let ended = all(&events, "prompt.completed")
            .iter()
            .any(|event| event["promptId"] == *prompt);
        ended.then_some(events)
    })
    .await
}

#[tokio::test]
async fn prompt_waits_for_the_running_turn_and_is_marked() {
    let gateway = Setup::fake(&[]).start();
    let busy = gateway.session("fake").await;
    let idle = gateway.session("fake").await;
    gateway.prompt(&busy, "hang").await;
    let report = prompt(&gateway, &json!("all")).await;
    assert_eq!(
        (reached(&report).len(), reasons(&report).len()),
        (2, 0),
        "{report}"
    );
    for item in reached(&report) {
        assert_eq!(
            (&item["kind"], &item["delivery"]),
            (&json!("session"), &json!("queued"))
        );
    }
    let of = |session: &str| {
        let item = reached(&report)
            .iter()
            .find(|item| item["sessionId"] == *session);
        item.expect("both sessions").clone()
    };
    let text = "[broadcast pattern_learned from owner]\n\necho use tabs";
    let id = of(&idle)["promptId"].clone();
    let events = turn_ended(&gateway, &idle, &id).await;
    let started = one(&events, "prompt.started");
    assert_eq!(
        (&started["broadcastId"], &started["by"]),
        (&report["id"], &json!("owner"))
    );
    assert_eq!(started["prompt"][0]["text"], text);
    assert_eq!(
        started["prompt"][0]["_meta"]["acp-gateway"]["broadcast"]["id"],
        report["id"]
    );

    let events = gateway.all_events(&busy).await;
    let queued = one(&events, "prompt.queued");
    assert_eq!(
        (&queued["broadcastId"], &queued["promptId"]),
        (&report["id"], &of(&busy)["promptId"])
    );
    assert_eq!(
        all(&events, "prompt.started")[0]["broadcastId"],
        Value::Null,
        "the prompt of a client"
    );
    let running = all(&events, "prompt.started")[0]["promptId"]
        .as_str()
        .expect("an id")
        .to_owned();
    gateway
        .post(
            &format!("/v1/sessions/{busy}/prompts/{running}/cancel"),
            &json!({}),
        )
        .await;
    let events = turn_ended(&gateway, &busy, &queued["promptId"]).await;
    assert_eq!(
        all(&events, "prompt.started")[1]["broadcastId"],
        report["id"],
        "also after the queue"
    );
    gateway.lawful(&busy).await;
}

#[tokio::test]
async fn queued_prompt_survives_a_kill() {
    let mut gateway = Setup::fake(&["--resume"]).start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "hang").await;
    let report = prompt(&gateway, &json!({ "sessions": [session] })).await;
    gateway.kill();
    gateway.start();
    let events = turn_ended(&gateway, &session, &reached(&report)[0]["promptId"]).await;
    let started = all(&events, "prompt.started");
    assert_eq!(
        started.last().expect("it started")["broadcastId"],
        report["id"]
    );
}

#[tokio::test]
async fn sessions_get_a_process_and_rejections_have_their_code() {
    let gateway = Setup::fake(&["--close"]).start();
    let detached = gateway.session("fake").await;
    let closed = gateway.session("fake").await;
    gateway.prompt(&detached, "crash").await;
    gateway
        .post(&format!("/v1/sessions/{closed}/close"), &json!({}))
        .await;
    // Neither session has a process.
    eventually("the processes hold no session", LONGEST, || async {
        let listed = gateway.get("/v1/sessions").await;
        let sessions = listed["sessions"].as_array()?.clone();
        sessions
            .iter()
            .all(|session| session["attached"] == false)
            .then_some(())
    })
    .await;
    assert_eq!(reached(&prompt(&gateway, &json!("all")).await).len(), 0);
    let agents = prompt(&gateway, &json!({ "agents": ["fake"] })).await;
    assert_eq!(reasons(&agents), ["no_session"], "{agents}");
    let report = prompt(
        &gateway,
        &json!({ "sessions": [detached, closed, UNKNOWN] }),
    )
    .await;
    assert_eq!(reached(&report).len(), 1, "{report}");
    assert_eq!(reached(&report)[0]["sessionId"], detached);
    for item in report["notReached"].as_array().expect("a list") {
        let (reason, detail) = if item["sessionId"] == *closed {
            ("rejected", "session_closed: ")
        } else {
            ("unknown", "there is no such target")
        };
        assert_eq!(item["reason"], reason, "{item}");
        assert!(
            item["detail"].as_str().expect("text").starts_with(detail),
            "{item}"
        );
    }
    turn_ended(&gateway, &detached, &reached(&report)[0]["promptId"]).await;
    // The session has a process again.
    let report = announce(&gateway, &json!({ "sessions": [detached] })).await;
    assert_eq!(reached(&report)[0]["delivery"], "written", "{report}");
}
