//! The kinds of updates, and the state of a session.

use serde_json::{Value, json};

use super::client::Demo;

#[test]
fn named_plans_are_created_changed_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    assert_eq!(demo.turn(&session, "/plans"), "end_turn");
    let plans = demo.updates("plan_update");
    let kinds: Vec<&Value> = plans.iter().map(|update| &update["plan"]["type"]).collect();
    assert_eq!(kinds, ["items", "file", "markdown", "items"]);
    assert_eq!(plans[1]["plan"]["uri"], "file:///w/PLAN.md");
    assert_eq!(plans[0]["plan"]["planId"], plans[3]["plan"]["planId"]);
    assert_eq!(plans[3]["plan"]["entries"][1]["status"], "completed");
    assert_eq!(
        demo.updates("plan_removed")[0]["planId"],
        plans[1]["plan"]["planId"]
    );
}

#[test]
fn notices_compactions_and_titles_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    for (text, severity) in [
        ("/notice", "info"),
        ("/notice warning", "warning"),
        ("/notice error", "error"),
    ] {
        assert_eq!(demo.turn(&session, text), "end_turn");
        assert_eq!(demo.updates("notice")[0]["severity"], severity);
    }
    assert_eq!(demo.turn(&session, "/compact"), "end_turn");
    let states: Vec<&Value> = demo
        .updates("compaction_update")
        .iter()
        .map(|update| &update["status"])
        .collect();
    assert_eq!(states, ["in_progress", "completed"]);
    let chunks = demo.updates("compaction_summary_chunk");
    assert_eq!(
        (chunks.len(), &chunks[0]["content"]["text"]),
        (3, &json!("So far there were 4 turns. "))
    );
    let first = chunks[0]["compactionId"].clone();
    assert_eq!(demo.turn(&session, "/compact fail"), "end_turn");
    let failed = demo.updates("compaction_update")[1];
    assert_eq!(failed["status"], "failed");
    assert_ne!(failed["compactionId"], first);
    assert!(failed["error"].is_string());
    assert_eq!(demo.turn(&session, "/title  A   title"), "end_turn");
    assert_eq!(demo.updates("session_info_update")[0]["title"], "A title");
    let listed = demo.call("session/list", &json!({}));
    assert_eq!(listed["result"]["sessions"][0]["title"], "A title");
}

#[test]
fn a_subagent_speaks_under_its_own_session() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    assert_eq!(demo.turn(&session, "/subagent"), "end_turn");
    let states = demo.updates("subagent_update");
    let child = states[0]["sessionId"].clone();
    assert_ne!(child, session);
    assert_eq!(
        (&states[0]["title"], &states[0]["state"]["state"]),
        (&json!("Scout"), &json!("running"))
    );
    assert_eq!(states[1]["sessionId"], child);
    assert_eq!(
        states[1]["state"],
        json!({ "state": "idle", "stopReason": "end_turn" })
    );
    let messages = demo.updates("session_message");
    assert_eq!(messages[0]["recipientSessionId"], child);
    assert_eq!(messages[1]["senderSessionId"], child);
    assert_eq!(
        demo.updates("session_message_chunk")[0]["messageId"],
        messages[1]["messageId"]
    );
    let order: Vec<(bool, &str)> = demo
        .seen
        .iter()
        .map(|message| {
            let params = &message["params"];
            (
                params["sessionId"] == child,
                params["update"]["sessionUpdate"].as_str().unwrap(),
            )
        })
        .collect();
    let of_child: Vec<&str> = order
        .iter()
        .filter(|(child, _)| *child)
        .map(|(_, kind)| *kind)
        .collect();
    assert!(
        of_child.contains(&"tool_call") && of_child.contains(&"agent_message_chunk"),
        "{of_child:?}"
    );
    let first = order.iter().position(|(child, _)| *child).unwrap();
    let announced = order
        .iter()
        .position(|(_, kind)| *kind == "subagent_update")
        .unwrap();
    assert!(
        announced < first,
        "a child sends text after its announcement"
    );
    demo.seen.clear();
    demo.call(
        "session/load",
        &json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] }),
    );
    assert!(
        demo.updates("tool_call").is_empty(),
        "the work of the child is not in the parent's history"
    );
}

