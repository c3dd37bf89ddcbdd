//! The variations of agents with modern names, and how the translation learns a variation.

use serde_json::{Value, json};

use super::{Fixture, line_of, raw};
use crate::translate::early_acp::EarlyAgent;
use crate::translate::protocol::{AgentProtocol as _, Output};
use wire::jsonrpc::Message;

fn message(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

/// The prompt of the test in this form.
fn prompt_line(id: u64, members: &[&str]) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|member| format!(r#""{member}":[{{"type":"text","text":"hi"}}]"#))
        .collect();
    format!(
        r#"{{"id":{id},"method":"session/prompt","params":{{"sessionId":"s",{}}}}}"#,
        members.join(",")
    )
}

#[test]
fn prompt_has_content_and_prompt_until_the_agent_rejects_one() {
    let mut fixture = Fixture::modern();
    assert_eq!(fixture.prompt("hi"), prompt_line(3, &["prompt", "content"]));
    let rejected = r#"{"id":3,"error":{"code":-32602,"message":"unknown member `prompt`"}}"#;
    assert_eq!(
        fixture.receive(rejected),
        [format!("send {}", prompt_line(3, &["content"]))]
    );
    assert_eq!(
        fixture.receive(r#"{"id":3,"result":{}}"#),
        [r#"result 3 {"stopReason":"end_turn"}"#]
    );
    assert_eq!(
        fixture.prompt("hi"),
        prompt_line(4, &["content"]),
        "the agent accepted this form"
    );
    assert_eq!(
        fixture.receive(r#"{"id":4,"error":{"code":-32602,"message":"no"}}"#),
        ["error 4 -32602 no"]
    );
}

#[test]
fn rejected_prompt_has_the_error_of_the_first_attempt() {
    let mut fixture = Fixture::modern();
    fixture.prompt("hi");
    let rejected =
        |text: &str| format!(r#"{{"id":3,"error":{{"code":-32602,"message":"{text}"}}}}"#);
    for text in ["first", "second"] {
        assert_eq!(fixture.receive(&rejected(text)).len(), 1);
    }
    assert_eq!(
        fixture.receive(&rejected("third")),
        ["error 3 -32602 first"]
    );
    assert_eq!(
        fixture.prompt("hi"),
        prompt_line(4, &["prompt", "content"]),
        "no form is known"
    );
}

#[test]
fn agent_that_began_to_work_receives_its_prompt_once() {
    let mut fixture = Fixture::modern();
    fixture.prompt("hi");
    fixture.receive(
        r#"{"method":"session/update","params":{"update":{"type":"message_delta","text":"a"}}}"#,
    );
    let failed = fixture.receive(r#"{"id":3,"error":{"code":-32602,"message":"no"}}"#);
    assert_eq!(failed, ["error 3 -32602 no"]);
}

#[test]
fn names_of_methods_follow_from_an_error_to_the_first_attempt() {
    let unknown =
        |id: u64| format!(r#"{{"id":{id},"error":{{"code":-32601,"message":"unknown"}}}}"#);
    let mut fixture = Fixture::new();
    fixture.call("initialize", r#"{"clientCapabilities":{}}"#);
    fixture.receive(r#"{"id":1,"result":{"protocolVersion":"1.0","serverInfo":{}}}"#);
    fixture.receive(r#"{"method":"initialized"}"#);
    let params = r#"{"cwd":"/w","mcpServers":[]}"#;
    assert!(
        fixture
            .call("session/new", params)
            .contains("agent/createSession")
    );
    let again = format!(r#"send {{"id":2,"method":"session/new","params":{params}}}"#);
    assert_eq!(fixture.receive(&unknown(2)), [again]);
    assert_eq!(
        fixture.receive(r#"{"id":2,"result":{"sessionId":"s"}}"#),
        [r#"result 2 {"sessionId":"s"}"#]
    );
    assert_eq!(fixture.prompt("hi"), prompt_line(3, &["prompt", "content"]));

    let mut fixture = Fixture::new();
    fixture.call("initialize", r#"{"clientCapabilities":{}}"#);
    fixture.receive(r#"{"id":1,"result":{"protocolVersion":1}}"#);
    fixture.call("session/new", params);
    let early = r#"send {"id":2,"method":"agent/createSession","params":{"workspaceDir":"/w"}}"#;
    assert_eq!(fixture.receive(&unknown(2)), [early]);
    assert_eq!(fixture.receive(&unknown(2)), ["error 2 -32601 unknown"]);
}

#[test]
fn prompt_with_the_other_method_follows_from_an_error() {
    let mut fixture = Fixture::early();
    fixture.prompt("hi");
    let again = fixture.receive(r#"{"id":3,"error":{"code":-32601,"message":"unknown"}}"#);
    assert_eq!(
        again,
        [format!("send {}", prompt_line(3, &["prompt", "content"]))]
    );
    let cancel = fixture.notify("session/cancel", r#"{"sessionId":"s"}"#);
    assert_eq!(
        cancel,
        r#"{"method":"session/cancel","params":{"sessionId":"s"}}"#
    );
}

#[test]
fn version_of_initialize_is_repeated_as_a_number() {
    let mut fixture = Fixture::new();
    assert!(
        fixture
            .call("initialize", r#"{"clientCapabilities":{}}"#)
            .contains(r#""protocolVersion":"1.0""#)
    );
    let failed =
        r#"{"id":1,"error":{"code":-32603,"message":"'<' not supported between 'int' and 'str'"}}"#;
    let again = fixture.receive(failed);
    assert!(
        again[0].starts_with("send ") && again[0].contains(r#""protocolVersion":1"#),
        "{again:?}"
    );
    let second = fixture.receive(r#"{"id":1,"error":{"code":-32603,"message":"other"}}"#);
    assert_eq!(
        second,
        ["error 1 -32603 '<' not supported between 'int' and 'str'"]
    );
    let mut fixture = Fixture::new();
    fixture.call("initialize", r#"{"clientCapabilities":{}}"#);
    let signed_out = fixture.receive(r#"{"id":1,"error":{"code":-32000,"message":"sign in"}}"#);
    assert_eq!(
        signed_out,
        ["error 1 -32000 sign in"],
        "a missing sign-in is no matter of the version"
    );
}

#[test]
fn capabilities_get_their_names_of_acp() {
    for (given, expected) in [
        (
            r#"{"promptTypes":{"image":true},"mcp":{"http":true}}"#,
            json!({ "promptCapabilities": { "image": true }, "mcpCapabilities": { "http": true } }),
        ),
        (
            r#"{"promptTypes":["text","image","resource"]}"#,
            json!({ "promptCapabilities": { "image": true, "audio": false, "embeddedContext": true } }),
        ),
        (
            r#"{"loadSession":true,"promptCapabilities":{},"sessionCapabilities":{"close":{},"fork":{},"list":{}}}"#,
            json!({ "loadSession": true, "promptCapabilities": {}, "sessionCapabilities": { "list": {} } }),
        ),
    ] {
        let mut fixture = Fixture::new();
        fixture.call("initialize", r#"{"clientCapabilities":{}}"#);
        let line =
            format!(r#"{{"id":1,"result":{{"protocolVersion":1,"agentCapabilities":{given}}}}}"#);
        let shown = fixture.receive(&line);
        let result: Value =
            serde_json::from_str(shown[0].strip_prefix("result 1 ").unwrap()).unwrap();
        assert_eq!(result["agentCapabilities"], expected, "{given}");
    }
}

#[test]
fn every_shape_of_a_message_is_a_chunk() {
    let mut fixture = Fixture::modern();
    let update =
        |update: &str| format!(r#"{{"method":"session/update","params":{{"update":{update}}}}}"#);
    for line in [
        update(r#"{"sessionUpdate":"message_delta","content":[{"type":"text","text":"a"}]}"#),
        update(r#"{"type":"message_delta","delta":{"type":"text_delta","text":"a"}}"#),
        update(r#"{"sessionUpdate":"message_delta","appendText":"a"}"#),
        update(r#"{"type":"agentMessageChunk","content":{"type":"text","text":"a"}}"#),
        update(r#"{"type":"AgentMessageChunk","content":"a"}"#),
        update(r#"{"type":"agentMessageChunk","content":[{"text":"a"}]}"#),
        update(r#"{"sessionUpdate":"agent_message_chunk","content":"a"}"#),
        update(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}"#),
        r#"{"method":"session/update","params":{"type":"agent_message_chunk","text":"a"}}"#.to_owned(),
        r#"{"method":"session/notification","params":{"type":"AgentMessageChunk","chunk":{"text":"a"}}}"#
            .to_owned(),
    ] {
        assert_eq!(fixture.updates(&line), [message("a")], "{line}");
    }
    let thought = fixture.updates(&update(r#"{"type":"agentThoughtChunk","content":"a"}"#));
    assert_eq!(thought[0]["sessionUpdate"], "agent_thought_chunk");
    let image = fixture.updates(&update(
        r#"{"type":"agentMessageChunk","content":[{"type":"image","data":"x"}]}"#,
    ));
    assert_eq!(image[0]["content"], json!({ "type": "image", "data": "x" }));
}

#[test]
fn tool_use_in_a_message_is_a_tool_call() {
    let mut fixture = Fixture::modern();
    fixture.prompt("hi");
    let line = r#"{"method":"session/update","params":{"update":{"type":"agentMessageChunk","content":[{"type":"text","text":"a"},{"type":"toolUse","id":"c","name":"read","input":{"path":"x"}}]}}}"#;
    let called = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "read", "status": "in_progress", "rawInput": { "path": "x" } });
    assert_eq!(fixture.updates(line), [message("a"), called]);
    let line = r#"{"method":"session/update","params":{"update":{"type":"agentMessageChunk","content":{"type":"toolResult","toolUseId":"c","content":"out"}}}}"#;
    let ended = fixture.updates(line);
    assert_eq!(
        (&ended[0]["toolCallId"], &ended[0]["status"]),
        (&json!("c"), &json!("completed"))
    );
    assert_eq!(ended[0]["content"][0]["content"]["text"], "out");
}

#[test]
fn bare_text_is_the_content_of_a_tool_call() {
    let mut fixture = Fixture::modern();
    let content = json!([{ "type": "content", "content": { "type": "text", "text": "out" } }]);
    for given in [
        r#""out""#,
        r#"["out"]"#,
        r#"[{"type":"text","text":"out"}]"#,
    ] {
        let line = format!(
            r#"{{"method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","content":{given},"rawOutput":{{"n":1}}}}}}}}"#
        );
        let expected = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "content": content, "rawOutput": { "n": 1 } });
        assert_eq!(fixture.updates(&line), [expected], "{given}");
    }
}

#[test]
fn updates_of_acp_pass_unchanged() {
    let mut fixture = Fixture::modern();
    for update in [
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ud83d"},"messageId":"m"}"#,
        r#"{"sessionUpdate":"tool_call","toolCallId":"c","title":"T","content":[{"type":"diff","path":"/a","newText":"b"}]}"#,
        r#"{"sessionUpdate":"plan","entries":[{"n":1.10}]}"#,
        r#"{"sessionUpdate":"current_mode_update","currentModeId":"m"}"#,
    ] {
        let params = format!(r#"{{"sessionId":"s","update":{update},"_meta":{{"a":1.10}}}}"#);
        let line = format!(r#"{{"method":"session/update","params":{params}}}"#);
        assert_eq!(fixture.receive(&line), [format!("update {params}")]);
    }
}

#[test]
fn requests_without_a_session_belong_to_the_session_of_the_process() {
    let mut fixture = Fixture::modern();
    let read =
        fixture.receive(r#"{"id":"r","method":"fs/read_text_file","params":{"path":"/w/a"}}"#);
    assert_eq!(
        read,
        [r#"ask "r" fs/read_text_file {"sessionId":"s","path":"/w/a"}"#]
    );
    let asked = fixture.receive(
        r#"{"id":0,"method":"session/request_permission","params":{"title":"T","message":"M","options":[{"optionId":"reject_once","label":"No"}]}}"#,
    );
    assert!(
        asked[0].starts_with(
            r#"ask 0 session/request_permission {"sessionId":"s","toolCall":{"toolCallId":"t-1","title":"T""#
        ),
        "{asked:?}"
    );
    let vendor = fixture.receive(r#"{"id":1,"method":"_vendor/x","params":{"a":1}}"#);
    assert_eq!(vendor, [r#"ask 1 _vendor/x {"a":1}"#]);
    let plan = fixture
        .updates(r#"{"method":"session/update","params":{"update":{"type":"plan","entries":[]}}}"#);
    assert_eq!(plan, [json!({ "entries": [], "sessionUpdate": "plan" })]);
}

#[test]
fn error_within_a_result_is_an_error() {
    for (result, expected) in [
        (r#"{"error":"no model"}"#, "error 3 -32603 no model"),
        (
            r#"{"error":{"code":-32000,"message":"sign in"}}"#,
            "error 3 -32000 sign in",
        ),
        (
            r#"{"error":{"message":"no model"},"content":"x"}"#,
            "error 3 -32603 no model",
        ),
        (
            r#"{"error":null,"stopReason":"end_turn"}"#,
            r#"result 3 {"error":null,"stopReason":"end_turn"}"#,
        ),
    ] {
        for mut fixture in [Fixture::early(), Fixture::modern()] {
            fixture.prompt("hi");
            assert_eq!(
                fixture.receive(&format!(r#"{{"id":3,"result":{result}}}"#)),
                [expected]
            );
        }
    }
    let mut fixture = Fixture::modern();
    fixture.call("_vendor/x", "{}");
    let own = fixture.receive(r#"{"id":3,"result":{"error":"a value"}}"#);
    assert_eq!(
        own,
        [r#"result 3 {"error":"a value"}"#],
        "methods of a vendor have their own results"
    );
}

#[test]
fn agent_that_ends_because_of_the_version_is_started_again_with_the_number() {
    let mut agent = EarlyAgent::new();
    let initialize = Message::Request {
        id: raw("1"),
        method: "initialize".into(),
        params: raw(r#"{"protocolVersion":1,"clientCapabilities":{}}"#),
    };
    agent.message(initialize.clone());
    let sent = |agent: &mut EarlyAgent| match agent.outputs().pop() {
        Some(Output::ToAgent(line)) => line_of(&line),
        other => panic!("{other:?}"),
    };
    assert!(sent(&mut agent).contains(r#""protocolVersion":"1.0""#));
    assert!(agent.ended("it ended"));
    assert!(matches!(agent.outputs().pop(), Some(Output::Launch(_))));
    agent.launched();
    let again = sent(&mut agent);
    assert!(
        again.starts_with(r#"{"id":1,"#) && again.contains(r#""protocolVersion":1"#),
        "{again}"
    );
    assert!(!agent.ended("it ended") && agent.outputs().is_empty());

    // An agent that has answered is not started again.
    let mut agent = EarlyAgent::new();
    agent.message(initialize);
    for _ in 0..2 {
        let failed = br#"{"id":1,"error":{"code":-32000,"message":"no"}}"#;
        agent.line(failed).unwrap();
    }
    agent.outputs();
    assert!(!agent.ended("it ended") && agent.outputs().is_empty());
}
