//! Well-formed messages that are wrong: unknown or foreign session, too early, too late, duplicate.

use std::time::Duration;

use serde_json::{Value, json};

use super::Case;
use crate::support::log::{agent_text, all, kinds, noise, one};
use crate::support::{Setup, eventually};

fn updates(events: &[Value]) -> Vec<&str> {
    all(events, "session.update")
        .iter()
        .filter_map(|e| e["update"]["sessionUpdate"].as_str())
        .collect()
}

#[tokio::test]
async fn unexpected_responses_are_ignored() {
    let (gateway, session) = Case::fake(&[]).await;
    let turn = gateway.turn(&session, "unknown-response").await;
    assert_eq!(
        (&turn["stopReason"], &turn["text"]),
        (&json!("end_turn"), &json!("after"))
    );
    // The response to the first prompt arrives again. It must not complete the second prompt.
    let turn = gateway.turn(&session, "hello").await;
    assert_eq!(
        (&turn["stopReason"], &turn["text"]),
        (&json!("end_turn"), &json!("hello"))
    );
    eventually(
        "the answer that was used up has come again",
        Duration::from_secs(10),
        || async { (noise(&gateway.all_events(&session).await) >= 7).then_some(()) },
    )
    .await;
    let events = gateway.lawful(&session).await;
    assert_eq!(
        noise(&events),
        7,
        "six ids that were never given, and one that was used up"
    );
    gateway.holds().await;
}

#[tokio::test]
async fn an_answer_may_have_its_id_at_its_end() {
    let (gateway, session) = Case::fake(&[]).await;
    assert_eq!(
        gateway.turn(&session, "id-last").await["stopReason"],
        "end_turn"
    );
    gateway.holds().await;
}

#[tokio::test]
async fn an_update_for_another_session_shows_in_neither() {
    let (mut gateway, one) = Case::fake(&["--collide-ids"]).await;
    let other = gateway.session().await;
    // Each agent names its session "0". No session has the id "1".
    for foreign in ["not-mine", "1", &other] {
        let turn = gateway
            .turn(&one, &format!("spoof session={foreign}"))
            .await;
        assert_eq!(
            (&turn["status"], &turn["text"]),
            (&json!("completed"), &json!("mine"))
        );
    }
    assert_eq!(agent_text(&gateway.lawful(&one).await), "mineminemine");
    assert_eq!(
        kinds(&gateway.lawful(&other).await),
        ["session.created", "session.attached"]
    );
    gateway.hold().await;
}

#[tokio::test]
async fn sessions_with_the_same_id_at_two_agents_stay_apart() {
    let (mut gateway, left) = Case::fake(&["--collide-ids"]).await;
    let right = gateway.session().await;
    let (l, r) = tokio::join!(
        gateway.streamed(&left, "pid; stream n=200 size=20 marker=1000"),
        gateway.streamed(&right, "pid; stream n=200 size=20 marker=2000"),
    );
    let pid =
        |events: &[Value]| all(events, "session.update")[0]["update"]["content"]["text"].clone();
    assert_ne!(pid(&l), pid(&r), "each session has a process of its own");
    let l = gateway.lawful(&left).await;
    let r = gateway.lawful(&right).await;
    assert_eq!(all(&l, "session.update").len(), 201);
    assert_eq!(all(&r, "session.update").len(), 201);
    for (events, session) in [(&l, &left), (&r, &right)] {
        assert!(events.iter().all(|event| event["sessionId"] == **session));
    }
    gateway.hold().await;
}

#[tokio::test]
async fn updates_before_the_answer_to_session_new_are_kept() {
    let (gateway, session) = Case::fake(&["--early-updates"]).await;
    // The creation is visible after its commit, and the early updates follow it directly.
    gateway
        .log_until(&session, |event| {
            event["update"]["sessionUpdate"] == "usage_update"
        })
        .await;
    let events = gateway.lawful(&session).await;
    assert_eq!(
        kinds(&events),
        [
            "session.created",
            "session.attached",
            "session.update",
            "session.update"
        ]
    );
    assert_eq!(
        updates(&events),
        ["available_commands_update", "usage_update"]
    );
    let shown = gateway.get_session(&session).await;
    assert_eq!(shown["availableCommands"][0]["name"], "memory show");
    assert_eq!(shown["usage"]["used"], 1);
    gateway.holds().await;
}

#[tokio::test]
async fn updates_for_a_future_session_do_not_affect_others() {
    let (gateway, session) = Case::fake(&[]).await;
    assert_eq!(
        gateway.turn(&session, "early n=3").await["status"],
        "completed"
    );
    assert_eq!(updates(&gateway.lawful(&session).await), Vec::<&str>::new());
    gateway.holds().await;
}

