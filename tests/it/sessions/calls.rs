//! Methods of the agent that clients call by name.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Setup, eventually};

async fn fake(args: &[&str]) -> (Gateway, String) {
    let mut all = vec!["--log", "received", "--state", "state"];
    all.extend(args);
    let setup = Setup::fake_with(
        &all,
        "rpc = [\"_vendor/*\", \"session/unknown\"]\nmeta = [\"x\"]",
    );
    let gateway = setup.settings("testing.min_backoff = \"10ms\"").start();
    let session = gateway.session("fake").await;
    (gateway, session)
}

async fn call(gateway: &Gateway, session: &str, body: &Value) -> Answer {
    gateway
        .posted(&format!("/v1/sessions/{session}/rpc"), &[], body)
        .await
}

fn received(gateway: &Gateway, part: &str) -> Vec<Value> {
    let lines = std::fs::read_to_string(gateway.path("data/homes/default/fake/received"));
    let lines = lines.expect("the agent's own record");
    let fits = lines.lines().filter(|line| line.contains(part));
    fits.map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[tokio::test]
async fn a_listed_method_gets_the_agents_id_and_its_answer_ours() {
    let (gateway, session) = fake(&[]).await;
    let theirs = received(&gateway, "session/new");
    assert_eq!(theirs.len(), 1);
    let body = format!(
        "{{\"method\":\"_vendor/echo\",\"params\":{{\"n\":1.10,\n\"s\":\"\\ud800\",\"sessionId\":\"{session}\"}}}}"
    );
    let request = gateway.request(Method::POST, &format!("/v1/sessions/{session}/rpc"));
    let response = request
        .header("Content-Type", "application/json")
        .body(body)
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    let text = response.text().await.expect("a body");
    assert!(
        text.contains("\"n\":1.10, \"s\":\"\\ud800\""),
        "byte for byte: {text}"
    );
    let answer = call(&gateway, &session, &json!({ "method": "_vendor/echo" })).await;
    let agents_own = &answer.body["result"]["params"]["sessionId"];
    assert!(
        agents_own
            .as_str()
            .is_some_and(|id| id.starts_with("fake-")),
        "it was put there: {answer:?}"
    );
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn notification_is_sent_without_a_response() {
    let (gateway, session) = fake(&[]).await;
    let answer = call(
        &gateway,
        &session,
        &json!({ "method": "_vendor/note", "params": { "a": 1 }, "notify": true }),
    )
    .await;
    assert_eq!(
        (answer.status, &answer.body),
        (StatusCode::ACCEPTED, &Value::Null)
    );
    eventually("the agent has it", Duration::from_secs(30), || async {
        received(&gateway, "_vendor/note")
            .pop()
            .filter(|line| line.get("id").is_none())
    })
    .await;
}

#[tokio::test]
async fn unlisted_methods_and_forbidden_params_are_rejected() {
    let (gateway, session) = fake(&[]).await;
    for (body, status, code, pointer) in [
        (json!({ "method": "other/thing" }), 403, "forbidden", None),
        (
            json!({ "method": "session/prompt", "params": {} }),
            403,
            "forbidden",
            None,
        ),
        (
            json!({ "method": "session/set_model", "params": {} }),
            403,
            "forbidden",
            None,
        ),
        (
            json!({ "method": "_vendor/echo", "params": { "mcpServers": [{}] } }),
            403,
            "forbidden",
            None,
        ),
        (
            json!({ "method": "_vendor/echo", "params": { "_meta": { "y": 1 } } }),
            422,
            "invalid",
            Some("/params/_meta/y"),
        ),
        (
            json!({ "method": "_vendor/echo", "params": [] }),
            422,
            "invalid",
            Some("/params"),
        ),
        (
            json!({ "method": "_vendor/echo", "params": { "sessionId": "theirs" } }),
            422,
            "invalid",
            Some("/params/sessionId"),
        ),
        (
            json!({ "method": "_vendor/echo", "more": 1 }),
            422,
            "invalid",
            Some("/more"),
        ),
    ] {
        let problem = call(&gateway, &session, &body).await.problem(status, code);
        if let Some(pointer) = pointer {
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        }
    }
    let passes = json!({ "method": "_vendor/echo", "params": { "_meta": { "x": 1 } } });
    assert_eq!(
        call(&gateway, &session, &passes).await.status,
        StatusCode::OK
    );
    let problem = call(&gateway, &session, &json!({ "method": "session/unknown" })).await;
    assert_eq!(
        problem.problem(501, "agent_unsupported")["acp"]["code"],
        -32601
    );
    let problem = call(&gateway, &session, &json!({ "method": "_vendor/fail" }))
        .await
        .problem(502, "agent_error");
    assert_eq!(problem["acp"]["code"], -32050);
    let key = crate::key_life::key(&gateway, "prompter", "read,prompt").await;
    let request = gateway
        .http
        .post(format!("{}/v1/sessions/{session}/rpc", gateway.url))
        .bearer_auth(key);
    Answer::of(request.json(&passes))
        .await
        .problem(403, "forbidden");
}

#[tokio::test]
async fn agents_with_models_accept_set_model_without_a_list() {
    let (gateway, session) = fake(&["--models"]).await;
    let body = json!({ "method": "session/set_model", "params": { "modelId": "large" } });
    let answer = call(&gateway, &session, &body).await;
    assert_eq!(
        (answer.status, &answer.body),
        (StatusCode::OK, &json!({ "result": {} }))
    );
    gateway.turn(&session, "crash").await;
    let answer = call(&gateway, &session, &body).await;
    assert_eq!(
        answer.status,
        StatusCode::OK,
        "it gets a process as a mode does: {answer:?}"
    );
    assert_eq!(received(&gateway, "session/set_model").len(), 2);
    assert_eq!(
        received(&gateway, "session/set_model")[1]["params"]["modelId"],
        "large"
    );
}

#[tokio::test]
async fn slow_set_up_is_cancelled_by_its_id() {
    let setup = Setup::fake(&["--log", "received", "--hang-new"]);
    let gateway = setup
        .settings("timeouts.session_new_timeout = \"5s\"")
        .start();
    gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "fake" }))
        .await
        .problem(504, "agent_timeout");
    let asked = received(&gateway, "session/new")
        .pop()
        .expect("it was asked");
    let cancel = eventually(
        "the agent receives the cancel",
        Duration::from_secs(30),
        || async { received(&gateway, "$/cancel_request").pop() },
    )
    .await;
    assert_eq!(cancel["params"], json!({ "requestId": asked["id"] }));
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn agent_receives_the_withdrawal_of_a_call() {
    let setup = Setup::fake_with(&["--log", "received"], "rpc = [\"_vendor/*\"]");
    let gateway = setup
        .settings("timeouts.session_new_timeout = \"5s\"")
        .start();
    let session = gateway.session("fake").await;
    let began = Instant::now();
    call(&gateway, &session, &json!({ "method": "_vendor/hang" }))
        .await
        .problem(504, "agent_timeout");
    assert!(began.elapsed() < Duration::from_secs(30));
    let asked = received(&gateway, "_vendor/hang")
        .pop()
        .expect("it was asked");
    let cancel = eventually(
        "the agent receives the cancel",
        Duration::from_secs(30),
        || async { received(&gateway, "$/cancel_request").pop() },
    )
    .await;
    assert_eq!(cancel["params"], json!({ "requestId": asked["id"] }));
    assert!(cancel.get("id").is_none(), "{cancel}");
    assert_eq!(gateway.turn(&session, "echo on").await["text"], "on");
    let late = gateway.lawful(&session).await;
    assert!(
        late.iter()
            .all(|event| event["type"] != "agent.invalid_output"),
        "{late:#?}"
    );
}
