//! The rules of the transport: statuses, headers and the order of messages.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::raw::{Acp, initialize, request};
use crate::support::gateway::KEY;
use crate::support::places::fake_agent;
use crate::support::{Gateway, Setup};

async fn post_text(
    gateway: &Gateway,
    connection: Option<&str>,
    kind: &str,
    body: &str,
) -> (StatusCode, Value) {
    let mut post = request(gateway, Method::POST, KEY)
        .header("content-type", kind)
        .body(body.to_owned());
    if let Some(connection) = connection {
        post = post.header("acp-connection-id", connection);
    }
    let response = post.send().await.expect("a response");
    (response.status(), response.json().await.unwrap_or_default())
}

#[tokio::test]
async fn posts_are_checked_before_their_message_is_handled() {
    let gateway = Setup::fake(&[])
        .settings("server.max_prompt_bytes = \"8KiB\"")
        .start();
    let acp = Acp::open(&gateway).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}"#;
    let known = Some(acp.id.as_str());
    let json = "application/json";
    for (connection, kind, body, status, code) in [
        (known, "text/plain", call, 415, -32600),
        (known, json, "{", 400, -32700),
        (known, json, "[]", 400, -32600),
        (
            known,
            json,
            r#"[{"jsonrpc":"2.0","method":"x"}]"#,
            400,
            -32600,
        ),
        (
            known,
            json,
            r#"{"id":1,"id":2,"method":"session/list"}"#,
            400,
            -32700,
        ),
        (None, json, call, 400, -32600),
        (
            Some("01938c5e-7a3b-7c4d-8e5f-0123456789ab"),
            json,
            call,
            404,
            -32600,
        ),
        (
            known,
            json,
            &initialize(7, &json!({})).to_string(),
            400,
            -32600,
        ),
    ] {
        let (got, error) = post_text(&gateway, connection, kind, body).await;
        assert_eq!(
            (got.as_u16(), &error["error"]["code"]),
            (status, &json!(code)),
            "{body} {error}"
        );
        assert!(
            error["id"].is_null() && error["jsonrpc"] == "2.0",
            "{error}"
        );
    }
    let (status, _) = post_text(&gateway, known, "application/json; charset=utf-8", call).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    // The session of the header must be that of the message.
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "a" } });
    for (header, status) in [("a", StatusCode::ACCEPTED), ("b", StatusCode::BAD_REQUEST)] {
        let response = acp
            .head(Method::POST)
            .header("acp-session-id", header)
            .json(&cancel)
            .send()
            .await;
        assert_eq!(response.expect("a response").status(), status, "{header}");
    }
    let large = format!(
        r#"{{"jsonrpc":"2.0","method":"x","params":{{"a":"{}"}}}}"#,
        "x".repeat(9 << 10)
    );
    assert_eq!(
        post_text(&gateway, known, json, &large).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
}

