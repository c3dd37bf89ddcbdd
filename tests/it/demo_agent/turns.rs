//! Turns that send no request to the client.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Demo, code};

#[test]
fn first_turn_shows_thoughts_plan_tools_markdown_and_the_demo_notice() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let commands = demo.updates("available_commands_update");
    assert!(
        commands[0]["availableCommands"]
            .as_array()
            .unwrap()
            .iter()
            .any(|command| command["name"] == "help")
    );

    assert_eq!(demo.turn(&session, "Hello <b>you</b>"), "end_turn");
    let text = demo.agent_text();
    assert!(
        text.contains("demo agent") && text.contains("no model") && text.contains("[agents."),
        "{text}"
    );
    assert!(
        text.contains("Hello \\<b\\>you\\</b\\>"),
        "the user's words are quoted as text: {text}"
    );
    let thoughts = demo.updates("agent_thought_chunk");
    let chunks = demo.updates("agent_message_chunk");
    assert!(thoughts.len() > 3 && chunks.len() > 20, "both are streamed");
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["messageId"] == chunks[0]["messageId"]),
        "it is one message"
    );
    assert_ne!(chunks[0]["messageId"], thoughts[0]["messageId"]);
    let kinds: Vec<&Value> = demo
        .updates("tool_call")
        .into_iter()
        .map(|call| &call["kind"])
        .collect();
    assert_eq!(kinds, ["search", "read", "execute"]);
    let plans = demo.updates("plan");
    let states = |plan: &Value, state: &str| {
        plan["entries"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["status"] == state)
            .count()
    };
    assert_eq!(
        (states(plans[0], "in_progress"), states(plans[0], "pending")),
        (1, 3)
    );
    assert_eq!(states(plans.last().unwrap(), "completed"), 4);
    assert!(demo.updates("usage_update")[0]["used"].as_u64().unwrap() > 0);
    assert_eq!(
        demo.updates("session_info_update")[0]["title"],
        "Hello <b>you</b>"
    );
}

#[test]
fn permission_request_has_all_option_kinds_and_uses_the_answer() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let edit = |demo: &mut Demo, option: &str| {
        let id = demo.prompt(&session, "/diff");
        let question = demo.question();
        demo.choose(&question, option);
        let response = demo.response(id);
        (question, response["result"]["stopReason"].clone())
    };
    let status = |demo: &Demo| demo.updates("tool_call_update").last().unwrap()["status"].clone();

    let (question, reason) = edit(&mut demo, "reject_once");
    assert_eq!(
        (status(&demo), reason),
        (json!("failed"), json!("end_turn"))
    );
    let kinds: Vec<&Value> = question["params"]["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| &option["kind"])
        .collect();
    assert_eq!(
        kinds,
        ["allow_once", "allow_always", "reject_once", "reject_always"]
    );
    assert_eq!(question["params"]["toolCall"]["content"][0]["type"], "diff");
    assert_eq!(
        question["params"]["toolCall"]["content"][0]["path"],
        "/w/src/greeting.rs"
    );

    edit(&mut demo, "allow_once");
    assert_eq!(status(&demo), "completed");
    edit(&mut demo, "allow_always");
    assert_eq!(
        demo.turn(&session, "/diff"),
        "end_turn",
        "an always is remembered: nothing was asked"
    );
    assert_eq!(status(&demo), "completed");

    let other = demo.session("/w");
    for (mode, expected) in [("auto", "completed"), ("plan", "failed")] {
        demo.seen.clear();
        demo.call(
            "session/set_mode",
            &json!({ "sessionId": other, "modeId": mode }),
        );
        assert_eq!(
            demo.updates("current_mode_update")[0]["currentModeId"],
            mode
        );
        assert_eq!(demo.turn(&other, "/diff"), "end_turn");
        assert_eq!(status(&demo), expected);
    }
}

