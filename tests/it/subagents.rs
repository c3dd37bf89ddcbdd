//! Child sessions of an agent: their updates arrive on their parent's connection and in the parent's log.

use serde_json::{Value, json};

use crate::support::log::{all, one};
use crate::support::{Gateway, Setup};

fn update(session: &str, update: &Value) -> String {
    let params = json!({ "sessionId": session, "update": update });
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }).to_string()
}

fn named(session: &str, child: &str) -> String {
    update(
        session,
        &json!({ "sessionUpdate": "subagent_update", "sessionId": child, "title": "Look" }),
    )
}

fn chunk(session: &str, text: &str) -> String {
    let content = json!({ "type": "text", "text": text });
    update(
        session,
        &json!({ "sessionUpdate": "agent_message_chunk", "content": content }),
    )
}

async fn raw(gateway: &Gateway, session: &str, lines: &[String]) -> Value {
    gateway
        .turn(session, &format!("raw {}", lines.join("\n")))
        .await
}

/// The subagent and the text of each update.
fn texts(events: &[Value]) -> Vec<(&str, &str)> {
    let updates = all(events, "session.update").into_iter();
    let words = updates.filter_map(|event| {
        let text = event["update"]["content"]["text"].as_str()?;
        Some((event["subagent"].as_str().unwrap_or_default(), text))
    });
    words.collect()
}

#[tokio::test]
async fn subagent_updates_arrive_in_the_parents_log() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let state = |child| {
        update(
            child,
            &json!({ "sessionUpdate": "session_info_update", "title": "Of the child" }),
        )
    };
    let turn = raw(
        &gateway,
        &session,
        &[
            chunk("c1", "too early"),
            named("$SESSION", "c1"),
            chunk("c1", "child"),
            named("c1", "c2"),
            chunk("c2", "grandchild"),
            chunk("c3", "nobody's"),
            state("c1"),
            chunk("$SESSION", "parent"),
        ],
    )
    .await;
    assert_eq!(
        turn["text"], "parent",
        "the text of a child is not the agent's answer"
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(
        texts(&events),
        [("c1", "child"), ("c2", "grandchild"), ("", "parent")]
    );
    assert!(events.iter().all(|event| event["sessionId"] == *session));
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        shown["subagents"],
        json!([{ "sessionId": "c1", "title": "Look" }])
    );
    assert_ne!(
        shown["title"], "Of the child",
        "a child's title is not the session's"
    );
    let transcript = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await;
    let items = transcript["turns"][0]["items"].as_array().expect("items");
    let kinds: Vec<_> = items
        .iter()
        .map(|item| (item["type"].as_str(), item["subagent"].as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            (Some("subagent"), None),
            (Some("message"), Some("c1")),
            (Some("subagent"), Some("c1")),
            (Some("message"), Some("c2")),
            (Some("message"), None),
        ]
    );
}

#[tokio::test]
async fn subagent_can_request_permission() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let options = json!([{ "optionId": "y", "name": "Yes", "kind": "allow_once" }]);
    let params =
        json!({ "sessionId": "c1", "toolCall": { "toolCallId": "t" }, "options": options });
    let ask =
        json!({ "jsonrpc": "2.0", "id": "ask", "method": "session/request_permission", "params": params })
            .to_string();
    gateway
        .prompt(
            &session,
            &format!(
                "raw {}\n{ask}\n{}",
                named("$SESSION", "c1"),
                chunk("c1", "thanks")
            ),
        )
        .await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    let created = one(&events, "request.created");
    assert_eq!(
        (&created["params"]["sessionId"], &created["subagent"]),
        (&json!(session), &json!("c1"))
    );
    let open = &gateway
        .get(&format!("/v1/sessions/{session}/requests"))
        .await["requests"][0];
    assert_eq!(open["subagent"], "c1");
    let path = format!("/v1/sessions/{session}/permissions/r1");
    assert_eq!(
        gateway
            .posted(&path, &[], &json!({ "optionId": "y" }))
            .await
            .status,
        204
    );
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(texts(&gateway.lawful(&session).await), [("c1", "thanks")]);
}

#[tokio::test]
async fn process_reused_for_another_session_has_no_state_of_the_last_one() {
    let gateway = Setup::fake_with(&["--close"], "pool = { max_size = 1, min_idle = 0 }").start();
    let first = gateway.session("fake").await;
    let pid = gateway.turn(&first, "pid").await["text"].clone();
    raw(
        &gateway,
        &first,
        &[named("$SESSION", "c1"), chunk("c1", "first")],
    )
    .await;
    // The subagent continues after its turn, and after its session was closed.
    gateway.turn(&first, "late n=30 ms=50").await;
    let closed = gateway
        .posted(&format!("/v1/sessions/{first}/close"), &[], &json!({}))
        .await;
    assert!(closed.status.is_success(), "{closed:?}");
    let second = gateway.session("fake").await;
    assert_eq!(
        gateway.turn(&second, "pid").await["text"],
        pid,
        "it is the same process"
    );
    raw(
        &gateway,
        &second,
        &[
            chunk("c1", "the first one's child"),
            chunk("$SESSION", "second"),
        ],
    )
    .await;
    gateway.turn(&second, "slow chunks=16 ms=100").await;
    let events = gateway.lawful(&second).await;
    assert!(
        all(&events, "session.update")
            .iter()
            .all(|event| event["late"].is_null()),
        "{events:#?}"
    );
    let received = texts(&events);
    assert_eq!(received.len(), 18, "{received:?}");
    assert!(
        received
            .iter()
            .all(|(child, text)| child.is_empty() && *text != "late"),
        "{received:?}"
    );
    assert_eq!(gateway.get_session(&second).await["subagents"], Value::Null);
    let before = gateway.lawful(&first).await;
    assert!(
        all(&before, "session.update")
            .iter()
            .all(|event| event["update"]["content"]["text"] != "second")
    );
}

#[tokio::test]
async fn new_process_assigns_new_subagent_ids() {
    let gateway = Setup::fake(&["--resume", "--state", "state"]).start();
    let session = gateway.session("fake").await;
    raw(
        &gateway,
        &session,
        &[named("$SESSION", "c1"), chunk("c1", "one")],
    )
    .await;
    let closed = gateway
        .posted(&format!("/v1/sessions/{session}/close"), &[], &json!({}))
        .await;
    assert!(closed.status.is_success(), "{closed:?}");
    assert_eq!(
        gateway.get_session(&session).await["subagents"],
        Value::Null,
        "they went with their process"
    );
    gateway
        .posted(&format!("/v1/sessions/{session}/attach"), &[], &json!({}))
        .await;
    raw(
        &gateway,
        &session,
        &[
            chunk("c1", "unnamed"),
            named("$SESSION", "c1"),
            chunk("c1", "two"),
        ],
    )
    .await;
    assert_eq!(
        texts(&gateway.lawful(&session).await),
        [("c1", "one"), ("c1", "two")]
    );
}
