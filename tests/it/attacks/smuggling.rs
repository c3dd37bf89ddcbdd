//! Requests that two parsers read differently. A proxy in front of the gateway could forward the rest of such a request
//! as part of another client's connection.

use std::time::Duration;

use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::gateway::KEY;
use crate::support::{Gateway, Setup};

const PATIENCE: Duration = Duration::from_secs(10);

/// A complete request that creates a session. Only a parser that is wrong about the request before it runs it.
fn hidden(gateway: &Gateway) -> String {
    let body = r#"{"agent":"fake"}"#;
    let host = gateway.address();
    format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The responses of a connection until the gateway closes it, or for `limit`.
async fn responses(gateway: &Gateway, bytes: &[u8], limit: Duration) -> (Vec<String>, bool) {
    let mut stream = TcpStream::connect(gateway.address())
        .await
        .expect("it listens");
    // The gateway can close the connection before it has read everything.
    drop(stream.write_all(bytes).await);
    let mut received = Vec::new();
    let closed = timeout(limit, stream.read_to_end(&mut received))
        .await
        .is_ok();
    let text = String::from_utf8_lossy(&received).into_owned();
    let heads = text.lines().filter_map(|line| line.strip_prefix("HTTP/1."));
    (heads.map(|head| head[2..5].to_owned()).collect(), closed)
}

#[tokio::test]
async fn ambiguous_requests_are_rejected_and_run_nothing() {
    let gateway = Setup::fake(&[]).start();
    let host = gateway.address();
    let hidden = hidden(&gateway);
    let head = |fields: &str| {
        format!(
            "POST /v1/tickets HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\
             content-type: application/json\r\n{fields}\r\n"
        )
    };
    let length = 5 + hidden.len();
    for (fields, body) in [
        (
            format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
            "0\r\n\r\n",
        ),
        (
            "transfer-encoding: chunked\r\ncontent-length: 4\r\n".to_owned(),
            "0\r\n\r\n",
        ),
        (
            "content-length: 2\r\ncontent-length: 3\r\n".to_owned(),
            "{}",
        ),
        ("content-length: 2, 2\r\n".to_owned(), "{}"),
        ("content-length: +2\r\n".to_owned(), "{}"),
        ("content-length: -2\r\n".to_owned(), "{}"),
        ("content-length: 0x2\r\n".to_owned(), "{}"),
        ("content-length: 2 2\r\n".to_owned(), "{}"),
        ("content-length: 18446744073709551618\r\n".to_owned(), "{}"),
        ("transfer-encoding: identity\r\n".to_owned(), "0\r\n\r\n"),
        (
            "transfer-encoding: chunked, identity\r\n".to_owned(),
            "0\r\n\r\n",
        ),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n".to_owned(),
            "0\r\n\r\n",
        ),
        ("transfer-encoding: xchunked\r\n".to_owned(), "0\r\n\r\n"),
        ("transfer-encoding: \"chunked\"\r\n".to_owned(), "0\r\n\r\n"),
        ("transfer-encoding : chunked\r\n".to_owned(), "0\r\n\r\n"),
        ("transfer-encoding:\r\n chunked\r\n".to_owned(), "0\r\n\r\n"),
        (
            "transfer-encoding: \u{b}chunked\r\n".to_owned(),
            "0\r\n\r\n",
        ),
        (
            "transfer-encoding: chunked\r\n".to_owned(),
            "10000000000000002\r\n{}\r\n0\r\n\r\n",
        ),
        (
            "transfer-encoding: chunked\r\n".to_owned(),
            "-2\r\n{}\r\n0\r\n\r\n",
        ),
        (
            "transfer-encoding: chunked\r\n".to_owned(),
            "0x2\r\n{}\r\n0\r\n\r\n",
        ),
        (
            "transfer-encoding: chunked\r\n".to_owned(),
            "2;x\n{}\r\n0\r\n\r\n",
        ),
        (
            "transfer-encoding: chunked\r\n".to_owned(),
            "2\r\n{}0\r\n\r\n",
        ),
        ("x-a: a\0b\r\ncontent-length: 2\r\n".to_owned(), "{}"),
        ("x-a: a\rb\r\ncontent-length: 2\r\n".to_owned(), "{}"),
        (" x: y\r\ncontent-length: 2\r\n".to_owned(), "{}"),
    ] {
        let request = format!("{}{body}{hidden}", head(&fields));
        let (statuses, closed) = responses(&gateway, request.as_bytes(), PATIENCE).await;
        assert_eq!(
            (&*statuses, closed),
            (&["400".to_owned()][..], true),
            "{fields:?} {body:?}"
        );
    }
    for request in [
        head("transfer-encoding: chunked\r\n").replace("HTTP/1.1", "HTTP/1.0") + "0\r\n\r\n",
        head("").replace("HTTP/1.1", "HTTP/1.2"),
        "GET /v1\r\n".to_owned(),
    ] {
        let (statuses, closed) =
            responses(&gateway, (request + &hidden).as_bytes(), PATIENCE).await;
        assert!(
            closed && statuses.iter().all(|status| status == "400"),
            "{statuses:?}"
        );
    }
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"],
        json!([]),
        "no hidden request has run"
    );
}