#[tokio::test]
async fn streams_need_accept_and_a_known_connection() {
    let gateway = Setup::fake(&[]).start();
    let acp = Acp::open(&gateway).await;
    let get = |accept: &str| acp.head(Method::GET).header("accept", accept).send();
    assert_eq!(
        get("application/json").await.expect("a response").status(),
        StatusCode::NOT_ACCEPTABLE
    );
    assert_eq!(
        get("text/event-stream").await.expect("a response").status(),
        StatusCode::OK
    );
    let nameless = request(&gateway, Method::GET, KEY)
        .header("accept", "text/event-stream")
        .send()
        .await;
    assert_eq!(
        nameless.expect("a response").status(),
        StatusCode::BAD_REQUEST
    );
    let put = acp.head(Method::PUT).send().await.expect("a response");
    assert_eq!(put.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn delete_ends_the_streams_and_no_turn() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let (session, mut messages) = acp.session().await;
    acp.prompt(&session, "slow chunks=10 ms=100").await;
    messages
        .until(|message| message["method"] == "session/update")
        .await;
    assert_eq!(
        acp.head(Method::DELETE)
            .send()
            .await
            .expect("a response")
            .status(),
        StatusCode::ACCEPTED
    );
    while messages.try_next().await.is_some() {}
    assert_eq!(
        acp.head(Method::DELETE)
            .send()
            .await
            .expect("a response")
            .status(),
        StatusCode::NOT_FOUND
    );
    let prompt = gateway
        .http
        .get(format!("{}/v1/sessions/{session}/prompts/p1", gateway.url))
        .bearer_auth(KEY);
    let prompt: Value = prompt
        .header("prefer", "wait=20")
        .send()
        .await
        .expect("it")
        .json()
        .await
        .expect("JSON");
    assert_eq!(
        (&prompt["status"], &prompt["stopReason"]),
        (&json!("completed"), &json!("end_turn")),
        "{prompt}"
    );
}

#[tokio::test]
async fn requests_without_a_valid_key_open_nothing() {
    let gateway = Setup::fake(&[]).start();
    for key in ["", "wrong"] {
        let response = request(&gateway, Method::POST, key)
            .json(&initialize(0, &json!({})))
            .send()
            .await;
        let response = response.expect("a response");
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert!(response.headers().contains_key("www-authenticate"));
    }
    assert!(gateway.agents_alive().is_empty());
}

#[tokio::test]
async fn connections_are_invisible_to_other_principals() {
    let gateway = Setup::fake(&[]).start();
    let acp = Acp::open(&gateway).await;
    let other = crate::key_life::user_key(&gateway, "other", "read,prompt").await;
    let mine = request(&gateway, Method::DELETE, &other)
        .header("acp-connection-id", &acp.id)
        .send()
        .await;
    assert_eq!(mine.expect("a response").status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn agent_is_named_in_the_url_if_there_are_several() {
    let fake = fake_agent();
    let gateway = Setup::fake(&[]).agent("second", fake, &[], "").start();
    let open = async |path: &str| {
        let post = gateway
            .http
            .post(format!("{}{path}", gateway.url))
            .bearer_auth(KEY);
        let response = post
            .json(&initialize(0, &json!({})))
            .send()
            .await
            .expect("a response");
        assert_eq!(response.status(), StatusCode::OK);
        response.json::<Value>().await.expect("JSON")
    };
    for path in ["/acp/second", "/acp?agent=second"] {
        assert_eq!(
            open(path).await["result"]["_meta"]["acp-gateway"]["agent"],
            "second",
            "{path}"
        );
    }
    for path in ["/acp", "/acp/third"] {
        let error = open(path).await["error"].clone();
        let message = error["message"].as_str().expect("a text");
        assert!(
            error["code"] == -32602 && message.contains("fake, second"),
            "{path}: {error}"
        );
    }
}

#[tokio::test]
async fn internal_error_is_in_the_log_with_the_id_of_its_request() {
    let gateway = Setup::fake(&[]).start();
    let folders = gateway.path("data/workspaces");
    std::fs::remove_dir(&folders).expect("it is empty");
    std::fs::write(&folders, "no folder can be made in it").expect("the place is free");
    let acp = Acp::open(&gateway).await;
    let mut messages = acp.stream(None, None).await;
    let new = json!({ "jsonrpc": "2.0", "id": 7, "method": "session/new",
        "params": { "cwd": "", "mcpServers": [] } });
    let sent = acp
        .head(Method::POST)
        .header("x-request-id", "find-me.2")
        .json(&new)
        .send()
        .await
        .expect("an answer");
    assert_eq!(sent.status(), 202);
    let response = messages.response(7).await;
    assert_eq!(response["error"]["code"], -32603, "{response}");
    assert_eq!(response["error"]["data"]["code"], "internal", "{response}");
    let log = gateway.log();
    let own = log
        .lines()
        .filter(|line| line.contains("the response to a message") && line.contains("find-me.2"));
    assert_eq!(own.count(), 1, "{log}");
}
