//! Control characters: names that clients send must not have them, and the log and stderr do not show those of agents.

use reqwest::header::ACCEPT;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wire::acp::percent_encode_path;

use crate::support::calls::Answer;
use crate::support::{Gateway, Setup, eventually};

/// One of each kind: C0, an escape sequence, DEL, C1, a line break, a separator of lines, bidi controls, and format
/// characters that nobody sees.
const UNSAFE: [&str; 14] = [
    "\0",
    "\u{1b}[2J",
    "\t",
    "\u{7f}",
    "\u{9b}31m",
    "\n",
    "\u{2028}",
    "\u{202e}",
    "\u{2066}",
    "\u{200b}",
    "\u{200d}",
    "\u{ad}",
    "\u{feff}",
    "\u{e0041}",
];
/// A forged record in both formats of the log, escape sequences, and bidi controls.
const HOSTILE: &str = "\u{1b}]0;title\u{7}a\u{1b}[31mb\u{1b}[0m\r\n{\"level\":\"ERROR\",\"message\":\"forged\"}\n\u{202e}c\u{9b}2J\u{85}d\u{2028}e\0";

fn has_unsafe(text: &str) -> bool {
    let bidi = |c| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}');
    text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t') || bidi(c))
}

fn assert_names_field(answer: Answer, pointer: &str, case: &str) {
    let problem = answer.problem(422, "invalid");
    assert_eq!(
        problem["errors"][0]["pointer"], pointer,
        "{case:?}: {problem}"
    );
    let detail = problem["errors"][0]["detail"].as_str().expect("a text");
    assert!(detail.contains("is U+"), "{case:?}: {detail}");
}

#[tokio::test]
async fn titles_and_names_with_control_characters_are_rejected_with_their_field() {
    let gateway = Setup::fake_with(&["--list"], "rpc = [\"_vendor/*\"]").start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}");
    for text in UNSAFE {
        let name = format!("a{text}b");
        let create = async |body: Value| gateway.posted("/v1/sessions", &[], &body).await;
        let agent = "fake";
        assert_names_field(
            create(json!({ "agent": agent, "title": name })).await,
            "/title",
            text,
        );
        let metadata = json!({ "agent": agent, "metadata": { &name: 1 } });
        assert_names_field(create(metadata).await, "/metadata", text);
        let is_line_end = matches!(text, "\n" | "\t");
        if !is_line_end {
            for value in [json!(name), json!([1, name]), json!({ "a": { "b": name } })] {
                let metadata = json!({ "agent": agent, "metadata": { "a": value } });
                assert_names_field(create(metadata).await, "/metadata", text);
            }
            let task = json!({ "agent": agent, "description": name });
            let answer = gateway.posted("/v1/tasks", &[], &task).await;
            assert_names_field(answer, "/description", text);
        }
        let task = json!({ "agent": agent, "description": "x", "metadata": { &name: 1 } });
        let answer = gateway.posted("/v1/tasks", &[], &task).await;
        assert_names_field(answer, "/metadata", text);
        let adopted = json!({ "agent": agent, "agentSessionId": name, "cwd": "." });
        assert_names_field(create(adopted).await, "/agentSessionId", text);
        let changed = |body: Value| Answer::of(gateway.request(Method::PATCH, &path).json(&body));
        assert_names_field(changed(json!({ "title": name })).await, "/title", text);
        assert_names_field(
            changed(json!({ "metadata": { &name: 1 } })).await,
            "/metadata",
            text,
        );
        let method = json!({ "method": format!("_vendor/{name}") });
        for route in [format!("{path}/rpc"), "/v1/agents/fake/rpc".to_owned()] {
            assert_names_field(gateway.posted(&route, &[], &method).await, "/method", text);
        }
        let encoded = percent_encode_path(&name);
        let file = gateway
            .request(Method::PUT, &format!("{path}/files/{encoded}"))
            .body("x");
        assert_names_field(Answer::of(file).await, "path", text);
        // These must have the name of an existing object, so they are rejected without further rules.
        for body in [
            json!({ "agent": name }),
            json!({ "agent": agent, "mcpServers": [name] }),
        ] {
            let answer = create(body.clone()).await;
            assert!(
                matches!(answer.status.as_u16(), 400 | 404 | 422),
                "{body}: {answer:?}"
            );
            assert!(
                !has_unsafe(&answer.body["detail"].to_string()),
                "{answer:?}"
            );
        }
    }
    let all = gateway.get("/v1/sessions").await;
    assert_eq!(
        all["sessions"].as_array().expect("sessions").len(),
        1,
        "no rejected session remains: {all}"
    );
    let title = "Prüfe שלום 日本語 👨\u{200d}👩\u{200d}👧";
    let patched = gateway
        .request(Method::PATCH, &path)
        .json(&json!({ "title": title, "metadata": { title: "a\nb" } }));
    let patched = Answer::of(patched).await;
    assert_eq!(
        (patched.status, &patched.body["title"]),
        (StatusCode::OK, &json!(title))
    );
    assert_eq!(
        patched.body["metadata"][title], "a\nb",
        "values of metadata may have several lines"
    );
}

