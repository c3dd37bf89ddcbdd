//! Events and the messages that clients get.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::surface::acp::client::Capabilities;
use base::types::Scope;
use events::event::testing::frame;

const SESSION: &str = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";
const TIME: &str = "2026-01-01T00:00:00.000Z";

fn client(scopes: &[Scope], capabilities: Capabilities) -> Client {
    let scopes = scopes.iter().copied().collect();
    Client {
        name: "me".into(),
        keeps_name: false,
        capabilities,
        scopes,
        info: None,
        uses_attach: false,
    }
}

/// The messages of an event with the seq 5 for a client with the scope `approve`.
fn messages(history: u64, kind: &str, members: &str) -> Vec<Value> {
    messages_for(
        &client(&[Scope::Approve], Capabilities::default()),
        history,
        kind,
        members,
    )
}

fn messages_for(client: &Client, history: u64, kind: &str, members: &str) -> Vec<Value> {
    let frame = frame(5, kind, Some(1), TIME, members);
    let event = EventRef::parse(5, &frame).unwrap();
    let projector = Projector::new(SESSION.parse().unwrap(), client, history, history);
    let messages = projector.messages(&event, None, |request| request == RequestId::new(9));
    messages
        .iter()
        .map(|message| serde_json::from_slice(message).unwrap())
        .collect()
}

fn update(update: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": SESSION, "update": update } })
}

#[test]
fn updates_keep_the_bytes_and_the_members_of_the_agent() {
    let members =
        r#""update":{"sessionUpdate":"x","n":1.10},"_meta":{"a":1},"more":{"later":[1e2]}"#;
    let frame = frame(5, "session.update", Some(1), TIME, members);
    let event = EventRef::parse(5, &frame).unwrap();
    let client = client(&[], Capabilities::default());
    let projector = Projector::new(SESSION.parse().unwrap(), &client, 0, 0);
    let [message] = &projector.messages(&event, None, |_| false)[..] else {
        panic!("one message")
    };
    let expected = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{SESSION}","update":{{"sessionUpdate":"x","n":1.10}},"_meta":{{"a":1}},"later":[1e2]}}}}"#
    );
    assert_eq!(std::str::from_utf8(message).unwrap(), expected);
}

#[test]
fn updates_of_child_sessions_are_for_clients_that_know_them() {
    let members = r#""update":{"sessionUpdate":"x"},"subagent":"child""#;
    assert!(messages(0, "session.update", members).is_empty());
    let knows = client(
        &[],
        Capabilities {
            subagents: true,
            ..Capabilities::default()
        },
    );
    assert_eq!(
        messages_for(&knows, 0, "session.update", members)[0]["params"]["sessionId"],
        "child"
    );
}

