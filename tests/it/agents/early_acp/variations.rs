//! Agents with the method names of ACP and early shapes: one test for each variation.

use reqwest::StatusCode;
use serde_json::json;

use super::super::socket::Socket;
use super::Early;

/// Runs an echo, and checks that its text is shown once.
async fn echoes(early: &Early) -> String {
    let session = early.session().await;
    for text in ["hello world", "second turn"] {
        let (turn, _) = early.turn(&session, text).await;
        assert_eq!(
            (&turn["text"], &turn["stopReason"]),
            (&json!(text), &json!("end_turn")),
            "{turn}"
        );
    }
    session
}

#[tokio::test]
async fn prompt_with_content_instead_of_prompt() {
    let early = Early::start(&["modern", "content"]);
    echoes(&early).await;
    let prompts: Vec<_> = early
        .received()
        .into_iter()
        .filter(|line| line["method"] == "session/prompt")
        .collect();
    assert_eq!(prompts.len(), 3, "one attempt was rejected: {prompts:?}");
    assert!(
        prompts[1]["params"].get("prompt").is_none()
            && prompts[2]["params"].get("prompt").is_none()
    );
}

#[tokio::test]
async fn text_in_message_delta_updates() {
    echoes(&Early::start(&["modern", "delta"])).await;
}

#[tokio::test]
async fn text_and_tool_use_in_agent_message_chunk_updates() {
    let early = Early::start(&["modern"]);
    let session = echoes(&early).await;
    let (turn, updates) = early.turn(&session, "tool a.txt").await;
    assert_eq!(turn["text"], "done", "{turn}");
    assert_eq!(
        (&updates[0]["sessionUpdate"], &updates[0]["title"]),
        (&json!("tool_call"), &json!("read_file"))
    );
    assert_eq!(updates[0]["rawInput"], json!({ "path": "a.txt" }));
}

#[tokio::test]
async fn updates_without_a_session_id() {
    let early = Early::start(&["modern", "delta", "no-session"]);
    let first = early.session().await;
    let second = early.session().await;
    let (one, other) = tokio::join!(
        early.turn(&first, "hello one"),
        early.turn(&second, "hello other")
    );
    assert_eq!(
        (&one.0["text"], &other.0["text"]),
        (&json!("hello one"), &json!("hello other"))
    );
}

#[tokio::test]
async fn capabilities_with_early_names() {
    let early = Early::start(&["modern"]);
    let session = early.session().await;
    let shown = early.gateway.get("/v1/agents/early").await;
    assert_eq!(
        shown["capabilities"]["promptCapabilities"],
        json!({ "image": true }),
        "{shown}"
    );
    assert_eq!(
        shown["capabilities"]["mcpCapabilities"],
        json!({ "http": true }),
        "{shown}"
    );
    let offered = early.received()[0]["params"]["clientCapabilities"].clone();
    assert_eq!(
        offered["readTextFile"], offered["fs"]["readTextFile"],
        "{offered}"
    );
    assert!(
        offered["readTextFile"].is_boolean() && offered["terminal"].is_boolean(),
        "{offered}"
    );
    let blocks = json!([{ "type": "text", "text": "hello" }, { "type": "image", "mimeType": "image/png", "data": "AAAA" }]);
    let path = format!("/v1/sessions/{session}/prompts");
    let sent = early
        .gateway
        .posted(
            &path,
            &[("prefer", "wait=20")],
            &json!({ "prompt": blocks }),
        )
        .await;
    assert_eq!(sent.body["text"], "hello", "images are accepted: {sent:?}");
}

#[tokio::test]
async fn permission_with_a_title_and_a_message() {
    for (option, label, kind) in [
        ("go", "Allow", "allow_once"),
        ("halt", "Deny", "reject_once"),
    ] {
        let early = Early::start(&["modern", "no-session"]);
        let session = early.session().await;
        early.gateway.prompt(&session, "ask make").await;
        let events = early
            .gateway
            .log_until(&session, |event| event["type"] == "request.created")
            .await;
        let params = &events.last().expect("the request")["params"];
        let offered = params["options"].as_array().expect("options").iter();
        let offered = offered
            .clone()
            .find(|offered| offered["optionId"] == option)
            .expect("the option");
        assert_eq!(
            (&offered["name"], &offered["kind"]),
            (&json!(label), &json!(kind)),
            "{params}"
        );
        let path = format!("/v1/sessions/{session}/permissions/r1");
        early
            .gateway
            .posted(&path, &[], &json!({ "optionId": option }))
            .await;
        let events = early
            .gateway
            .log_until(&session, |event| event["type"] == "prompt.completed")
            .await;
        let text = crate::support::log::agent_text(&events);
        assert_eq!(text, format!("permission: {option}"));
    }
}

#[tokio::test]
async fn bare_text_as_the_content_of_a_tool() {
    let early = Early::start(&["modern"]);
    let session = early.session().await;
    let (_, updates) = early.turn(&session, "tool a.txt").await;
    let content = json!([{ "type": "content", "content": { "type": "text", "text": "contents" } }]);
    assert_eq!(
        (&updates[1]["status"], &updates[1]["content"]),
        (&json!("completed"), &content),
        "{updates:?}"
    );
}

#[tokio::test]
async fn error_in_the_result_of_a_prompt() {
    let early = Early::start(&["modern"]);
    let session = early.session().await;
    let (turn, _) = early.turn(&session, "fail no tokens are left").await;
    assert_eq!(turn["status"], "failed", "{turn}");
    assert!(
        turn["error"]["detail"]
            .as_str()
            .expect("a text")
            .contains("no tokens are left"),
        "{turn}"
    );
}

#[tokio::test]
async fn version_as_a_number_after_an_error_or_an_exit() {
    for flag in ["number", "crash"] {
        let early = Early::start(&["modern", flag]);
        echoes(&early).await;
        let versions: Vec<_> = early
            .received()
            .into_iter()
            .filter(|line| line["method"] == "initialize")
            .map(|line| line["params"]["protocolVersion"].clone())
            .collect();
        assert_eq!(versions, [json!("1.0"), json!(1)], "{flag}");
    }
}

/// The command runs in the terminal, and not its translation.
#[tokio::test]
async fn sign_in_in_a_terminal_runs_the_command_itself() {
    for flags in [&["auth"][..], &["auth", "modern"]] {
        let early = Early::start_entry(flags, "terminal_auth = true", "");
        let gateway = &early.gateway;
        gateway
            .posted("/v1/sessions", &[], &json!({ "agent": "early" }))
            .await
            .problem(424, "agent_auth_required");
        let offer = gateway
            .posted(
                "/v1/agents/early/auth",
                &[],
                &json!({ "methodId": "shell" }),
            )
            .await;
        assert_eq!(offer.status, StatusCode::CREATED, "{offer:?}");
        let path = offer.body["url"].as_str().expect("a path");
        let mut terminal = Socket::open(gateway, path).await;
        terminal.until("the word: ").await;
        terminal.types("sesame\n").await;
        terminal.until("welcome").await;
        let exit = terminal.next().await.expect("its end");
        assert_eq!(exit["exitCode"], 0, "{exit}");
        let session = early.session().await;
        let turn = gateway.turn(&session, "hello").await;
        assert_eq!(turn["text"], "hello", "{turn}");
    }
}