#[tokio::test]
async fn updates_after_the_end_of_their_turn_are_marked_and_end_nothing() {
    let (gateway, session) = Case::fake(&[]).await;
    assert_eq!(
        gateway.turn(&session, "late n=3 ms=20").await["status"],
        "completed"
    );
    let last = |event: &Value| event["update"]["sessionUpdate"] == "session_info_update";
    let events = gateway.log_until(&session, last).await;
    assert_eq!(
        updates(&events),
        ["agent_message_chunk", "usage_update", "session_info_update"]
    );
    assert!(
        all(&events, "session.update")
            .iter()
            .all(|e| e["late"] == true && e["promptId"] == "p1")
    );
    one(&events, "prompt.completed");
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["title"], &shown["state"]),
        (&json!("Late"), &json!("idle"))
    );
    let events = gateway.streamed(&session, "hello").await;
    assert!(
        all(&events, "session.update")
            .iter()
            .all(|e| e["late"].is_null() && e["promptId"] == "p2")
    );
    assert_eq!(agent_text(&events), "hello");
    gateway.holds().await;
}

#[tokio::test]
async fn unsupported_request_is_answered_and_the_turn_continues() {
    // While a client follows the session, a request with an unknown method waits for a client.
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let turn = gateway.turn(&session, "unserved").await;
    let answers = "_vendor/thing=-32601 fs/read_text_file=-32601 terminal/create=-32601 ";
    assert_eq!(
        (&turn["status"], &turn["text"]),
        (&json!("completed"), &json!(answers))
    );
    assert!(all(&gateway.lawful(&session).await, "request.created").is_empty());
}

#[tokio::test]
async fn message_with_a_duplicate_routed_member_is_not_shown() {
    let (gateway, session) = Case::fake(&["--collide-ids"]).await;
    for other in ["other", "1"] {
        let turn = gateway
            .turn(&session, &format!("dup-keys session={other}"))
            .await;
        assert_eq!(turn["text"], "after", "neither reading of it is taken");
    }
    let events = gateway.lawful(&session).await;
    assert_eq!(updates(&events), ["agent_message_chunk"; 2]);
    assert_eq!(
        noise(&events),
        2,
        "a method that is there twice is no message"
    );
    assert!(all(&events, "extension").is_empty());
    gateway.holds().await;
}

#[tokio::test]
async fn unknown_notification_is_passed_raw_with_the_gateways_session_id() {
    let (gateway, session) = Case::fake(&[]).await;
    gateway.turn(&session, "ext").await;
    let events = gateway.lawful(&session).await;
    let note = one(&events, "extension");
    assert_eq!(note["method"], "_vendor/note");
    assert_eq!(
        note["params"],
        json!({ "sessionId": session, "note": "hello" })
    );
    gateway.holds().await;
}

#[tokio::test]
async fn error_of_the_agent_ends_the_turn_with_its_message() {
    let (gateway, session) = Case::fake(&[]).await;
    for (code, expected) in [
        (-32603, "agent_error"),
        (-32002, "agent_error"),
        (-32602, "invalid"),
        (-32601, "agent_unsupported"),
        (-32000, "agent_auth_required"),
        (7, "agent_error"),
    ] {
        let turn = gateway
            .turn(&session, &format!("error code={code} message=broken"))
            .await;
        let error = &turn["error"];
        assert_eq!(
            (&turn["status"], &error["code"]),
            (&json!("failed"), &json!(expected)),
            "{turn}"
        );
        assert_eq!(
            (&error["acp"]["code"], &error["acp"]["message"]),
            (&json!(code), &json!("broken"))
        );
    }
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
    let events = gateway.lawful(&session).await;
    assert_eq!(all(&events, "prompt.failed").len(), 6);
    assert_eq!(
        all(&events, "session.attached").len(),
        1,
        "its process is as good as before"
    );
    gateway.holds().await;
}

#[tokio::test]
async fn any_stop_reason_of_the_agent_is_shown_as_it_is() {
    let (gateway, session) = Case::fake(&[]).await;
    for reason in [
        "refusal",
        "max_tokens",
        "max_turn_requests",
        "something_new",
    ] {
        let turn = gateway
            .turn(&session, &format!("stop reason={reason}"))
            .await;
        assert_eq!(
            (&turn["status"], &turn["stopReason"]),
            (&json!("completed"), &json!(reason))
        );
    }
    gateway.holds().await;
}