#[test]
fn a_cancel_ends_a_turn_at_once_also_with_an_open_question() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");

    let id = demo.prompt(&session, "/slow 600");
    demo.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    let begin = Instant::now();
    demo.notify("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(demo.response(id)["result"]["stopReason"], "cancelled");
    // It would last ten minutes.
    assert!(begin.elapsed() < Duration::from_secs(20));

    let id = demo.prompt(&session, "/permission");
    let question = demo.question();
    demo.notify("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(demo.response(id)["result"]["stopReason"], "cancelled");
    assert_eq!(
        demo.updates("tool_call_update").last().unwrap()["status"],
        "failed",
        "the open call is closed"
    );
    demo.answer(&question, &json!({ "outcome": "cancelled" }));
    assert_eq!(
        demo.turn(&session, "/help"),
        "end_turn",
        "a late answer does no harm"
    );

    let id = demo.prompt(&session, "/permission");
    let question = demo.question();
    demo.answer(&question, &json!({ "outcome": "cancelled" }));
    assert_eq!(demo.response(id)["result"]["stopReason"], "cancelled");

    let id = demo.prompt(&session, "/slow 600");
    demo.notify("$/cancel_request", &json!({ "requestId": id }));
    assert_eq!(demo.response(id)["result"]["stopReason"], "cancelled");
}

#[test]
fn invalid_request_gets_an_error_and_the_next_one_its_response() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");

    assert_eq!(code(&demo.call("session/teleport", &json!({}))), -32601);
    for (line, expected) in [
        ("{\"jsonrpc\":", -32700),
        ("[]", -32600),
        ("{\"jsonrpc\":\"1.0\"}", -32600),
    ] {
        demo.line(line);
        let refused = demo.until(|message| message.get("error").is_some());
        assert_eq!(
            (code(&refused), &refused["id"]),
            (expected, &Value::Null),
            "{line}"
        );
    }
    demo.line(&format!(
        r#"{{"params":{{"sessionId":"{session}","prompt":[{{"type":"text","text":"\ud83d"}}]}},"method":"session/prompt","jsonrpc":"2.0","id":"surrogate"}}"#
    ));
    let refused = demo.until(|message| message["id"] == "surrogate");
    assert_eq!(code(&refused), -32602);
    for (method, params) in [
        (
            "session/new",
            json!({ "cwd": "relative", "mcpServers": [] }),
        ),
        ("session/new", json!({})),
        (
            "session/set_mode",
            json!({ "sessionId": session, "modeId": "yolo" }),
        ),
        (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": "pace", "value": "warp" }),
        ),
        (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": "thoughts", "value": "on" }),
        ),
        (
            "session/prompt",
            json!({ "sessionId": session, "prompt": "text" }),
        ),
    ] {
        assert_eq!(
            code(&demo.call(method, &params)),
            -32602,
            "{method} {params}"
        );
    }
    for method in ["session/load", "session/resume"] {
        for id in [
            "01938c5e-7a3b-7c4d-8e5f-0123456789ab",
            "../../etc/passwd",
            "",
        ] {
            let unknown = demo.call(
                method,
                &json!({ "sessionId": id, "cwd": "/w", "mcpServers": [] }),
            );
            assert_eq!(
                (code(&unknown), &unknown["error"]["data"]["sessionId"]),
                (-32002, &json!(id))
            );
        }
    }
    demo.notify("session/unheard", &json!({}));
    assert_eq!(demo.turn(&session, "/fail refusal"), "refusal");
    let failed = demo.prompt(&session, "/fail");
    assert_eq!(code(&demo.response(failed)), -32603);
}

#[test]
fn turns_of_two_sessions_run_side_by_side_and_one_session_has_one() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let slow = demo.session("/w");
    let quick = demo.session("/w");
    let waiting = demo.prompt(&slow, "/slow 600");
    assert_eq!(demo.turn(&quick, "hello"), "end_turn");
    let second = demo.prompt(&slow, "/help");
    assert_eq!(code(&demo.response(second)), -32600);
    demo.notify("session/cancel", &json!({ "sessionId": slow }));
    assert_eq!(demo.response(waiting)["result"]["stopReason"], "cancelled");
    assert_eq!(demo.turn(&slow, "/help"), "end_turn");
}

#[test]
fn boolean_option_requires_a_client_that_supports_it() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let value =
        json!({ "sessionId": session, "configId": "thoughts", "type": "boolean", "value": false });
    let options = demo.call("session/set_config_option", &value)["result"]["configOptions"].clone();
    assert_eq!(
        (&options[2]["type"], &options[2]["currentValue"]),
        (&json!("boolean"), &json!(false))
    );
    assert_eq!(demo.turn(&session, "hello"), "end_turn");
    assert!(demo.updates("agent_thought_chunk").is_empty());
    assert_eq!(demo.turn(&session, "/pace brisk"), "end_turn");
    assert_eq!(
        demo.updates("config_option_update")[0]["configOptions"][0]["currentValue"],
        "brisk"
    );

    demo.initialize(&json!({}));
    let made = demo.call("session/new", &json!({ "cwd": "/w", "mcpServers": [] }));
    assert_eq!(made["result"]["configOptions"].as_array().unwrap().len(), 2);
}

#[test]
fn attachments_are_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.seen.clear();
    let prompt = json!([
        { "type": "text", "text": "what is this?" },
        { "type": "image", "mimeType": "image/png", "data": "aGVsbG8=" },
        { "type": "resource_link", "uri": "file:///w/a.txt", "name": "a.txt" },
    ]);
    let response = demo.call(
        "session/prompt",
        &json!({ "sessionId": session, "prompt": prompt }),
    );
    assert_eq!(response["result"]["stopReason"], "end_turn");
    let text = demo.agent_text();
    assert!(
        text.contains("an image (“image/png”, 5 bytes)") && text.contains("a link to “a.txt”"),
        "{text}"
    );
}