/// Reads the stderr of the session's process.
async fn stderr(gateway: &Gateway, session: &str, accept: Option<&str>) -> (String, String) {
    let mut request = gateway.request(Method::GET, &format!("/v1/sessions/{session}/stderr"));
    if let Some(accept) = accept {
        request = request.header(ACCEPT, accept);
    }
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK, "{accept:?}");
    let kind = response.headers()["content-type"]
        .to_str()
        .expect("ASCII")
        .to_owned();
    (kind, response.text().await.expect("a text"))
}

#[tokio::test]
async fn stderr_is_plain_text_unless_the_client_asks_for_the_raw_type() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let raw = "\u{1b}]2title\u{7}\u{1b}[31mred\u{1b}[0m\u{202e}end\0\u{9b}2J";
    gateway
        .turn(&session, &format!("stderr text={raw}; stderr text=next"))
        .await;
    eventually("both lines", std::time::Duration::from_secs(20), || async {
        let (_, text) = stderr(&gateway, &session, None).await;
        text.ends_with("next\n").then_some(())
    })
    .await;
    for accept in [
        None,
        Some("*/*"),
        Some("text/plain"),
        Some("text/*"),
        Some("text/plain, application/octet-stream"),
    ] {
        let (kind, text) = stderr(&gateway, &session, accept).await;
        assert_eq!(
            (&*kind, &*text),
            ("text/plain; charset=utf-8", "redend\nnext\n"),
            "{accept:?}"
        );
    }
    for accept in ["application/octet-stream", "*/*, application/octet-stream"] {
        let (kind, text) = stderr(&gateway, &session, Some(accept)).await;
        assert_eq!(
            (&*kind, text),
            ("application/octet-stream", format!("{raw}\nnext\n")),
            "{accept}"
        );
    }
    let request = gateway.request(Method::GET, &format!("/v1/sessions/{session}/stderr"));
    Answer::of(request.header(ACCEPT, "application/json"))
        .await
        .problem(406, "not_acceptable");
}

#[tokio::test]
async fn hostile_titles_of_an_agent_stay_raw_in_events_and_never_split_a_log_record() {
    let gateway = Setup::fake(&[])
        .settings("telemetry.log_filter = \"debug\"")
        .start();
    let session = gateway.session("fake").await;
    let hostile = serde_json::to_string(HOSTILE).expect("JSON");
    let update = |update: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"$SESSION","update":{update}}}}}"#
        )
    };
    let lines = [
        update(&format!(
            r#"{{"sessionUpdate":"session_info_update","title":{hostile}}}"#
        )),
        update(&format!(
            r#"{{"sessionUpdate":"tool_call","toolCallId":{hostile},"title":{hostile},"kind":{hostile}}}"#
        )),
        update(&format!(
            r#"{{"sessionUpdate":"available_commands_update","availableCommands":[{{"name":{hostile},"description":{hostile}}}]}}"#
        )),
        format!(r#"{{"jsonrpc":"2.0","method":{hostile},"params":{{"a":{hostile}}}}}"#),
        format!(r#"fail {{"code":-32603,"message":{hostile},"data":{{"details":{hostile}}}}}"#),
    ];
    let turn = gateway
        .turn(&session, &format!("raw {}", lines.join("\n")))
        .await;
    assert_eq!(turn["status"], "failed", "{turn}");
    let crashed = gateway
        .turn(
            &session,
            &format!("stderr text={}; crash", "\u{1b}[31mboom\u{202e}"),
        )
        .await;
    assert_eq!(crashed["status"], "failed", "{crashed}");

    let events = gateway.all_events(&session).await;
    let has = |pointer: &str| {
        events
            .iter()
            .any(|event| event.pointer(pointer) == Some(&json!(HOSTILE)))
    };
    for pointer in [
        "/update/title",
        "/update/availableCommands/0/name",
        "/method",
    ] {
        assert!(has(pointer), "{pointer}: {events:?}");
    }
    let log = gateway.log();
    let turns = log
        .lines()
        .filter(|line| line.contains("a turn failed"))
        .count();
    assert_eq!(turns, 2, "{log}");
    for line in log.lines() {
        let record: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(
            record["timestamp"].is_string() && record["target"].is_string(),
            "{line}"
        );
        assert_ne!(record["message"], "forged", "{line}");
        assert!(!has_unsafe(line), "{line:?}");
        for value in record
            .as_object()
            .expect("an object")
            .values()
            .filter_map(Value::as_str)
        {
            assert!(!has_unsafe(value), "{line}");
        }
    }
}
