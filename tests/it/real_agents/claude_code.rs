//! Claude Code itself, in its own protocol (`dialect = "stream-json"`), before a mock of its model.

use std::time::Duration;

use serde_json::{Value, json};

use super::file;
use super::model::Model;
use super::real::{CLAUDE, CLAUDE_CODE, Real, Running, ends, written};
use super::scenarios;
use crate::support::{Setup, eventually};

/// Waits until Claude Code has stored a text of a conversation, some time after its response.
async fn stored(running: &Running, text: &str) {
    let projects = running
        .gateway
        .path("data/homes/default/claude-code/.claude/projects");
    eventually(
        "the conversation is stored",
        Duration::from_secs(20),
        || async { written(&projects).contains(text).then_some(()) },
    )
    .await;
}

#[tokio::test]
async fn claude_code_writes_text_and_thoughts_and_offers_its_settings() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    let shown = running.gateway.get_session(&session).await;
    assert_eq!(shown["modes"]["currentModeId"], "default", "{shown}");
    assert_eq!(shown["configOptions"][0]["id"], "model", "{shown}");
    assert!(
        shown["availableCommands"]
            .as_array()
            .is_some_and(|commands| !commands.is_empty()),
        "{shown}"
    );
    assert!(
        shown["deniedModes"]
            .to_string()
            .contains("bypassPermissions"),
        "{shown}"
    );
    running
        .says(&session, "banana", "banana comes after ")
        .await;
    let turn = running.turn(&session, "think cherry").await;
    assert_eq!(turn["text"], "think cherry comes after banana", "{turn}");
    let events = running.gateway.lawful(&session).await;
    let kinds: Vec<_> = events
        .iter()
        .filter_map(|event| event["update"]["sessionUpdate"].as_str())
        .collect();
    assert!(
        kinds.contains(&"agent_thought_chunk") && kinds.contains(&"usage_update"),
        "{kinds:?}"
    );
    let usage = running.gateway.get_session(&session).await["usage"].clone();
    assert_eq!(
        (&usage["size"], &usage["cost"]["currency"]),
        (&json!(1_000_000), &json!("USD")),
        "{usage}"
    );
}

#[tokio::test]
async fn claude_code_changes_its_mode_and_model_but_not_to_a_denied_mode() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    let path = format!("/v1/sessions/{session}");
    let mode = |mode: &str| json!({ "modeId": mode });
    let (status, answer) = running
        .gateway
        .send(reqwest::Method::PUT, &format!("{path}/mode"), &mode("plan"))
        .await;
    assert!(status.is_success(), "{status} {answer}");
    assert_eq!(
        running.gateway.get_session(&session).await["modes"]["currentModeId"],
        "plan"
    );
    let bypass = mode("bypassPermissions");
    let (status, answer) = running
        .gateway
        .send(reqwest::Method::PUT, &format!("{path}/mode"), &bypass)
        .await;
    assert_eq!(status, 403, "{answer}");
    let value = json!({ "value": "haiku" });
    let (status, answer) = running
        .gateway
        .send(
            reqwest::Method::PUT,
            &format!("{path}/config/model"),
            &value,
        )
        .await;
    assert!(status.is_success(), "{status} {answer}");
    // Claude Code also sends its note about the new model to the model.
    let turn = running.turn(&session, "banana").await;
    assert!(
        turn["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("banana comes after ")),
        "{turn}"
    );
    let shown = running.gateway.get_session(&session).await;
    assert_eq!(
        shown["configOptions"][0]["currentValue"], "haiku",
        "{shown}"
    );
    assert_eq!(shown["modes"]["currentModeId"], "plan", "{shown}");
}

#[tokio::test]
async fn claude_code_uses_a_tool_after_permission_and_not_after_a_rejection() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    let made = running.cwd(&session).await.join("made.txt");
    for (kind, exists) in [("reject_once", false), ("allow_once", true)] {
        let mut asked = running.asked(&session, "touch made.txt").await;
        assert!(!made.exists(), "the tool waits for the answer");
        running.answer(&asked, kind).await;
        let end = asked
            .stream
            .until("prompt.completed")
            .await
            .pop()
            .expect("until gives it")
            .data;
        assert_eq!(
            (&end["stopReason"], made.exists()),
            (&json!("end_turn"), exists),
            "{end}"
        );
    }
}

#[tokio::test]
async fn claude_code_remembers_a_permission_that_is_always_allowed() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    let mut asked = running.asked(&session, "touch always.txt").await;
    running.answer(&asked, "allow_always").await;
    asked.stream.until("prompt.completed").await;
    let turn = running
        .turn(&session, &CLAUDE_CODE.shell("touch always.txt"))
        .await;
    assert_eq!(turn["stopReason"], "end_turn", "no second question: {turn}");
}

