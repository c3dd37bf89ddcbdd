//! The access log, and the fields that name a line's request, session, prompt and agent.

use reqwest::header::CONTENT_LENGTH;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::gateway::KEY;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Gateway, Setup, chat_turns};

const DEBUG: &str = "telemetry.log_filter = \"debug\"";

impl Gateway {
    fn log_records(&self) -> Vec<Value> {
        let log = self.log();
        let record = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        // The gateway may be writing the last line.
        let complete = log.rsplit_once('\n').map_or("", |(lines, _)| lines);
        complete.lines().map(record).collect()
    }

    /// The records with this message.
    fn records_of(&self, message: &str) -> Vec<Value> {
        let mut records = self.log_records();
        records.retain(|record| record["message"] == message);
        records
    }

    /// The only record of the access log about a request.
    fn access(&self, request_id: &str) -> Value {
        let mut records = self.records_of("responded");
        records.retain(|record| record["request_id"] == request_id);
        let [record] = &records[..] else {
            panic!("{request_id}: {records:?}\n{}", self.log())
        };
        let target = record["target"].as_str().expect("a target");
        assert!(target.ends_with("::access"), "{record}");
        record.clone()
    }

    async fn sent(&self, id: &str, method: Method, path: &str, body: &Value) -> Sent {
        let mut request = self.request(method, path).header("x-request-id", id);
        if !body.is_null() {
            request = request.json(body);
        }
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.map(|length| length.to_str().expect("ASCII").parse().expect("a size"));
        let session = response.headers().get("x-acp-session-id");
        let session = session.map(|session| session.to_str().expect("ASCII").to_owned());
        Sent {
            status,
            length,
            session,
            connection: response.headers().get("acp-connection-id").cloned(),
            body: response.text().await.expect("a body"),
        }
    }
}

struct Sent {
    status: StatusCode,
    length: Option<u64>,
    session: Option<String>,
    connection: Option<reqwest::header::HeaderValue>,
    body: String,
}

/// The fields that are equal for each run.
fn facts(record: &Value) -> Value {
    let names = [
        "level",
        "method",
        "route",
        "status",
        "protocol",
        "principal",
        "session",
    ];
    let facts = names.map(|name| (name.to_owned(), record[name].clone()));
    Value::Object(facts.into_iter().collect())
}

