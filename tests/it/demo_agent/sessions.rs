//! Sessions of the demo agent, and its process.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Demo, code};

#[test]
fn sessions_survive_their_process() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.call(
        "session/set_mode",
        &json!({ "sessionId": session, "modeId": "auto" }),
    );
    assert_eq!(demo.turn(&session, "/diff"), "end_turn");
    let text = demo.agent_text();
    drop(demo);

    let mut demo = Demo::start(home.path());
    let params = json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] });
    let early = demo.prompt(&session, "/help");
    assert_eq!(
        code(&demo.response(early)),
        -32002,
        "not before it is loaded"
    );
    demo.seen.clear();
    let loaded = demo.call("session/load", &params);
    assert_eq!(loaded["result"]["modes"]["currentModeId"], "auto");
    assert_eq!(
        loaded["result"]["configOptions"][0]["currentValue"],
        "instant"
    );
    assert_eq!(
        demo.updates("user_message_chunk")[0]["content"]["text"],
        "/diff"
    );
    assert_eq!(demo.updates("tool_call")[0]["status"], "completed");
    assert_eq!(demo.agent_text(), text);
    let first = demo.updates("agent_message_chunk")[0]["messageId"].clone();
    assert_eq!(demo.turn(&session, "/diff"), "end_turn");
    assert_ne!(
        demo.updates("agent_message_chunk")[0]["messageId"],
        first,
        "ids go on"
    );
    drop(demo);

    let mut demo = Demo::start(home.path());
    demo.seen.clear();
    let resumed = demo.call("session/resume", &params);
    assert_eq!(resumed["result"]["modes"]["currentModeId"], "auto");
    assert!(
        demo.seen.is_empty(),
        "a resume replays nothing: {:?}",
        demo.seen
    );
    assert_eq!(demo.turn(&session, "/help"), "end_turn");
}

#[test]
fn sessions_are_listed_by_page_closed_and_deleted() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let sessions: Vec<String> = (0..52).map(|_| demo.session("/many")).collect();
    let other = demo.session("/other");
    let ids = |page: &Value| -> Vec<String> {
        let sessions = page["result"]["sessions"]
            .as_array()
            .unwrap_or_else(|| panic!("{page}"));
        sessions
            .iter()
            .map(|session| session["sessionId"].as_str().unwrap().to_owned())
            .collect()
    };

    let first = demo.call("session/list", &json!({ "cwd": "/many" }));
    let cursor = first["result"]["nextCursor"].as_str().unwrap().to_owned();
    let second = demo.call("session/list", &json!({ "cwd": "/many", "cursor": cursor }));
    assert!(
        second["result"]
            .get("nextCursor")
            .is_none_or(Value::is_null)
    );
    let mut listed = [ids(&first), ids(&second)].concat();
    let mut expected = sessions.clone();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected, "each session of the folder once");
    let id = demo.send("session/list", &Value::Null);
    assert_eq!(ids(&demo.response(id)).len(), 50);
    assert_eq!(
        code(&demo.call("session/list", &json!({ "cursor": "nonsense" }))),
        -32602
    );

    let running = demo.prompt(&other, "/slow 600");
    let close = demo.send("session/close", &json!({ "sessionId": other }));
    assert_eq!(
        demo.response(running)["result"]["stopReason"],
        "cancelled",
        "a close cancels first"
    );
    assert_eq!(demo.response(close)["result"], json!({}));
    assert_eq!(
        code(&demo.call(
            "session/prompt",
            &json!({ "sessionId": other, "prompt": [] })
        )),
        -32002
    );
    assert_eq!(
        ids(&demo.call("session/list", &json!({ "cwd": "/other" }))),
        [other.as_str()]
    );

    for _ in 0..2 {
        assert_eq!(
            demo.call("session/delete", &json!({ "sessionId": other }))["result"],
            json!({})
        );
    }
    assert!(ids(&demo.call("session/list", &json!({ "cwd": "/other" }))).is_empty());
    let load = json!({ "sessionId": other, "cwd": "/other", "mcpServers": [] });
    let gone = demo.call("session/load", &load);
    assert_eq!(
        (code(&gone), &gone["error"]["data"]["sessionId"]),
        (-32002, &json!(other))
    );
}

#[test]
fn demo_crash_keeps_a_session_that_can_be_resumed() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.prompt(&session, "/crash");
    demo.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    assert_eq!(demo.wait_for_exit(Duration::from_secs(30)), Some(42));
    drop(demo);

    let mut demo = Demo::start(home.path());
    let params = json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] });
    assert!(demo.call("session/resume", &params).get("error").is_none());
    assert_eq!(demo.turn(&session, "/help"), "end_turn");
}

#[test]
fn the_end_of_stdin_ends_the_process_also_in_a_turn() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.prompt(&session, "/slow 600");
    demo.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    demo.stdin = None;
    assert_eq!(demo.wait_for_exit(Duration::from_secs(30)), Some(0));
    drop(demo);

    let mut demo = Demo::start(home.path());
    demo.seen.clear();
    demo.call(
        "session/load",
        &json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] }),
    );
    let text = demo.agent_text();
    let whole = "This takes 600 seconds. Cancel it whenever you like.\n\n";
    assert!(
        text.starts_with("This"),
        "the text before the end is kept: {text}"
    );
    assert!(
        whole.starts_with(&text) || text.starts_with(whole),
        "{text}"
    );
}
