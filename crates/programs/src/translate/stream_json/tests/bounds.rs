//! Lines that are larger than the retained state may be.

use serde_json::{Value, json};

use super::lines::{assistant, call, result};
use super::{Fixture, SESSION};
use crate::translate::stream_json::bounds;

fn ask(id: &str, input: &Value) -> Value {
    json!({ "type": "control_request", "request_id": id, "request": {
        "subtype": "can_use_tool", "tool_name": "Write", "input": input, "tool_use_id": "t" } })
}

fn write(content: &str) -> Value {
    json!({ "file_path": "/project/a", "content": content })
}

fn written(id: &str) -> Value {
    let mut line = result(None, id, &json!("done"));
    line["tool_use_result"] = json!({ "originalFile": "old" });
    line
}

#[test]
fn permission_that_cannot_be_kept_is_rejected_without_a_question() {
    let mut fixture = Fixture::new();
    fixture.prompt("p");
    fixture.receive(&ask("large", &write(&"x".repeat(bounds::PERMISSIONS))));
    let shown = fixture.shown();
    let [answer] = &shown[..] else {
        panic!("{} messages", shown.len())
    };
    let answer: Value = serde_json::from_str(answer.strip_prefix("send ").unwrap()).unwrap();
    assert_eq!(
        (&answer["type"], &answer["response"]["subtype"]),
        (&json!("control_response"), &json!("success"))
    );
    assert_eq!(answer["response"]["request_id"], "large");
    let decision = &answer["response"]["response"];
    assert_eq!(
        (&decision["behavior"], &decision["interrupt"]),
        (&json!("deny"), &Value::Null)
    );
    assert!(
        decision["message"]
            .as_str()
            .unwrap()
            .starts_with("The user was not asked"),
        "{decision}"
    );
    assert!(
        fixture.answer("\"large\"", "allow").is_empty(),
        "one answer"
    );
    fixture.receive(&ask("small", &write("x")));
    assert_eq!(fixture.shown(), ["request session/request_permission"]);
    assert_eq!(
        fixture.answer("\"small\"", "allow")[0]["response"]["response"]["behavior"],
        "allow"
    );
}

#[test]
fn control_request_that_cannot_be_kept_is_answered_with_an_error() {
    let mut fixture = Fixture::new();
    let id = "i".repeat(bounds::PERMISSIONS);
    fixture.receive(
        &json!({ "type": "control_request", "request_id": id, "request": { "subtype": "hook_callback" } }),
    );
    let shown = fixture.shown();
    let answer: Value = serde_json::from_str(shown[0].strip_prefix("send ").unwrap()).unwrap();
    assert_eq!(
        (shown.len(), &answer["response"]["subtype"]),
        (1, &json!("error"))
    );
    assert!(answer["response"]["request_id"] == *id && answer["response"]["error"].is_string());
}

#[test]
fn result_of_a_tool_with_a_forgotten_input_has_its_status_and_no_diff() {
    let mut fixture = Fixture::new();
    for (id, bytes) in [
        ("large", bounds::TOOLS),
        ("old", bounds::TOOLS / 2),
        ("new", bounds::TOOLS / 2),
    ] {
        fixture.receive(&assistant(
            None,
            &json!([call(id, "Write", &write(&"x".repeat(bytes)))]),
        ));
        let begun = &fixture.updates()[0].1;
        assert_eq!(
            begun["rawInput"]["content"].as_str().unwrap().len(),
            bytes,
            "the call passes unchanged"
        );
    }
    for (id, has_diff) in [("large", false), ("old", false), ("new", true)] {
        fixture.receive(&written(id));
        let updates = fixture.updates();
        let [(session, update)] = &updates[..] else {
            panic!("{updates:?}")
        };
        let expected = (
            SESSION,
            &json!("tool_call_update"),
            &json!(id),
            &json!("completed"),
        );
        assert_eq!(
            (
                &**session,
                &update["sessionUpdate"],
                &update["toolCallId"],
                &update["status"]
            ),
            expected
        );
        assert_eq!(
            update["content"][0]["oldText"].is_string(),
            has_diff,
            "{id}"
        );
        assert_eq!(
            update["content"].is_null(),
            !has_diff,
            "{id}: the update keeps the content of the call"
        );
        assert_eq!(update["rawOutput"], "done");
    }
}

