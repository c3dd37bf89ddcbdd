//! Lines and messages that the recordings do not contain.

use serde_json::{Value, json};

use super::{Fixture, SESSION};
use crate::translate::message::LineError;
use crate::translate::protocol::Output;

pub(super) fn assistant(parent: Option<&str>, blocks: &Value) -> Value {
    json!({ "type": "assistant", "parent_tool_use_id": parent, "message": { "id": "m", "content": blocks } })
}

pub(super) fn result(parent: Option<&str>, id: &str, content: &Value) -> Value {
    let block = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
    json!({ "type": "user", "parent_tool_use_id": parent, "message": { "role": "user", "content": [block] } })
}

pub(super) fn call(id: &str, name: &str, input: &Value) -> Value {
    json!({ "type": "tool_use", "id": id, "name": name, "input": input })
}

#[test]
fn session_is_created_without_a_line_of_the_cli() {
    let mut fixture = Fixture::new();
    let (_, lines) = fixture.call(
        "session/new",
        &json!({ "cwd": "/project", "mcpServers": [] }),
    );
    assert!(lines.is_empty());
    let Output::ToClient(wire::jsonrpc::Message::Response {
        outcome: Ok(result),
        ..
    }) = &fixture.messages[0]
    else {
        panic!("{:?}", fixture.messages);
    };
    let result: Value = serde_json::from_str(result.get()).unwrap();
    assert_eq!(
        (&result["sessionId"], &result["modes"]["currentModeId"]),
        (&json!(SESSION), &json!("default"))
    );
}

#[test]
fn session_with_servers_waits_for_every_answer() {
    let mut fixture = Fixture::new();
    let server = json!({ "name": "a", "command": "/bin/a", "args": [], "env": [] });
    let params =
        json!({ "cwd": "/project", "mcpServers": [server], "additionalDirectories": ["/x"] });
    let (_, lines) = fixture.call("session/new", &params);
    let subtypes: Vec<_> = lines
        .iter()
        .map(|line| line["request"]["subtype"].as_str().unwrap())
        .collect();
    assert_eq!(subtypes, ["mcp_set_servers", "apply_flag_settings"]);
    let answer = |line: &Value, subtype: &str| {
        let response =
            json!({ "subtype": subtype, "request_id": line["request_id"], "error": "no" });
        json!({ "type": "control_response", "response": response })
    };
    fixture.receive(&answer(&lines[0], "success"));
    assert!(fixture.messages.is_empty());
    fixture.receive(&answer(&lines[1], "success"));
    assert_eq!(fixture.shown(), ["result ok"]);
    let (_, lines) = fixture.call("session/new", &params);
    fixture.receive(&answer(&lines[0], "error"));
    fixture.receive(&answer(&lines[1], "success"));
    assert_eq!(fixture.shown(), ["error Internal error: no"]);
}

#[test]
fn missing_session_fails_initialize() {
    let mut fixture = Fixture::new();
    fixture.call("initialize", &Value::Null);
    fixture.receive(
        &json!({ "type": "result", "subtype": "error_during_execution", "is_error": true,
        "errors": ["No conversation found with session ID: x"] }),
    );
    assert_eq!(
        fixture.shown(),
        ["error No conversation found with session ID: x"]
    );
}

#[test]
fn every_block_of_a_message_is_kept() {
    let mut fixture = Fixture::new();
    fixture.receive(&assistant(
        None,
        &json!([
            { "type": "thinking", "thinking": "t" }, { "type": "text", "text": "a" }, { "type": "text", "text": "b" },
            call("t1", "Read", &json!({ "file_path": "/project/a.txt", "offset": 3, "limit": 2 })),
            { "type": "web_search_tool_result", "tool_use_id": "t0", "content": [{ "type": "web_search_result", "title": "T", "url": "U" }] },
            { "type": "image", "source": { "type": "base64", "data": "AA==", "media_type": "image/png" } },
            { "type": "new_block", "x": 1 },
        ]),
    ));
    assert_eq!(
        fixture.shown(),
        [
            "agent_thought_chunk t",
            "agent_message_chunk a",
            "agent_message_chunk b",
            "tool_call Read a.txt (3 - 4) pending",
            "tool_call_update null completed",
            "agent_message_chunk [image]",
            "notification _stream_json/content_block/new_block",
        ]
    );
}