#[test]
fn an_answer_has_blocks_of_every_kind_and_a_turn_its_tokens() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let (result, _) = demo.played(&session, "/content", |_, _| Ok(Value::Null));
    let chunks = demo.updates("agent_message_chunk");
    let kinds: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["content"]["type"])
        .collect();
    assert_eq!(
        kinds,
        [
            "text",
            "image",
            "audio",
            "resource_link",
            "resource",
            "resource"
        ]
    );
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["messageId"] == chunks[0]["messageId"]),
        "it is one message"
    );
    let usage = &result["usage"];
    let count = |key: &str| usage[key].as_u64().unwrap_or_else(|| panic!("{usage}"));
    assert_eq!(
        count("totalTokens"),
        count("inputTokens") + count("outputTokens")
    );
    assert!(
        count("inputTokens") > 0 && count("outputTokens") > 0,
        "{usage}"
    );
    let first = count("totalTokens");
    let (result, _) = demo.played(&session, "/help", |_, _| Ok(Value::Null));
    assert!(
        result["usage"]["inputTokens"].as_u64().unwrap() >= first,
        "the load replays the text"
    );
}

#[test]
fn output_after_the_end_of_a_turn_is_accepted() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    assert_eq!(demo.turn(&session, "/late"), "end_turn");
    assert!(
        !demo.agent_text().contains("after"),
        "{}",
        demo.agent_text()
    );
    let late =
        demo.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    assert_eq!(
        late["params"]["update"]["content"]["text"],
        "And this arrived after the end of the turn."
    );
}

#[test]
fn demo_session_and_its_fork_keep_a_remembered_word_across_processes() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let one = demo.session("/w");
    let other = demo.session("/w");
    demo.turn(&one, "/recall");
    assert!(
        demo.agent_text().contains("remembers no word"),
        "{}",
        demo.agent_text()
    );
    demo.turn(&one, "/remember apple pie");
    demo.turn(&other, "/remember pear");
    demo.turn(&other, "/remember plum");
    drop(demo);

    let mut demo = Demo::start(home.path());
    let params = |session: &str| json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] });
    demo.call("session/load", &params(&one));
    demo.call("session/resume", &params(&other));
    let fork = demo.call(
        "session/fork",
        &json!({ "sessionId": one, "cwd": "/fork", "mcpServers": [] }),
    );
    assert_eq!(fork["result"]["modes"]["currentModeId"], "ask");
    let fork = fork["result"]["sessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("{fork}"))
        .to_owned();
    assert!(fork != one && fork != other);
    for (session, word) in [(&one, "apple pie"), (&other, "plum"), (&fork, "apple pie")] {
        assert_eq!(demo.turn(session, "/recall"), "end_turn");
        assert_eq!(demo.agent_text(), format!("The word is “{word}”."));
    }
    demo.turn(&fork, "/remember cherry");
    demo.turn(&one, "/recall");
    assert!(
        demo.agent_text().contains("apple pie"),
        "a fork goes its own way: {}",
        demo.agent_text()
    );
    let gone = demo.call(
        "session/fork",
        &params("01938c5e-7a3b-7c4d-8e5f-0123456789ab"),
    );
    assert_eq!(gone["error"]["code"], -32002);
}

#[test]
fn about_shows_the_folder_and_the_client_capabilities() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let servers = json!([
        { "name": "docs", "command": "/bin/docs", "args": [], "env": [] },
        { "type": "http", "name": "web", "url": "https://mcp.example/", "headers": [] },
    ]);
    let params = json!({ "cwd": "/w", "additionalDirectories": ["/more"], "mcpServers": servers });
    let made = demo.call("session/new", &params);
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    demo.turn(&session, "/pace instant");
    demo.seen.clear();
    let traced = json!({
        "sessionId": session,
        "prompt": [{ "type": "text", "text": "/about" }],
        "_meta": { "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" },
    });
    assert_eq!(
        demo.call("session/prompt", &traced)["result"]["stopReason"],
        "end_turn"
    );
    let text = demo.agent_text();
    for part in [
        session.as_str(),
        "“/w”",
        "“/more”",
        "“docs”, “web”",
        "0af7651916cd43dd",
        "| terminals | yes |",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let listed = demo.call("session/list", &json!({}));
    assert_eq!(
        listed["result"]["sessions"][0]["additionalDirectories"],
        json!(["/more"])
    );
    demo.initialize(&json!({ "fs": { "readTextFile": true } }));
    demo.turn(&session, "/about");
    assert!(
        demo.agent_text().contains("| reading files | yes |")
            && demo.agent_text().contains("| writing files | no |")
    );
}