#[test]
fn call_with_an_id_above_the_bound_still_ends() {
    let mut fixture = Fixture::new();
    let id = "i".repeat(bounds::TOOLS + 1);
    let input = json!({ "command": "ls" });
    fixture.receive(&assistant(None, &json!([call(&id, "Bash", &input)])));
    fixture.receive(&result(None, &id, &json!("out")));
    let updates = fixture.updates();
    assert_eq!(updates.len(), 2);
    assert!(
        updates
            .iter()
            .all(|(_, update)| update["toolCallId"] == *id)
    );
    assert_eq!(
        (&updates[1].1["status"], &updates[1].1["rawOutput"]),
        (&json!("completed"), &json!("out"))
    );
}

#[test]
fn text_of_a_message_with_an_id_above_the_bound_is_not_lost() {
    let mut fixture = Fixture::new();
    let id = "m".repeat(bounds::STREAMED + 1);
    let event = |event: Value| json!({ "type": "stream_event", "event": event });
    fixture.receive(&event(
        json!({ "type": "message_start", "message": { "id": id } }),
    ));
    fixture.receive(&event(
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
    ));
    fixture.receive(&event(
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "a" } }),
    ));
    let mut whole = assistant(None, &json!([{ "type": "text", "text": "ab" }]));
    whole["message"]["id"] = json!(id);
    fixture.receive(&whole);
    // The text can repeat: the deltas of such a message are not remembered.
    assert_eq!(
        fixture.shown(),
        ["agent_message_chunk a", "agent_message_chunk ab"]
    );
}

#[test]
fn messages_of_a_subagent_with_an_id_above_the_bound_belong_to_the_session() {
    let mut fixture = Fixture::new();
    let id = "i".repeat(bounds::SUBAGENTS + 1);
    fixture.receive(&assistant(
        Some(&id),
        &json!([{ "type": "text", "text": "inside" }]),
    ));
    let updates = fixture.updates();
    assert_eq!(updates.len(), 1, "no subagent is announced");
    assert_eq!(
        (&*updates[0].0, &updates[0].1["content"]["text"]),
        (SESSION, &json!("inside"))
    );
}

#[test]
fn long_modes_are_rejected_and_long_errors_are_cut() {
    let mut fixture = Fixture::new();
    let (_, lines) = fixture.call(
        "session/set_mode",
        &json!({ "modeId": "m".repeat(bounds::MAX_NAME + 1) }),
    );
    assert!(lines.is_empty());
    assert_eq!(
        fixture.shown(),
        ["error Invalid params: `modeId` is longer than 256 bytes"]
    );
    let (_, lines) = fixture.call(
        "session/set_mode",
        &json!({ "modeId": "m".repeat(bounds::MAX_NAME) }),
    );
    let failed = json!({ "subtype": "error", "request_id": lines[0]["request_id"], "error": "e".repeat(1 << 20) });
    fixture.receive(&json!({ "type": "control_response", "response": failed }));
    assert_eq!(
        fixture.shown(),
        [format!(
            "error Internal error: {}",
            "e".repeat(bounds::MAX_ERROR)
        )]
    );
    fixture.call("initialize", &Value::Null);
    fixture
        .receive(&json!({ "type": "result", "is_error": true, "errors": ["e".repeat(1 << 20)] }));
    assert_eq!(
        fixture.shown(),
        [format!("error {}", "e".repeat(bounds::MAX_ERROR))]
    );
    fixture.prompt("p");
    let mut failed = assistant(None, &json!([]));
    failed["error"] = json!("k".repeat(1 << 20));
    fixture.receive(&failed);
    let kept = fixture
        .translator
        .turn
        .as_ref()
        .and_then(|(_, turn)| turn.api_error.as_deref());
    assert_eq!(kept.map(str::len), Some(bounds::MAX_NAME));
}