#[tokio::test]
async fn each_response_of_rest_has_one_record_with_its_route() {
    let gateway = Setup::fake(&[]).settings(DEBUG).start();
    let body = json!({ "agent": "fake" });
    let created = gateway
        .sent("create", Method::POST, "/v1/sessions", &body)
        .await;
    let session: Value = serde_json::from_str(&created.body).expect("JSON");
    let session = session["sessionId"].as_str().expect("an id");
    let path = format!("/v1/sessions/{session}");
    gateway.sent("read", Method::GET, &path, &Value::Null).await;
    let missing = format!("{path}/prompts/p7");
    gateway
        .sent("missing", Method::GET, &missing, &Value::Null)
        .await;
    gateway
        .sent("nowhere", Method::GET, "/nowhere/secret", &Value::Null)
        .await;
    gateway
        .sent("ready", Method::GET, "/readyz", &Value::Null)
        .await;
    for (id, level, method, route, status, session) in [
        ("create", "INFO", "POST", "/v1/sessions", 201, Some(session)),
        (
            "read",
            "DEBUG",
            "GET",
            "/v1/sessions/{session}",
            200,
            Some(session),
        ),
        (
            "missing",
            "INFO",
            "GET",
            "/v1/sessions/{session}/prompts/{prompt}",
            404,
            Some(session),
        ),
        ("nowhere", "INFO", "GET", "-", 404, None),
        ("ready", "DEBUG", "GET", "/readyz", 200, None),
    ] {
        let record = gateway.access(id);
        let expected = json!({
            "level": level, "method": method, "route": route, "status": status, "protocol": "HTTP/1.1",
            "principal": record["principal"], "session": session,
        });
        assert_eq!(facts(&record), expected, "{record}");
        assert!(record["duration_ms"].is_f64(), "{record}");
    }
    let record = gateway.access("create");
    let bytes = (
        record["request_bytes"].as_u64(),
        record["response_bytes"].as_u64(),
    );
    assert_eq!(
        bytes,
        (Some(body.to_string().len() as u64), created.length),
        "{record}"
    );
    assert_eq!(record["principal"], "owner", "{record}");
    assert!(
        !gateway.log().contains("nowhere/secret"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn reads_and_rejected_requests_are_not_in_the_log_by_default() {
    let gateway = Setup::fake(&[]).start();
    gateway
        .sent("read", Method::GET, "/v1/sessions", &Value::Null)
        .await;
    for id in ["stranger", "other"] {
        let request = gateway.http.post(format!("{}/v1/sessions", gateway.url));
        let request = request.header("x-request-id", id).bearer_auth("not a key");
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }
    let body = json!({ "agent": "fake" });
    gateway
        .sent("change", Method::POST, "/v1/sessions", &body)
        .await;
    let records = gateway.records_of("responded");
    let [record] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!(record["request_id"], "change");
}

#[tokio::test]
async fn requests_above_the_rate_do_not_fill_the_log() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_requests_per_minute = 3")
        .start();
    let nowhere = "/v1/sessions/00000000-0000-7000-8000-000000000000";
    for number in 0..20 {
        let id = format!("r.{number}");
        gateway
            .sent(&id, Method::DELETE, nowhere, &Value::Null)
            .await;
    }
    let records = gateway.records_of("responded");
    assert!((3..10).contains(&records.len()), "{records:?}");
    assert!(
        records.iter().all(|record| record["status"] == 404),
        "{records:?}"
    );
}

#[tokio::test]
async fn each_chat_protocol_names_the_session_of_its_turn() {
    let gateway = Setup::fake(&[]).settings(DEBUG).start();
    for (at, (path, body)) in chat_turns().iter().enumerate() {
        let id = format!("chat.{at}");
        let sent = gateway.sent(&id, Method::POST, path, body).await;
        assert_eq!(sent.status, 200, "{}", sent.body);
        let record = gateway.access(&id);
        let route = path.replace("/fake", "/{agent}");
        let expected = json!({
            "level": "INFO", "method": "POST", "route": route, "status": 200, "protocol": "HTTP/1.1",
            "principal": "owner", "session": sent.session.expect("a session"),
        });
        assert_eq!(facts(&record), expected, "{record}");
        let invalid = format!("invalid.{at}");
        let sent = gateway.sent(&invalid, Method::POST, path, &json!([])).await;
        assert!(sent.status.is_client_error(), "{}", sent.body);
        let record = gateway.access(&invalid);
        assert_eq!(
            (&record["level"], &record["route"]),
            (&json!("INFO"), &json!(route))
        );
    }
    for (id, path, route) in [
        (
            "models",
            "/openai/v1/models/fake",
            "/openai/v1/models/{*model}",
        ),
        ("run", "/ag-ui/fake", "/ag-ui/{agent}"),
        (
            "resume",
            "/ai-sdk/fake/nothing/stream",
            "/ai-sdk/{agent}/{chat}/stream",
        ),
    ] {
        gateway.sent(id, Method::GET, path, &Value::Null).await;
        let record = gateway.access(id);
        assert_eq!(
            (&record["level"], &record["route"]),
            (&json!("DEBUG"), &json!(route))
        );
    }
}

#[tokio::test]
async fn a_message_at_acp_names_its_session() {
    let gateway = Setup::fake(&[]).settings(DEBUG).start();
    let session = gateway.session("fake").await;
    let message = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let initialize = message("initialize", json!({ "protocolVersion": 1 }));
    let opened = gateway
        .sent("open", Method::POST, "/acp/fake", &initialize)
        .await;
    let record = gateway.access("open");
    assert_eq!(
        (&record["level"], &record["route"]),
        (&json!("INFO"), &json!("/acp/{agent}"))
    );
    let load = json!({ "sessionId": session, "cwd": "", "mcpServers": [] });
    let request = gateway
        .request(Method::POST, "/acp")
        .header("x-request-id", "load")
        .header(
            "acp-connection-id",
            opened.connection.expect("a connection"),
        );
    let loaded = request
        .json(&message("session/load", load))
        .send()
        .await
        .expect("an answer");
    assert_eq!(loaded.status(), StatusCode::ACCEPTED);
    let record = gateway.access("load");
    assert_eq!(
        (&record["route"], &record["session"]),
        (&json!("/acp"), &json!(session))
    );
    gateway
        .sent("read", Method::GET, "/acp", &Value::Null)
        .await;
    assert_eq!(gateway.access("read")["status"], 406);
}

#[tokio::test]
async fn failed_turn_names_its_request_session_prompt_and_agent() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/prompts");
    for (id, text) in [("first", "hang"), ("second", "crash")] {
        let body = json!({ "prompt": text, "queue": true });
        gateway.sent(id, Method::POST, &path, &body).await;
    }
    // A request that ends a turn is not the request of the turn.
    let cancel = format!("{path}/p1/cancel");
    gateway
        .sent("cancel", Method::POST, &cancel, &Value::Null)
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "prompt.failed")
        .await;
    for (message, request, prompt) in [
        ("a cancelled turn ended", "first", "p1"),
        ("a turn failed", "second", "p2"),
    ] {
        let records = gateway.records_of(message);
        let [record] = &records[..] else {
            panic!("{message}: {}", gateway.log())
        };
        assert_eq!(record["request_id"], request, "{record}");
        assert_eq!(record["session"], session, "{record}");
        assert_eq!(record["prompt"], prompt, "{record}");
        assert_eq!(record["agent"], "fake", "{record}");
        assert_eq!(record["principal"], "owner", "{record}");
    }
}

