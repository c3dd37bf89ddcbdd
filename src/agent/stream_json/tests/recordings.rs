//! Every recording: the texts, the ends of its turns, and the messages in their order.

use serde_json::Value;

use super::{Fixture, SESSION};

macro_rules! recording {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/agents/claude-code-2.1.197/", $name, ".jsonl"))
    };
}

/// Plays both sides of a recording, and returns the messages for the client.
fn replay(recording: &str) -> Vec<String> {
    let mut fixture = Fixture::new();
    for line in recording.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["dir"] == "c2a" {
            sent(&mut fixture, &line["msg"])
        } else {
            received(&mut fixture, &line["msg"])
        }
    }
    fixture.shown()
}

/// A line that the recorded client sent, as the message of a client of ACP.
fn sent(fixture: &mut Fixture, line: &Value) {
    let request = &line["request"];
    let lines = match (line["type"].as_str().unwrap(), request["subtype"].as_str()) {
        ("user", _) => {
            // A prompt during a turn is queued by the gateway, and not by the agent.
            if fixture.translator.turn.is_none() {
                fixture.prompt(line["message"]["content"][0]["text"].as_str().unwrap());
            }
            return;
        }
        ("control_request", Some("initialize")) => fixture.call("initialize", &Value::Null).1,
        ("control_request", Some("interrupt")) => fixture.cancel(),
        ("control_request", Some("set_permission_mode")) => {
            let params = serde_json::json!({ "sessionId": SESSION, "modeId": request["mode"] });
            fixture.call("session/set_mode", &params).1
        }
        ("control_request", Some("set_model")) => {
            let params =
                serde_json::json!({ "sessionId": SESSION, "configId": "model", "value": request["model"] });
            fixture.call("session/set_config_option", &params).1
        }
        ("control_request", _) => return,
        ("control_response", _) => {
            let response = &line["response"];
            let option = if response["response"]["behavior"] == "allow" { "allow" } else { "reject" };
            let answer = fixture.answer(&response["request_id"].to_string(), option);
            assert_eq!(answer[0]["response"]["response"]["behavior"], response["response"]["behavior"]);
            assert_eq!(
                answer[0]["response"]["response"]["updatedInput"],
                response["response"]["updatedInput"]
            );
            return;
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(lines.len(), 1);
    let mut request = request.clone();
    let mut ours = lines[0]["request"].clone();
    for request in [&mut request, &mut ours] {
        request.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    }
    assert_eq!(ours, request);
    let id = |line: &Value| line["request_id"].as_str().unwrap().to_owned();
    fixture.ids.insert(id(line), id(&lines[0]));
}

/// A line of the recorded CLI, with the ids of this client.
fn received(fixture: &mut Fixture, line: &Value) {
    let mut line = line.clone();
    if line["type"] == "control_response" {
        let Some(id) = fixture.ids.get(line["response"]["request_id"].as_str().unwrap()) else { return };
        line["response"]["request_id"] = id.as_str().into();
    }
    fixture.receive(&line);
}

/// The joined text of one kind of chunk.
fn text(messages: &[String], kind: &str) -> String {
    messages.iter().filter_map(|message| message.strip_prefix(kind)?.strip_prefix(' ')).collect()
}

fn ends(messages: &[String]) -> Vec<&str> {
    let ends = messages.iter().filter(|message| *message != "result ok");
    ends.filter(|message| message.starts_with("result") || message.starts_with("error"))
        .map(String::as_str)
        .collect()
}

const TOOL: &str = "I will use Bash. tool said: (Bash completed with no output)";

#[test]
fn every_recording_has_its_text_once_and_the_ends_of_its_turns() {
    let slow = |count: usize| (0..count).map(|number| format!("chunk {number} ")).collect::<String>();
    let hello = "mock says: hello.";
    let blocked = "Output redirection to '/project/made.txt' was blocked. For security, Claude Code may only write to files in the allowed working directories for this session: '/project'.";
    let written = "File created successfully at: /project/w.txt (file state is current in your context — no need to Read it back)";
    for (name, recording, expected, end) in [
        ("hello", recording!("hello"), hello.to_owned(), &["result end_turn"][..]),
        ("noinit", recording!("noinit"), hello.to_owned(), &["result end_turn"]),
        ("resume", recording!("resume"), hello.to_owned(), &["result end_turn"]),
        ("replay", recording!("replay"), hello.to_owned(), &["result end_turn"]),
        ("setmode", recording!("setmode"), hello.to_owned(), &["result end_turn"]),
        ("partial", recording!("partial"), hello.to_owned(), &["result end_turn"]),
        ("think", recording!("think"), "thought it over.".to_owned(), &["result end_turn"]),
        (
            "two",
            recording!("two"),
            "mock says: hello one.mock says: hello two.".to_owned(),
            &["result end_turn", "result end_turn"],
        ),
        (
            "queued",
            recording!("queued"),
            format!("{}mock says: hello while busy.", slow(10)),
            &["result end_turn"],
        ),
        ("eofbusy", recording!("eofbusy"), slow(40), &["result end_turn"]),
        ("sigtermbusy", recording!("sigtermbusy"), String::new(), &[]),
        ("tool-stdio", recording!("tool-stdio"), TOOL.to_owned(), &["result end_turn"]),
        ("tool-partial", recording!("tool-partial"), TOOL.to_owned(), &["result end_turn"]),
        (
            "deny-stdio",
            recording!("deny-stdio"),
            "I will use Bash. tool said: no, said the user".to_owned(),
            &["result end_turn"],
        ),
        (
            "tool-noperm",
            recording!("tool-noperm"),
            format!("I will use Bash. tool said: {blocked}"),
            &["result end_turn"],
        ),
        (
            "tool-accept-write",
            recording!("tool-accept-write"),
            format!("I will use Write. tool said: {written}"),
            &["result end_turn"],
        ),
        (
            "interrupt",
            recording!("interrupt"),
            format!("{}mock says: hello again.", slow(11)),
            &["result cancelled", "result end_turn"],
        ),
        ("inttool", recording!("inttool"), "I will use Bash. ".to_owned(), &["result cancelled"]),
        (
            "hold-interrupt",
            recording!("hold-interrupt"),
            "I will use Bash. ".to_owned(),
            &["result cancelled"],
        ),
        ("err", recording!("err"), String::new(), &["error Internal error: API Error: 400 mock error"]),
        (
            "badresume",
            recording!("badresume"),
            String::new(),
            &[
                "error Internal error: No conversation found with session ID: 00000000-0000-0000-0000-000000000000",
            ],
        ),
    ] {
        let messages = replay(recording);
        assert_eq!(text(&messages, "agent_message_chunk"), expected, "{name}: {messages:#?}");
        assert_eq!(ends(&messages), end, "{name}: {messages:#?}");
        assert!(
            !messages.iter().any(|message| message == "invalid" || message.starts_with("notification")),
            "{name}: {messages:#?}"
        );
    }
}

#[test]
fn thinking_is_a_thought() {
    assert_eq!(text(&replay(recording!("think")), "agent_thought_chunk"), "let me think.");
}

#[test]
fn tool_with_partial_messages_is_begun_completed_and_allowed() {
    assert_eq!(
        replay(recording!("tool-partial")),
        [
            "result ok",
            "agent_message_chunk I will use Bash. ",
            "tool_call Terminal pending",
            "tool_call_update echo hi > made.txt null",
            "request session/request_permission",
            "tool_call_update null completed",
            "agent_message_chunk tool ",
            "agent_message_chunk said: ",
            "agent_message_chunk (Bash completed with no output)",
            "usage_update",
            "result end_turn",
        ]
    );
}

#[test]
fn rejected_tool_fails() {
    let messages = replay(recording!("deny-stdio"));
    let at = messages.iter().position(|message| message == "request session/request_permission").unwrap();
    assert_eq!(messages[at + 1], "tool_call_update null failed");
}

#[test]
fn cancel_during_a_permission_expects_no_withdrawal_and_no_answer() {
    let messages = replay(recording!("hold-interrupt"));
    assert_eq!(
        messages[3..],
        [
            "request session/request_permission",
            "tool_call_update null failed",
            "usage_update",
            "result cancelled"
        ]
    );
}

#[test]
fn mode_and_model_are_answered_once() {
    let messages = replay(recording!("setmode"));
    assert_eq!(
        messages,
        [
            "result ok",
            "result ok",
            "result ok",
            "agent_message_chunk mock says: hello.",
            "usage_update",
            "result end_turn"
        ]
    );
}
