//! Every recording: the texts, the ends of its turns, and the messages in their order.

use serde_json::Value;

use super::{Fixture, SESSION};

macro_rules! recording {
    ($name:literal) => {
        include_str!(concat!(
            "../../../../../../tests/agents/claude-code-2.1.197/",
            $name,
            ".jsonl"
        ))
    };
}

/// Plays both sides of a recording, and returns the messages for the client.
fn replay(recording: &str) -> Vec<String> {
    let mut fixture = Fixture::new();
    for line in recording.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["dir"] == "c2a" {
            sent(&mut fixture, &line["msg"]);
        } else {
            received(&mut fixture, &line["msg"]);
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
            let params = serde_json::json!({ "sessionId": SESSION, "configId": "model", "value": request["model"] });
            fixture.call("session/set_config_option", &params).1
        }
        ("control_request", _) => return,
        ("control_response", _) => {
            let response = &line["response"];
            let option = if response["response"]["behavior"] == "allow" {
                "allow"
            } else {
                "reject"
            };
            let answer = fixture.answer(&response["request_id"].to_string(), option);
            assert_eq!(
                answer[0]["response"]["response"]["behavior"],
                response["response"]["behavior"]
            );
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
        request
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
    }
    assert_eq!(ours, request);
    let id = |line: &Value| line["request_id"].as_str().unwrap().to_owned();
    fixture.ids.insert(id(line), id(&lines[0]));
}

/// A line of the recorded CLI, with the ids of this client.
fn received(fixture: &mut Fixture, line: &Value) {
    let mut line = line.clone();
    if line["type"] == "control_response" {
        let Some(id) = fixture
            .ids
            .get(line["response"]["request_id"].as_str().unwrap())
        else {
            return;
        };
        line["response"]["request_id"] = id.as_str().into();
    }
    fixture.receive(&line);
}

/// The joined text of one kind of chunk.
fn text(messages: &[String], kind: &str) -> String {
    messages
        .iter()
        .filter_map(|message| message.strip_prefix(kind)?.strip_prefix(' '))
        .collect()
}

fn ends(messages: &[String]) -> Vec<&str> {
    let ends = messages.iter().filter(|message| *message != "result ok");
    ends.filter(|message| message.starts_with("result") || message.starts_with("error"))
        .map(String::as_str)
        .collect()
}

/// Checks the text of a recording and the ends of its turns.
fn check(name: &str, recording: &str, expected: &str, end: &[&str]) {
    let messages = replay(recording);
    assert_eq!(
        text(&messages, "agent_message_chunk"),
        expected,
        "{name}: {messages:#?}"
    );
    assert_eq!(ends(&messages), end, "{name}: {messages:#?}");
    let unknown = |message: &String| message == "invalid" || message.starts_with("notification");
    assert!(!messages.iter().any(unknown), "{name}: {messages:#?}");
}

/// The text of a model that writes numbered chunks.
fn chunks(count: usize) -> String {
    (0..count).fold(String::new(), |text, number| {
        text + "chunk " + &number.to_string() + " "
    })
}

#[test]
fn recordings_of_messages_have_their_text_once_and_the_ends_of_their_turns() {
    let hello = "mock says: hello.";
    let once = &["result end_turn"][..];
    for (name, recording) in [
        ("hello", recording!("hello")),
        ("noinit", recording!("noinit")),
        ("resume", recording!("resume")),
        ("replay", recording!("replay")),
        ("setmode", recording!("setmode")),
        ("partial", recording!("partial")),
    ] {
        check(name, recording, hello, once);
    }
    check("think", recording!("think"), "thought it over.", once);
    let two = "mock says: hello one.mock says: hello two.";
    check(
        "two",
        recording!("two"),
        two,
        &["result end_turn", "result end_turn"],
    );
    let queued = chunks(10) + "mock says: hello while busy.";
    check("queued", recording!("queued"), &queued, once);
    check("eofbusy", recording!("eofbusy"), &chunks(40), once);
    check("sigtermbusy", recording!("sigtermbusy"), "", &[]);
    let interrupted = chunks(11) + "mock says: hello again.";
    check(
        "interrupt",
        recording!("interrupt"),
        &interrupted,
        &["result cancelled", "result end_turn"],
    );
}

#[test]
fn recordings_of_tools_and_errors_have_their_text_once_and_the_ends_of_their_turns() {
    let blocked = "Output redirection to '/project/made.txt' was blocked. For security, Claude Code may only write to files in the allowed working directories for this session: '/project'.";
    let written = "File created successfully at: /project/w.txt (file state is current in your context — no need to Read it back)";
    for (name, recording, tool, said) in [
        (
            "tool-stdio",
            recording!("tool-stdio"),
            "Bash",
            "(Bash completed with no output)",
        ),
        (
            "tool-partial",
            recording!("tool-partial"),
            "Bash",
            "(Bash completed with no output)",
        ),
        (
            "deny-stdio",
            recording!("deny-stdio"),
            "Bash",
            "no, said the user",
        ),
        ("tool-noperm", recording!("tool-noperm"), "Bash", blocked),
        (
            "tool-accept-write",
            recording!("tool-accept-write"),
            "Write",
            written,
        ),
    ] {
        let expected = format!("I will use {tool}. tool said: {said}");
        check(name, recording, &expected, &["result end_turn"]);
    }
    for (name, recording) in [
        ("inttool", recording!("inttool")),
        ("hold-interrupt", recording!("hold-interrupt")),
    ] {
        check(name, recording, "I will use Bash. ", &["result cancelled"]);
    }
    check(
        "err",
        recording!("err"),
        "",
        &["error Internal error: API Error: 400 mock error"],
    );
    let missing = "error Internal error: No conversation found with session ID: 00000000-0000-0000-0000-000000000000";
    check("badresume", recording!("badresume"), "", &[missing]);
}

#[test]
fn thinking_is_a_thought() {
    assert_eq!(
        text(&replay(recording!("think")), "agent_thought_chunk"),
        "let me think."
    );
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
    let at = messages
        .iter()
        .position(|message| message == "request session/request_permission")
        .unwrap();
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