#[tokio::test]
async fn claude_code_is_interrupted_during_a_request_a_tool_and_output() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    let mut asked = running.asked(&session, "touch made.txt").await;
    running.cancel(&session).await;
    let events = asked.stream.until("prompt.completed").await;
    assert_eq!(
        events.last().expect("its end").data["stopReason"],
        "cancelled"
    );
    assert!(!running.cwd(&session).await.join("made.txt").exists());
    running.gateway.prompt(&session, "slowly").await;
    asked.stream.until("session.update").await;
    running.cancel(&session).await;
    let end = asked
        .stream
        .until("prompt.completed")
        .await
        .pop()
        .expect("until gives it")
        .data;
    assert_eq!(end["stopReason"], "cancelled", "{end}");
    let next = running.turn(&session, "a third").await;
    assert_eq!(next["stopReason"], "end_turn", "{next}");

    // A command that writes nothing needs no permission.
    let mut asked = running.asked(&session, "touch begun.txt; sleep 4321").await;
    running.answer(&asked, "allow_once").await;
    let begun = running.cwd(&session).await.join("begun.txt");
    eventually("the command runs", Duration::from_secs(30), || async {
        begun.exists().then_some(())
    })
    .await;
    running.cancel(&session).await;
    let end = asked
        .stream
        .until("prompt.completed")
        .await
        .pop()
        .expect("until gives it")
        .data;
    assert_eq!(end["stopReason"], "cancelled", "{end}");
}

#[tokio::test]
async fn claude_code_reports_an_error_of_the_model_api() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    let turn = running.turn(&session, "fail 400 mock reason").await;
    assert_eq!(
        (&turn["status"], &turn["text"]),
        (&json!("failed"), &json!("")),
        "{turn}"
    );
    let detail = turn["error"]["detail"].as_str().expect("a detail");
    assert!(detail.contains("Internal error: API Error"), "{turn}");
    let next = running.turn(&session, "next").await;
    assert!(
        next["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("next comes after fail 400")),
        "{next}"
    );
}

#[tokio::test]
async fn claude_code_resumes_after_its_process_was_killed() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    running
        .says(&session, "banana", "banana comes after ")
        .await;
    stored(&running, "banana comes after").await;
    running.kill_agents().await;
    running.detached(&session).await;
    running
        .says(&session, "cherry", "cherry comes after banana")
        .await;
    running.assert_kept(std::slice::from_ref(&session)).await;
    let events = running.gateway.lawful(&session).await;
    assert!(
        events.iter().any(|event| event["by"] == "resume"),
        "{events:#?}"
    );
}

#[tokio::test]
async fn claude_code_without_its_record_begins_a_new_conversation() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    running
        .says(&session, "banana", "banana comes after ")
        .await;
    stored(&running, "banana comes after").await;
    running.kill_agents().await;
    running.detached(&session).await;
    let projects = running
        .gateway
        .path("data/homes/default/claude-code/.claude/projects");
    std::fs::remove_dir_all(projects).expect("the record");
    running
        .says(&session, "cherry", "cherry comes after ")
        .await;
    let events = running.gateway.lawful(&session).await;
    let lost = events
        .iter()
        .find(|event| event["context"] == "lost")
        .expect("it is reported");
    assert_eq!(lost["reason"], "not_found", "{lost}");
}

#[tokio::test]
async fn claude_code_runs_two_sessions_at_once_and_restores_idle_ones() {
    scenarios::two_sessions_at_once_in_a_new_home(&CLAUDE_CODE).await;
    scenarios::idle_timeout(&CLAUDE_CODE).await;
}

#[tokio::test]
async fn claude_code_works_at_the_isolation_level_workspace() {
    scenarios::workspace_isolation(&CLAUDE_CODE).await;
}

#[tokio::test]
async fn claude_code_writes_three_megabytes() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    let mut stream = running
        .gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    running.gateway.prompt(&session, "big 3000000").await;
    let events = stream.up_to("the end of the turn", ends).await;
    let texts = events
        .iter()
        .filter_map(|event| event.data["update"]["content"]["text"].as_str());
    assert_eq!(texts.map(str::len).sum::<usize>(), 3_000_000);
    assert_eq!(
        events.last().expect("its end").data["stopReason"],
        "end_turn"
    );
}