#[tokio::test]
async fn line_about_a_process_names_its_agent_and_process_id() {
    let gateway = Setup::fake(&[]).settings(DEBUG).start();
    let session = gateway.session("fake").await;
    let pid = gateway.turn(&session, "pid").await["text"].clone();
    gateway.turn(&session, "raw not JSON").await;
    let records = gateway.records_of("invalid JSON-RPC line from the agent");
    let [record] = &records[..] else {
        panic!("{}", gateway.log())
    };
    assert_eq!(record["agent"], "fake", "{record}");
    assert_eq!(format!("pid={}", record["pid"]), pid, "{record}");
    // The process serves other sessions and requests.
    assert_eq!(
        (&record["session"], &record["request_id"]),
        (&json!(null), &json!(null))
    );
}

/// Sends a GET over HTTP/2 without TLS. Returns the status.
async fn over_http2(url: &str, id: &str) -> StatusCode {
    let host = url.split('/').nth(2).expect("a host");
    let socket = tokio::net::TcpStream::connect(host)
        .await
        .expect("it listens");
    let (client, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
    let request = http::Request::get(url).header("x-request-id", id).body(());
    let mut client = client.ready().await.expect("it is open");
    let (response, _) = client
        .send_request(request.expect("a request"), true)
        .expect("it is sent");
    tokio::select! {
        ended = connection => panic!("{ended:?}"),
        response = response => response.expect("an answer").status(),
    }
}

#[tokio::test]
async fn ticket_of_a_query_is_in_no_line() {
    let gateway = Setup::fake(&[])
        .settings("telemetry.log_filter = \"trace\"")
        .start();
    let path = "/v1/events";
    let body = json!({ "paths": [path] });
    let (status, ticket) = gateway.post("/v1/tickets", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{ticket}");
    let ticket = ticket["ticket"].as_str().expect("a ticket");
    let url = |ticket: &str| format!("{}{path}?follow=false&ticket={ticket}", gateway.url);
    for (ticket, status) in [(ticket, 200), ("wrong-secret", 401)] {
        let id = format!("one.{status}");
        let request = gateway.http.get(url(ticket)).header("x-request-id", &id);
        assert_eq!(request.send().await.expect("an answer").status(), status);
        assert_eq!(gateway.access(&id)["route"], path);
        let id = format!("two.{status}");
        assert_eq!(over_http2(&url(ticket), &id).await, status);
        let record = gateway.access(&id);
        assert_eq!(
            (&record["route"], &record["protocol"]),
            (&json!(path), &json!("HTTP/2.0"))
        );
    }
    let log = gateway.log();
    assert!(log.contains("\"level\":\"TRACE\""), "{log}");
    for secret in [ticket, "wrong-secret", "ticket=", KEY] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[tokio::test]
async fn request_whose_client_disconnects_has_a_record() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let host = gateway.address();
    let body = json!({ "prompt": "hang" }).to_string();
    let request = format!(
        "POST /v1/sessions/{session}/prompts HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\nprefer: wait=60\r\nx-request-id: gone\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = tokio::net::TcpStream::connect(host)
        .await
        .expect("it listens");
    socket
        .write_all(request.as_bytes())
        .await
        .expect("it is open");
    gateway
        .log_until(&session, |event| event["type"] == "prompt.started")
        .await;
    drop(socket);
    let record = eventually("the record is written", LONGEST, || async {
        let records = gateway.records_of("ended without a response");
        records.first().cloned()
    })
    .await;
    assert_eq!(
        (&record["request_id"], &record["status"], &record["session"]),
        (&json!("gone"), &json!(499), &json!(session))
    );
}