#[test]
fn subagent_has_its_own_session_until_its_call_ends() {
    let mut fixture = Fixture::new();
    let task = call(
        "task",
        "Task",
        &json!({ "description": "Look", "prompt": "p" }),
    );
    fixture.receive(&assistant(None, &json!([task])));
    fixture.receive(&assistant(
        Some("task"),
        &json!([{ "type": "text", "text": "inside" }, call("t1", "Bash", &json!({ "command": "ls" }))]),
    ));
    fixture.receive(&json!({ "type": "control_request", "request_id": "r", "request": {
        "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "ls" }, "tool_use_id": "t1" } }));
    let Some(Output::ToClient(wire::jsonrpc::Message::Request { params, .. })) =
        fixture.messages.pop()
    else {
        panic!("a request");
    };
    assert_eq!(
        serde_json::from_str::<Value>(params.get()).unwrap()["sessionId"],
        "task"
    );
    fixture.receive(&result(Some("task"), "t1", &json!("out")));
    fixture.receive(&result(
        None,
        "task",
        &json!([{ "type": "text", "text": "done" }]),
    ));
    let updates = fixture.updates();
    let shown: Vec<_> = updates
        .iter()
        .map(|(session, update)| (session.as_str(), update["sessionUpdate"].as_str().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            (SESSION, "tool_call"),
            (SESSION, "subagent_update"),
            ("task", "agent_message_chunk"),
            ("task", "tool_call"),
            ("task", "tool_call_update"),
            (SESSION, "tool_call_update"),
            (SESSION, "subagent_update"),
        ]
    );
    assert_eq!(
        (&updates[1].1["title"], &updates[6].1["state"]["state"]),
        (&json!("Look"), &json!("idle"))
    );
}

#[test]
fn todo_lists_and_tasks_are_plans_and_no_tool_calls() {
    let mut fixture = Fixture::new();
    let todos = json!({ "todos": [{ "content": "a", "status": "pending" }] });
    fixture.receive(&assistant(None, &json!([call("t1", "TodoWrite", &todos)])));
    fixture.receive(&result(None, "t1", &json!("ok")));
    assert_eq!(fixture.shown(), ["plan"]);
    fixture.receive(&assistant(
        None,
        &json!([call("t2", "TaskCreate", &json!({ "subject": "b" }))]),
    ));
    let mut line = result(None, "t2", &json!("Task #1 created"));
    line["tool_use_result"] = json!({ "task": { "id": "1", "subject": "b" } });
    fixture.receive(&line);
    assert_eq!(fixture.shown(), ["plan"]);
}

#[test]
fn raw_input_and_lone_surrogates_pass_unchanged() {
    let mut fixture = Fixture::new();
    fixture.line(r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"\ud83d"},{"type":"tool_use","id":"t","name":"X","input":{"n":1.10,"s":"\ud83d"}}]}}"#);
    let params: Vec<_> = fixture
        .messages
        .iter()
        .map(|message| match message {
            Output::ToClient(wire::jsonrpc::Message::Notification { params, .. }) => params.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(params[0].contains(r#""text":"\ud83d""#), "{params:?}");
    assert!(
        params[1].contains(r#""rawInput":{"n":1.10,"s":"\ud83d"}"#),
        "{params:?}"
    );
}

#[test]
fn malformed_lines_are_typed_errors() {
    let line = |line: &str| Fixture::new().translator.line(line.as_bytes(), 8);
    let member = |object, member| Err(LineError::Member { object, member });
    assert_eq!(line("noise"), Err(LineError::NotAnObject));
    assert_eq!(line("[]"), Err(LineError::NotAnObject));
    assert_eq!(line(&"[".repeat(9)), Err(LineError::Depth { max: 8 }));
    assert_eq!(line("{}"), member("line", "type"));
    assert_eq!(
        line(r#"{"type":"assistant"}"#),
        member("assistant", "message")
    );
    assert_eq!(
        line(r#"{"type":"assistant","message":{"content":[]}}"#),
        member("message", "id")
    );
    assert_eq!(
        line(r#"{"type":"user","message":{"content":7}}"#),
        member("message", "content")
    );
    assert_eq!(
        line(r#"{"type":"control_request","request_id":"r"}"#),
        member("control_request", "request")
    );
    assert_eq!(
        line(r#"{"type":"stream_event","event":{}}"#),
        member("event", "type")
    );
    assert_eq!(line(r#"{"type":"system"}"#), member("system", "subtype"));
}

/// Parsers of values reject these numbers and escapes, and JSON permits them.
#[test]
fn unusual_numbers_and_escapes_end_no_process() {
    let mut fixture = Fixture::new();
    for value in ["1e999", r#""\ud800""#] {
        let block = format!(
            r#"{{"type":"assistant","message":{{"id":"m","content":[{{"type":"x","v":{value}}}]}}}}"#
        );
        fixture.translator.line(block.as_bytes(), 8).unwrap();
        let messages = format!("{:?}", fixture.translator.out);
        assert!(messages.contains("content_block/x"), "{messages}");
        let cancel = format!(r#"{{"type":"control_cancel_request","request_id":{value}}}"#);
        fixture.translator.line(cancel.as_bytes(), 8).unwrap();
        let messages = std::mem::take(&mut fixture.translator.out);
        assert_eq!(messages.len(), 1, "no request has this id: {messages:?}");
    }
}

#[test]
fn unknown_lines_are_extensions_and_signs_of_life_are_skipped() {
    let mut fixture = Fixture::new();
    fixture.receive(&json!({ "type": "rate_limit_event", "x": 1 }));
    fixture.receive(&json!({ "type": "system", "subtype": "compact_boundary" }));
    fixture.receive(&json!({ "type": "system", "subtype": "thinking_tokens" }));
    fixture.receive(&json!({ "type": "keep_alive" }));
    fixture.receive(
        &json!({ "type": "control_request", "request_id": "r", "request": { "subtype": "hook_callback" } }),
    );
    assert_eq!(
        fixture.shown(),
        [
            "notification _stream_json/rate_limit_event",
            "notification _stream_json/system/compact_boundary",
            "request _stream_json/hook_callback"
        ]
    );
    let answer = fixture.answer("\"r\"", "x");
    assert_eq!(answer[0]["response"]["subtype"], "success");
}

#[test]
fn withdrawn_permission_is_cancelled_and_expects_no_answer() {
    let mut fixture = Fixture::new();
    fixture.prompt("p");
    fixture.receive(
        &json!({ "type": "control_request", "request_id": "r", "request": {
        "subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "tool_use_id": "t" } }),
    );
    fixture.receive(&json!({ "type": "control_cancel_request", "request_id": "r" }));
    assert_eq!(
        fixture.shown(),
        [
            "request session/request_permission",
            "notification $/cancel_request"
        ]
    );
    assert!(fixture.answer("\"r\"", "allow").is_empty());
}

#[test]
fn output_of_a_command_of_the_cli_is_text_once() {
    let ended =
        json!({ "type": "result", "subtype": "success", "is_error": false, "result": "out" });
    let mut fixture = Fixture::new();
    fixture.prompt("/usage");
    fixture.receive(&ended);
    assert_eq!(
        fixture.shown(),
        ["agent_message_chunk out", "result end_turn"]
    );
    fixture.prompt("/context");
    let output = "<local-command-stdout>shown</local-command-stdout>";
    fixture.receive(&json!({ "type": "user", "message": { "role": "user", "content": output } }));
    fixture.receive(&ended);
    assert_eq!(
        fixture.shown(),
        ["agent_message_chunk shown", "result end_turn"]
    );
}

#[test]
fn second_prompt_and_unknown_methods_are_rejected() {
    let mut fixture = Fixture::new();
    fixture.prompt("one");
    let prompt = json!({ "prompt": [{ "type": "text", "text": "two" }] });
    fixture.call("session/prompt", &prompt);
    fixture.call("session/fork", &json!({}));
    fixture.call(
        "session/set_config_option",
        &json!({ "configId": "model", "value": "unknown" }),
    );
    let shown = fixture.shown();
    assert_eq!(
        shown[0],
        "error Invalid request: a turn of this session is running"
    );
    assert!(
        shown[1].contains("session/fork") && shown[2].contains("\"unknown\""),
        "{shown:?}"
    );
    assert_eq!(fixture.cancel().len(), 1);
    fixture.receive(
        &json!({ "type": "result", "subtype": "error_during_execution", "is_error": true }),
    );
    assert_eq!(fixture.shown(), ["result cancelled"]);
    assert!(fixture.cancel().is_empty(), "no turn runs");
}