/// The texts, tools and stop reasons of a transcript.
async fn summary(real: &'static Real) -> Vec<Value> {
    let model = Model::start().await;
    let gateway = real.configure(Setup::default(), &model, "", &[]).start();
    let running = Running::new(real, gateway, model);
    let session = running.session().await;
    running.turn(&session, "banana").await;
    running.turn(&session, "think cherry").await;
    for kind in ["allow_once", "reject_once"] {
        let mut asked = running.asked(&session, "touch made.txt").await;
        running.answer(&asked, kind).await;
        asked.stream.until("prompt.completed").await;
    }
    running
        .turn(
            &session,
            "call TaskCreate {\"subject\":\"one\",\"description\":\"-\"}",
        )
        .await;
    let mut asked = running.asked(&session, "touch made.txt").await;
    running.cancel(&session).await;
    asked.stream.until("prompt.completed").await;
    let transcript = running
        .gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await;
    let turns = transcript["turns"].as_array().expect("turns").iter();
    let item = |item: &Value, cancelled: bool| match item["type"].as_str() {
        Some("message") => json!([item["role"], item["content"]]),
        Some("tool_call") => {
            let call = &item["toolCall"];
            // After a cancel the adapter drops the result of the tool.
            let content = if cancelled {
                &Value::Null
            } else {
                &call["content"]
            };
            json!([
                call["toolCallId"],
                call["title"],
                call["kind"],
                call["status"],
                content,
                call["locations"]
            ])
        }
        other => json!([other]),
    };
    let summary = |turn: &Value| {
        let cancelled = turn["stopReason"] == "cancelled";
        let items = turn["items"].as_array().expect("items").iter();
        let items: Vec<_> = items.map(|shown| item(shown, cancelled)).collect();
        json!({ "stopReason": turn["stopReason"], "status": turn["status"], "items": items })
    };
    turns.map(summary).collect()
}

#[tokio::test]
async fn transcript_of_claude_code_equals_that_of_its_acp_adapter() {
    let own = summary(&CLAUDE_CODE).await;
    let adapter = summary(&CLAUDE).await;
    assert_eq!(own, adapter, "{own:#?}\n{adapter:#?}");
}

#[tokio::test]
async fn claude_code_gets_images_of_a_prompt() {
    let running = CLAUDE_CODE.start("").await;
    let session = running.session().await;
    // One pixel.
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let image = json!({ "type": "image", "mimeType": "image/png", "data": pixel });
    let body = json!({ "prompt": [image, { "type": "text", "text": "banana" }] });
    let path = format!("/v1/sessions/{session}/prompts");
    let answer = running
        .gateway
        .posted(&path, &[("prefer", "wait=60")], &body)
        .await;
    let text = answer.body["text"].as_str().unwrap_or_default();
    assert!(
        text.starts_with("banana comes after image/png of "),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn claude_code_calls_a_tool_of_an_mcp_server() {
    let model = Model::start().await;
    let server = file("clients/mcp_server.mjs");
    let setup = Setup::default().table(&format!(
        "[mcp.echo]\ncommand = \"node\"\nargs = [{server:?}]"
    ));
    let gateway = CLAUDE_CODE.configure(setup, &model, "", &[]).start();
    let running = Running::new(&CLAUDE_CODE, gateway, model);
    let body = json!({ "agent": CLAUDE_CODE.name, "mcpServers": ["echo"] });
    let (status, made) = running.gateway.post("/v1/sessions", &body).await;
    assert_eq!(status, 201, "{made}");
    let session = made["sessionId"].as_str().expect("an id").to_owned();
    let mut asked = running
        .asked_by(&session, "call mcp__echo__repeat {\"text\":\"banana\"}")
        .await;
    running.answer(&asked, "allow_once").await;
    let end = asked
        .stream
        .until("prompt.completed")
        .await
        .pop()
        .expect("until gives it")
        .data;
    let prompt = end["promptId"].as_str().expect("an id");
    let turn = running
        .gateway
        .get(&format!("/v1/sessions/{session}/prompts/{prompt}"))
        .await;
    assert!(
        turn["text"].to_string().contains("repeated: banana"),
        "{turn}"
    );
}

#[tokio::test]
async fn claude_code_reads_files_of_an_additional_directory_without_a_permission() {
    let running = CLAUDE_CODE.start("").await;
    let folder = running.gateway.path("data/workspaces/shared");
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    std::fs::write(folder.join("note.txt"), "cherry").expect("the folder is ours");
    let body = json!({ "agent": CLAUDE_CODE.name, "additionalDirectories": [folder] });
    let (status, made) = running.gateway.post("/v1/sessions", &body).await;
    assert_eq!(status, 201, "{made}");
    let session = made["sessionId"].as_str().expect("an id").to_owned();
    let input = json!({ "file_path": folder.join("note.txt") });
    let turn = running.turn(&session, &format!("call Read {input}")).await;
    assert!(
        turn["text"].to_string().contains("cherry"),
        "{turn}\n{}",
        running.gateway.log()
    );
    let events = running.gateway.lawful(&session).await;
    assert!(
        !events
            .iter()
            .any(|event| event["type"] == "request.created"),
        "{events:?}"
    );
}