#[tokio::test]
async fn a_request_in_the_body_of_another_does_not_run() {
    let gateway = Setup::fake(&[]).start();
    let host = gateway.address();
    let hidden = hidden(&gateway);
    let length = hidden.len();
    let last = format!("GET /livez HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    for line in [
        "GET /v1",
        "DELETE /v1/sessions/x",
        "POST /v1/sessions/x/cancel",
        "GET /livez",
    ] {
        let request = format!(
            "{line} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\ncontent-length: {length}\r\n\r\n{hidden}{last}"
        );
        let (statuses, closed) = responses(&gateway, request.as_bytes(), PATIENCE).await;
        assert!(
            closed && matches!(statuses.len(), 1 | 2),
            "{line}: {statuses:?}"
        );
        assert!(
            !statuses.contains(&"201".to_owned()),
            "{line}: {statuses:?}"
        );
    }
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
}

/// A connection over HTTP/2 without TLS.
async fn http2(gateway: &Gateway) -> SendRequest<bytes::Bytes> {
    let stream = TcpStream::connect(gateway.address())
        .await
        .expect("it listens");
    let (client, connection) = h2::client::handshake(stream)
        .await
        .expect("it accepts HTTP/2");
    #[expect(
        clippy::disallowed_methods,
        reason = "the task ends with the connection"
    )]
    tokio::spawn(connection);
    client.ready().await.expect("it is open")
}

#[tokio::test]
async fn fields_of_http_1_are_rejected_over_http_2() {
    let gateway = Setup::fake(&[]).start();
    let send = async |name: &str, value: &str| -> Option<ResponseFuture> {
        let request = Request::post(format!("{}/v1/sessions", gateway.url));
        let request = request.header("authorization", format!("Bearer {KEY}"));
        let request = request
            .header("content-type", "application/json")
            .header(name, value);
        let mut client = http2(&gateway).await;
        let (response, mut body) = client
            .send_request(request.body(()).expect("a request"), false)
            .ok()?;
        drop(body.send_data(r#"{"agent":"fake"}"#.into(), true));
        Some(response)
    };
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("upgrade", "h2c"),
        ("keep-alive", "timeout=5"),
        ("te", "gzip"),
        ("content-length", "3"),
        ("content-length", "3000"),
    ] {
        let Some(response) = send(name, value).await else {
            continue;
        };
        let answer = timeout(PATIENCE, response).await.expect("in time");
        let accepted = answer.is_ok_and(|answer| answer.status().is_success());
        assert!(!accepted, "{name}: {value}");
    }
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    let response = send("x-plain", "1").await.expect("it is sent");
    let answer = timeout(PATIENCE, response)
        .await
        .expect("in time")
        .expect("an answer");
    assert_eq!(
        answer.status(),
        201,
        "the same request without such a field runs"
    );
}
