//! Agents with the early names of methods.

use serde_json::json;

use super::Fixture;

#[test]
fn handshake_has_the_version_and_the_capabilities_of_both_protocols() {
    let mut fixture = Fixture::new();
    let params = r#"{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":false},"terminal":true},"clientInfo":{"name":"g"}}"#;
    let expected = concat!(
        r#"{"id":1,"method":"initialize","params":{"protocolVersion":"1.0","clientCapabilities":{"#,
        r#""fs":{"readTextFile":true,"writeTextFile":false},"terminal":true,"readTextFile":true,"writeTextFile":false},"#,
        r#""clientInfo":{"name":"g"},"capabilities":{}}}"#
    );
    assert_eq!(fixture.call("initialize", params), expected);
    let answer = r#"{"id":1,"result":{"protocolVersion":"1.0","capabilities":{"streaming":true},"serverInfo":{"name":"a","version":"2"}}}"#;
    let translated = r#"result 1 {"protocolVersion":1,"agentInfo":{"name":"a","version":"2"},"agentCapabilities":{}}"#;
    assert_eq!(fixture.receive(answer), [translated]);
    let created = concat!(
        r#"{"method":"initialized","params":{}}"#,
        "\n",
        r#"{"id":2,"method":"agent/createSession","params":{"workspaceDir":"/w"}}"#
    );
    assert_eq!(
        fixture.call("session/new", r#"{"cwd":"/w","mcpServers":[]}"#),
        created
    );
    assert_eq!(
        fixture.receive(r#"{"id":2,"result":{"sessionId":"s"}}"#),
        [r#"result 2 {"sessionId":"s"}"#]
    );
    let prompt = r#"{"id":3,"method":"agent/prompt","params":{"sessionId":"s","prompt":"hi"}}"#;
    assert_eq!(fixture.prompt("hi"), prompt, "`initialized` is sent once");
}

#[test]
fn agent_that_sends_initialized_itself_does_not_receive_it() {
    let mut fixture = Fixture::new();
    fixture.call("initialize", r#"{"clientCapabilities":{}}"#);
    for line in [
        r#"{"method":"initialized","params":{}}"#,
        r#"{"id":1,"result":{"protocolVersion":"1.0"}}"#,
    ] {
        fixture.receive(line);
    }
    let created = r#"{"id":2,"method":"agent/createSession","params":{"workspaceDir":"/w"}}"#;
    assert_eq!(fixture.call("session/new", r#"{"cwd":"/w"}"#), created);
}

#[test]
fn updates_of_a_turn_become_updates_of_acp() {
    let mut fixture = Fixture::early();
    fixture.prompt("hi");
    let update = |kind: &str, members: &str| {
        format!(
            r#"{{"method":"agent/update","params":{{"sessionId":"s","updateType":"{kind}",{members}}}}}"#
        )
    };
    let text = |kind: &str, text: &str| json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
    let called = |title: &str| json!({ "sessionUpdate": "tool_call", "toolCallId": "t-1", "title": title, "status": "in_progress" });
    let content = json!([{ "type": "content", "content": { "type": "text", "text": "out" } }]);
    let ended = |status: &str| json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t-1", "status": status, "content": content, "rawOutput": "out" });
    for (line, expected) in [
        (
            update("thinking", r#""content":"hm""#),
            text("agent_thought_chunk", "hm"),
        ),
        (
            update("thinking", r#""data":{"text":"hm"}"#),
            text("agent_thought_chunk", "hm"),
        ),
        (
            update(
                "tool_call",
                r#""content":"Reading a","data":{"name":"read"}"#,
            ),
            called("Reading a"),
        ),
        (
            update(
                "tool_result",
                r#""content":"out","data":{"name":"read","success":true}"#,
            ),
            ended("completed"),
        ),
        (
            update("response", r#""content":"Hel""#),
            text("agent_message_chunk", "Hel"),
        ),
    ] {
        assert_eq!(fixture.updates(&line), [expected], "{line}");
    }
    let result = fixture.receive(r#"{"id":3,"result":{"content":"Hello"}}"#);
    let rest = r#"update {"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"lo"}}}"#;
    assert_eq!(result, [rest, r#"result 3 {"stopReason":"end_turn"}"#]);
}

#[test]
fn tool_calls_as_methods_are_shown_with_their_ids_and_results() {
    let mut fixture = Fixture::early();
    fixture.prompt("hi");
    let call = r#"{"method":"agent/toolCall","params":{"sessionId":"s","toolCallId":"c","toolName":"write","arguments":{"n":1.10}}}"#;
    let expected = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "write", "status": "in_progress", "rawInput": { "n": 1.10 } });
    assert_eq!(fixture.updates(call), [expected]);
    let repeated = r#"{"method":"agent/update","params":{"sessionId":"s","updateType":"tool_call","data":{"id":"c","name":"write"}}}"#;
    assert!(fixture.updates(repeated).is_empty(), "shown once");
    let result = r#"{"method":"agent/toolResult","params":{"sessionId":"s","toolCallId":"c","success":false,"error":"denied"}}"#;
    let content = json!([{ "type": "content", "content": { "type": "text", "text": "denied" } }]);
    let expected = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "failed", "content": content, "rawOutput": "denied" });
    assert_eq!(fixture.updates(result), [expected]);
    // A tool call that is a request would be run by the client.
    let asked = fixture.receive(r#"{"id":"x","method":"agent/toolCall","params":{"name":"run"}}"#);
    assert!(
        asked[0].starts_with("update ") && asked[1].contains(r#""id":"x","error":{"code":-32601"#),
        "{asked:?}"
    );
}

#[test]
fn text_of_the_result_is_shown_once() {
    for (updates, result, rest) in [
        (&["Hel", "lo"][..], r#"{"content":"Hello"}"#, None),
        (&[], r#"{"content":"Hello"}"#, Some("Hello")),
        (
            &["Hello"],
            r#"{"content":[{"type":"text","text":"Hello"}]}"#,
            None,
        ),
        (&["Hello"], "{}", None),
        (&["Hello"], "null", None),
        (&["\\ud83d"], r#"{"content":"\ud83d"}"#, None),
    ] {
        let mut fixture = Fixture::early();
        fixture.prompt("hi");
        for update in updates {
            fixture.receive(&format!(
                r#"{{"method":"agent/update","params":{{"sessionId":"s","updateType":"response","content":"{update}"}}}}"#
            ));
        }
        let shown = fixture.receive(&format!(r#"{{"id":3,"result":{result}}}"#));
        assert_eq!(shown.len(), if rest.is_some() { 2 } else { 1 }, "{shown:?}");
        if let Some(rest) = rest {
            assert!(
                shown[0].contains(&format!(r#""text":"{rest}""#)),
                "{shown:?}"
            );
        }
        assert_eq!(
            shown.last().unwrap(),
            r#"result 3 {"stopReason":"end_turn"}"#
        );
    }
}

#[test]
fn cancel_is_a_request_whose_answer_decides_the_stop_reason() {
    for (answer, reason) in [
        (
            Some(r#"{"id":1000000000,"result":{"cancelled":true}}"#),
            "cancelled",
        ),
        (
            Some(r#"{"id":1000000000,"result":{"cancelled":false}}"#),
            "end_turn",
        ),
        (None, "cancelled"),
    ] {
        let mut fixture = Fixture::early();
        assert_eq!(
            fixture.notify("session/cancel", r#"{"sessionId":"s"}"#),
            "",
            "no turn"
        );
        fixture.prompt("hi");
        let cancel =
            r#"{"id":1000000000,"method":"agent/cancelSession","params":{"sessionId":"s"}}"#;
        assert_eq!(
            fixture.notify("session/cancel", r#"{"sessionId":"s"}"#),
            cancel
        );
        if let Some(answer) = answer {
            assert!(fixture.receive(answer).is_empty());
        }
        let end = fixture.receive(r#"{"id":3,"result":{"content":""}}"#);
        assert_eq!(end, [format!(r#"result 3 {{"stopReason":"{reason}"}}"#)]);
    }
}

#[test]
fn shutdown_is_sent_once_to_an_initialized_agent() {
    assert_eq!(Fixture::new().translator.farewell(), "");
    assert_eq!(Fixture::modern().translator.farewell(), "");
    let mut fixture = Fixture::early();
    let line = fixture.translator.farewell();
    assert_eq!(
        super::line_of(&line),
        r#"{"id":1000000000,"method":"shutdown","params":{}}"#
    );
    assert_eq!(fixture.translator.farewell(), "");
    assert!(
        fixture
            .receive(r#"{"id":1000000000,"result":null}"#)
            .is_empty()
    );
}

#[test]
fn methods_that_the_protocol_lacks_are_rejected_at_once() {
    let mut fixture = Fixture::early();
    for (id, method) in [
        "session/load",
        "session/list",
        "session/set_mode",
        "authenticate",
    ]
    .iter()
    .enumerate()
    {
        let reply = fixture.call(method, r#"{"sessionId":"s"}"#);
        let expected = format!(
            "error {} -32601 \"Method not found\": {method}: the early protocol of this agent does not have it",
            id + 3
        );
        assert_eq!(reply, expected);
    }
    let vendor = fixture.call("_vendor/x", "{}");
    assert_eq!(
        vendor, r#"{"id":7,"method":"_vendor/x","params":{}}"#,
        "the agent may know its own methods"
    );
}

#[test]
fn process_serves_one_session_without_mcp_servers() {
    let mut fixture = Fixture::early();
    let second = fixture.call("session/new", r#"{"cwd":"/w","mcpServers":[]}"#);
    assert_eq!(
        second,
        "error 3 -32600 Invalid request: a process of this agent serves one session"
    );
    let mut fixture = Fixture::new();
    fixture.call("initialize", r#"{"clientCapabilities":{}}"#);
    fixture.receive(r#"{"id":1,"result":{"protocolVersion":"1.0"}}"#);
    let reply = fixture.call("session/new", r#"{"cwd":"/w","mcpServers":[{"name":"m"}]}"#);
    assert!(
        reply.starts_with("error 2 -32602 Invalid params: the early protocol"),
        "{reply}"
    );
}

#[test]
fn second_prompt_during_a_turn_is_rejected() {
    let mut fixture = Fixture::early();
    fixture.prompt("one");
    assert_eq!(
        fixture.prompt("two"),
        "error 4 -32600 Invalid request: a turn of this session is running"
    );
    assert_eq!(
        fixture
            .receive(r#"{"id":3,"result":{"content":"x"}}"#)
            .len(),
        2
    );
}
