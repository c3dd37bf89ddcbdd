//! Methods of an agent by name.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::key_life::{by, key};
use crate::support::{Answer, Setup, eventually};

const RPC: &str = "/v1/agents/fake/rpc";
const LISTED: &str = "rpc = [\"_vendor/*\", \"providers/list\"]\nmeta = [\"vendor.example/x\"]";

#[tokio::test]
async fn listed_method_passes_params_and_result_raw() {
    let gateway = Setup::fake_with(&[], LISTED).start();
    let body = r#"{"method":"_vendor/echo","params":{"a": 1.10,
        "_meta":{"vendor.example/x":true}}}"#;
    let request = gateway
        .request(Method::POST, RPC)
        .header("content-type", "application/json")
        .body(body);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    let text = response.text().await.expect("text");
    let result =
        r#"{"result":{"params":{"a": 1.10,         "_meta":{"vendor.example/x":true}},"n":1.10}}"#;
    assert_eq!(text, result);
    let (status, body) = gateway
        .post(RPC, &json!({ "method": "_vendor/echo" }))
        .await;
    assert_eq!(
        (status, &body["result"]["params"]),
        (StatusCode::OK, &json!({}))
    );
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = gateway
        .posted(
            RPC,
            &[("traceparent", parent)],
            &json!({ "method": "_vendor/echo" }),
        )
        .await;
    assert_eq!(
        traced.body["result"]["params"],
        json!({ "_meta": { "traceparent": parent } })
    );
}

#[tokio::test]
async fn errors_of_the_agent_are_reported_completely() {
    let gateway = Setup::fake_with(&[], LISTED).start();
    let failed = gateway
        .posted(RPC, &[], &json!({ "method": "_vendor/fail" }))
        .await;
    let acp = json!({ "code": -32050, "message": "no luck", "data": { "why": 1.1 } });
    assert_eq!(failed.problem(502, "agent_error")["acp"], acp);
    gateway
        .posted(RPC, &[], &json!({ "method": "providers/list" }))
        .await
        .problem(501, "agent_unsupported");
}

#[tokio::test]
async fn unlisted_and_routed_methods_are_forbidden() {
    let gateway = Setup::fake_with(&[], LISTED).start();
    for method in [
        "session/set_model",
        "providers/set",
        "_vendor/",
        "_other/x",
        "initialize",
        "session/prompt",
        "$/cancel_request",
        "",
    ] {
        gateway
            .posted(RPC, &[], &json!({ "method": method }))
            .await
            .problem(403, "forbidden");
    }
    let call = |params: Value| json!({ "method": "_vendor/echo", "params": params });
    let servers =
        json!({ "mcpServers": [{ "name": "x", "command": "/bin/sh", "args": [], "env": [] }] });
    gateway
        .posted(RPC, &[], &call(servers))
        .await
        .problem(403, "forbidden");
    for (params, pointer) in [
        (
            json!({ "_meta": { "claudeCode/options": {} } }),
            "/params/_meta/claudeCode~1options",
        ),
        (json!({ "_meta": [] }), "/params/_meta"),
        (json!([1]), "/params"),
    ] {
        let problem = gateway
            .posted(RPC, &[], &call(params))
            .await
            .problem(422, "invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
    gateway
        .posted(RPC, &[], &json!({ "method": "_vendor/echo", "x": 1 }))
        .await
        .problem(422, "invalid");
    let key = key(&gateway, "most", "read,prompt,approve,files").await;
    let request = by(&gateway, &key, Method::POST, RPC).json(&json!({ "method": "_vendor/echo" }));
    Answer::of(request).await.problem(403, "forbidden");
    assert_eq!(
        gateway.get("/v1/agents/fake").await["pool"]["processes"],
        0,
        "none was started for it"
    );
}

#[tokio::test]
async fn request_without_a_session_is_not_offered() {
    let gateway = Setup::fake_with(&[], LISTED).start();
    let (status, body) = gateway.post(RPC, &json!({ "method": "_vendor/ask" })).await;
    let answers =
        json!([{ "action": "cancel" }, { "outcome": { "outcome": "cancelled" } }, -32601]);
    assert_eq!((status, &body["result"]), (StatusCode::OK, &answers));
}

#[tokio::test]
async fn a_notification_is_sent_and_not_waited_for() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let args = ["--log", log.path().to_str().expect("text")];
    let gateway = Setup::fake_with(&args, LISTED).start();
    let note = json!({ "method": "_vendor/note", "params": { "n": 7 }, "notify": true });
    let answer = gateway.posted(RPC, &[], &note).await;
    assert_eq!(
        (answer.status, answer.body),
        (StatusCode::ACCEPTED, Value::Null)
    );
    eventually("the agent got it", Duration::from_secs(10), || async {
        let messages = std::fs::read_to_string(log.path()).expect("it is ours");
        messages
            .contains(r#"{"jsonrpc":"2.0","method":"_vendor/note","params":{"n":7}}"#)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn abandoned_call_is_cancelled_and_its_process_stops() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let args = ["--log", log.path().to_str().expect("text")];
    let gateway = Setup::fake_with(
        &args,
        &format!("{LISTED}\npool = {{ max_size = 1, min_idle = 0 }}"),
    )
    .start();
    let hang = json!({ "method": "_vendor/hang" });
    let request = gateway.request(Method::POST, RPC).json(&hang);
    let asked = || async {
        let messages = std::fs::read_to_string(log.path()).expect("it is ours");
        messages.contains("_vendor/hang").then_some(())
    };
    tokio::select! {
        biased;
        () = eventually("the agent is asked", Duration::from_secs(30), asked) => {}
        answer = request.send() => panic!("no response arrives: {answer:?}"),
    }
    eventually(
        "the agent received the cancel",
        Duration::from_secs(10),
        || async {
            let messages = std::fs::read_to_string(log.path()).expect("it is ours");
            messages
                .contains(r#""method":"$/cancel_request","params":{"requestId":"#)
                .then_some(())
        },
    )
    .await;
    gateway.none_alive().await;
    assert_eq!(
        gateway
            .post(RPC, &json!({ "method": "_vendor/echo" }))
            .await
            .0,
        StatusCode::OK,
        "no lease leaked"
    );
}

#[tokio::test]
async fn a_call_has_a_deadline() {
    let gateway = Setup::fake_with(&[], LISTED)
        .settings("testing.call_timeout = \"300ms\"")
        .start();
    gateway
        .posted(RPC, &[], &json!({ "method": "_vendor/hang" }))
        .await
        .problem(504, "agent_timeout");
    gateway.none_alive().await;
}
