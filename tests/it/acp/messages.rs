//! Messages over a WebSocket: frames, subprotocols, and the first message.

use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use super::raw::initialize;
use super::socket::Socket;
use crate::support::Setup;
use crate::support::gateway::KEY;

#[tokio::test]
async fn first_message_must_be_initialize() {
    let gateway = Setup::fake(&[]).start();
    for first in [
        r#"{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}"#,
        "{",
        "[]",
    ] {
        let mut socket = Socket::connect(&gateway, "/acp", &[]).await;
        socket.raw(Message::text(first)).await;
        assert_eq!(socket.closed().await, Some(1002), "{first}");
    }
}

#[tokio::test]
async fn binary_frames_several_lines_and_pings_are_accepted() {
    let gateway = Setup::fake(&[]).start();
    let mut socket = Socket::connect(&gateway, "/acp", &[]).await;
    socket
        .raw(Message::text(
            "{\"jsonrpc\":\"2.0\",\"method\":\"$/ping\"}\n",
        ))
        .await;
    let list = json!({ "jsonrpc": "2.0", "id": 5, "method": "session/list", "params": {} });
    let lines = format!("{}\n{list}\n\n", initialize(1, &json!({})));
    socket.raw(Message::binary(lines.into_bytes())).await;
    assert_eq!(socket.next().await["id"], 1);
    assert_eq!(socket.next().await["id"], 5);
    for (line, code) in [
        ("{", -32700),
        ("[]", -32600),
        (r#"{"id":[],"method":"x"}"#, -32600),
    ] {
        socket.raw(Message::text(line)).await;
        let error = socket.next().await;
        assert!(
            error["id"].is_null() && error["error"]["code"] == code,
            "{line}: {error}"
        );
    }
}

#[tokio::test]
async fn subprotocol_is_selected_only_if_it_is_offered() {
    let gateway = Setup::fake(&[]).start();
    let none = Socket::connect(&gateway, "/acp", &[]).await;
    assert_eq!(none.protocol, None);
    assert!(!none.connection.is_empty(), "the id of the connection");
    let bearer = format!("acp.v1, bearer.{KEY}");
    let mut offered =
        Socket::connect_without_key(&gateway, "/acp", &[("sec-websocket-protocol", &bearer)])
            .await
            .expect("it opens");
    assert_eq!(offered.protocol.as_deref(), Some("acp.v1"));
    offered
        .raw(Message::text(initialize(1, &json!({})).to_string()))
        .await;
    assert_eq!(offered.next().await["result"]["protocolVersion"], 1);
    for wrong in ["acp.v1", "acp.v1, bearer.wrong"] {
        let refused =
            Socket::connect_without_key(&gateway, "/acp", &[("sec-websocket-protocol", wrong)])
                .await;
        assert_eq!(refused.err(), Some(401), "{wrong}");
    }
}

#[tokio::test]
async fn history_precedes_the_response_to_load() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "stream n=300").await;
    let mut socket = Socket::open(&gateway, "/acp", &[]).await;
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    socket
        .send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "session/load", "params": params }))
        .await;
    let history = socket.until(|message| message["id"] == 3).await;
    assert_eq!(super::raw::chunks(&history).len(), 300);
}

#[tokio::test]
async fn internal_error_is_in_the_log_under_the_id_of_the_request_that_opened_the_socket() {
    let gateway = Setup::fake(&[]).start();
    let mut socket = Socket::open(&gateway, "/acp", &[("x-request-id", "socket.1")]).await;
    let folders = gateway.path("data/workspaces");
    std::fs::remove_dir(&folders).expect("it is empty");
    std::fs::write(&folders, "no folder can be made in it").expect("the place is free");
    let params = json!({ "cwd": "", "mcpServers": [] });
    socket
        .send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": params }))
        .await;
    let response = socket.next().await;
    assert_eq!(response["error"]["code"], -32603, "{response}");
    assert_eq!(response["error"]["data"]["code"], "internal", "{response}");
    let log = gateway.log();
    let own = log
        .lines()
        .filter(|line| line.contains("internal error") && line.contains("socket.1"));
    assert_eq!(own.count(), 1, "{log}");
}