#[test]
fn prompts_of_others_are_user_messages_and_own_ones_only_in_the_history() {
    let blocks = r#""prompt":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"by":"alice""#;
    let own = format!(r#"{blocks},"acpRequest":{{"client":"me","id":7}}"#);
    let other = format!(r#"{blocks},"acpRequest":{{"client":"you","id":7}}"#);
    for (history, members, count) in [
        (0, blocks, 2),
        (0, &*other, 2),
        (0, &*own, 0),
        (5, &*own, 2),
    ] {
        let messages = messages(history, "prompt.started", members);
        assert_eq!(messages.len(), count, "{members}");
        for (message, text) in messages.iter().zip(["a", "b"]) {
            assert_eq!(message["params"]["update"]["content"]["text"], text);
            assert_eq!(message["params"]["_meta"]["acp-gateway"]["by"], "alice");
        }
    }
}

#[test]
fn only_the_client_of_a_prompt_gets_its_response() {
    let end = |client: &str| {
        format!(
            r#""stopReason":"end_turn","result":{{"stopReason":"end_turn"}},"acpRequest":{{"client":"{client}","id":"a"}}"#
        )
    };
    let response = json!({ "jsonrpc": "2.0", "id": "a", "result": { "stopReason": "end_turn" } });
    assert_eq!(messages(0, "prompt.completed", &end("me")), [response]);
    assert!(messages(0, "prompt.completed", &end("you")).is_empty());
    assert!(
        messages(5, "prompt.completed", &end("me")).is_empty(),
        "an earlier response"
    );
    let problem = serde_json::to_string(&events::api::Problem::internal()).unwrap();
    let failed = format!(r#""problem":{problem},"acpRequest":{{"client":"me","id":1}}"#);
    let error = &messages(0, "prompt.failed", &failed)[0];
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
}

#[test]
fn a_cancelled_turn_has_its_cause_and_keeps_the_meta_of_the_agent() {
    let members = |result: &str| {
        format!(
            r#""stopReason":"cancelled","result":{result},"cancelCause":"silence","acpRequest":{{"client":"me","id":7}}"#
        )
    };
    for (result, expected) in [
        (
            r#"{"stopReason":"cancelled"}"#,
            json!({ "stopReason": "cancelled", "_meta": { "acp-gateway": { "cancelCause": "silence" } } }),
        ),
        (
            r#"{"_meta":{"a":1.10,"acp-gateway":{"cancelCause":"x"}},"stopReason":"cancelled"}"#,
            json!({ "stopReason": "cancelled", "_meta": { "a": 1.10, "acp-gateway": { "cancelCause": "silence" } } }),
        ),
    ] {
        let response = &messages(0, "prompt.completed", &members(result))[0];
        assert_eq!(response["result"], expected);
    }
    let mut other = client(&[], Capabilities::default());
    other.name = "you".into();
    other.uses_attach = true;
    let update = &messages_for(&other, 0, "prompt.completed", &members("{}"))[0];
    assert_eq!(
        update["params"]["_meta"],
        json!({ "acp-gateway": { "cancelCause": "silence" } })
    );
}

#[test]
fn an_echo_of_the_prompt_is_no_message() {
    let chunk =
        r#""update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"a"}}"#;
    assert_eq!(messages(0, "session.update", chunk).len(), 1);
    let echo = format!(r#"{chunk},"echo":true"#);
    assert!(messages(0, "session.update", &echo).is_empty());
}

#[test]
fn requests_and_their_ends_have_ids_of_the_request() {
    let created = r#""requestId":"r2","method":"session/request_permission","params":{"x":1}"#;
    let id = format!("{SESSION}:r2");
    let request = &messages(0, "request.created", created)[0];
    assert_eq!(
        (&request["id"], &request["params"]),
        (&json!(id), &json!({ "x": 1 }))
    );
    assert!(
        messages(5, "request.created", created).is_empty(),
        "history"
    );
    let reader = client(&[Scope::Read], Capabilities::default());
    assert!(messages_for(&reader, 0, "request.created", created).is_empty());
    let resolved = |id: &str| {
        format!(
            r#""requestId":"{id}","method":"session/request_permission","resolution":"answered","by":"bob""#
        )
    };
    let cancel = &messages(0, "request.resolved", &resolved("r2"))[0];
    assert_eq!(
        (&cancel["method"], &cancel["params"]["requestId"]),
        (&json!("$/cancel_request"), &json!(id))
    );
    assert!(
        messages(0, "request.resolved", &resolved("r9")).is_empty(),
        "its own answer"
    );
    let raw_id: Box<RawValue> = raw(&id);
    assert_eq!(
        parse_request_id(&raw_id),
        Some((SESSION.parse().unwrap(), RequestId::new(2)))
    );
}

/// The messages for a client that has asked for the draft of `session/attach`.
fn draft_messages(role: Role, history: u64, kind: &str, members: &str) -> Vec<Value> {
    let client = Client {
        uses_attach: true,
        ..client(&[Scope::Approve], Capabilities::default())
    };
    let frame = frame(5, kind, Some(1), TIME, members);
    let event = EventRef::parse(5, &frame).unwrap();
    let projector =
        Projector::new(SESSION.parse().unwrap(), &client, history, history).with_role(role);
    let messages = projector.messages(&event, None, |request| request == RequestId::new(9));
    messages
        .iter()
        .map(|message| serde_json::from_slice(message).unwrap())
        .collect()
}

#[test]
fn draft_reports_the_prompts_and_turns_of_others() {
    let role = Role::Controller;
    let blocks = r#""prompt":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"by":"alice""#;
    let [received] = &draft_messages(role, 0, "prompt.started", blocks)[..] else {
        panic!("one message")
    };
    assert_eq!(received["params"]["update"]["type"], "prompt_received");
    assert_eq!(
        received["params"]["update"]["sentBy"],
        json!({ "name": "alice" })
    );
    assert_eq!(
        draft_messages(role, 5, "prompt.started", blocks).len(),
        2,
        "history has chunks"
    );
    let own = format!(r#"{blocks},"acpRequest":{{"client":"me","id":7}}"#);
    assert!(draft_messages(role, 0, "prompt.started", &own).is_empty());
    let end = r#""stopReason":"max_tokens","result":{"stopReason":"max_tokens"}"#;
    let expected = update(&json!({ "type": "turn_complete", "stopReason": "max_tokens" }));
    assert_eq!(draft_messages(role, 0, "prompt.completed", end), [expected]);
    assert!(draft_messages(role, 5, "prompt.completed", end).is_empty());
    let problem = serde_json::to_string(&events::api::Problem::internal()).unwrap();
    let failed = &draft_messages(role, 0, "prompt.failed", &format!(r#""problem":{problem}"#))[0];
    assert_eq!(
        failed["params"]["update"]["error"]["code"], -32603,
        "{failed}"
    );
}

#[test]
fn draft_reports_the_end_of_a_permission_once() {
    let resolved = |id: &str, method: &str| {
        format!(
            r#""requestId":"{id}","method":"{method}","toolCallId":"c","resolution":"answered","by":"bob","result":{{"outcome":{{"outcome":"selected","optionId":"y"}}}}"#
        )
    };
    let permission = |id: &str| resolved(id, "session/request_permission");
    let expected = json!({ "type": "permission_resolved", "toolCallId": "c", "chosenOptionId": "y",
        "resolvedBy": { "name": "bob" } });
    let messages = draft_messages(Role::Controller, 0, "request.resolved", &permission("r2"));
    assert_eq!((messages.len(), &messages[0]), (2, &update(&expected)));
    assert_eq!(messages[1]["method"], "$/cancel_request");
    let observed = draft_messages(Role::Observer, 0, "request.resolved", &permission("r2"));
    assert_eq!(
        observed,
        [update(&expected)],
        "an observer did not get the request"
    );
    assert!(draft_messages(Role::Controller, 0, "request.resolved", &permission("r9")).is_empty());
    let extension = resolved("r2", "_vendor/ask");
    assert_eq!(
        draft_messages(Role::Controller, 0, "request.resolved", &extension).len(),
        1
    );
    let created = r#""requestId":"r2","method":"session/request_permission","params":{}"#;
    assert!(draft_messages(Role::Observer, 0, "request.created", created).is_empty());
    assert_eq!(
        draft_messages(Role::Controller, 0, "request.created", created).len(),
        1
    );
}

#[test]
fn changes_of_clients_are_updates() {
    let members = r#""by":"a","title":"T","currentModeId":"code","configOptions":[1]"#;
    let expected = [
        json!({ "sessionUpdate": "current_mode_update", "currentModeId": "code" }),
        json!({ "sessionUpdate": "config_option_update", "configOptions": [1] }),
        json!({ "sessionUpdate": "session_info_update", "title": "T" }),
    ];
    assert_eq!(
        messages(0, "session.changed", members),
        expected.map(|change| update(&change))
    );
}

#[test]
fn other_events_and_damaged_ones_become_no_message() {
    for kind in [
        "session.created",
        "session.attached",
        "agent.exited",
        "terminal.output",
        "prompt.queued",
    ] {
        assert!(messages(0, kind, "\"x\":1").is_empty(), "{kind}");
    }
    for kind in [
        "session.update",
        "prompt.completed",
        "request.created",
        "request.resolved",
        "extension",
    ] {
        assert!(messages(0, kind, "\"x\":1").is_empty(), "{kind}");
    }
}

proptest! {
    /// Texts of agents and clients never become another message or another member.
    #[test]
    fn every_message_is_one_line_of_json(text in "\\PC{0,20}|\"\\}|\n\n", seq in 1u64..9) {
        let text = serde_json::to_string(&text).unwrap();
        let members = format!(r#""update":{{"sessionUpdate":{text}}},"by":{text},"prompt":[{text}]"#);
        for kind in ["session.update", "prompt.started"] {
            let client = client(&[], Capabilities::default());
            let frame = frame(seq, kind, None, TIME, &members);
            let event = EventRef::parse(seq, &frame).unwrap();
            let projector = Projector::new(SESSION.parse().unwrap(), &client, 0, 0);
            for message in projector.messages(&event, None, |_| false) {
                prop_assert!(!message.contains(&b'\n'));
                let value: Value = serde_json::from_slice(&message).unwrap();
                prop_assert_eq!(&value["params"]["sessionId"], SESSION);
            }
        }
    }
}
