//! ACP clients: a session of another user is an unknown session.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::header::HeaderValue;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::{LIMITS, User};
use crate::acp::raw::Acp;
use crate::key_life::key_command;
use crate::route_walk::operations::UNKNOWN;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Gateway, Setup};

/// The maximum wait for a message.
const PATIENCE: Duration = Duration::from_secs(20);

/// The requests of a client that name a session, with the code of the error for an unknown session.
const METHODS: [(&str, i64); 11] = [
    ("session/load", -32002),
    ("session/resume", -32002),
    // The draft of these two has its own codes.
    ("session/attach", -32001),
    ("session/detach", -32001),
    ("session/fork", -32002),
    // The connection follows no session.
    ("session/prompt", -32602),
    ("session/set_mode", -32002),
    ("session/set_config_option", -32002),
    ("session/cancel", -32002),
    ("session/close", -32002),
    ("session/delete", -32002),
];

/// The params of `initialize` of a client that uses the draft of `session/attach`.
fn with_attach() -> Value {
    json!({ "_meta": { "acp-gateway": { "attach": true } } })
}

/// The params of each method. A method ignores the members of the others.
fn params(session: &str) -> Value {
    json!({
        "sessionId": session, "cwd": "/", "mcpServers": [],
        "prompt": [{ "type": "text", "text": "echo intruder" }],
        "modeId": "code", "configId": "model", "value": "large",
    })
}

/// An initialized connection to `/acp` over a WebSocket.
pub(super) struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    next: u64,
}

impl Socket {
    pub(super) async fn open(gateway: &Gateway, key: &str) -> Self {
        let url = format!("{}/acp", gateway.url.replacen("http", "ws", 1));
        let mut request = url.into_client_request().expect("a request");
        let bearer = format!("Bearer {key}").parse().expect("a value");
        request.headers_mut().insert("authorization", bearer);
        let stream = connect_async(request).await.expect("it opens").0;
        let mut socket = Self { stream, next: 0 };
        let mut params = with_attach();
        params["protocolVersion"] = json!(1);
        let received = socket.call("initialize", params).await;
        let response = received.last().expect("the response");
        assert_eq!(response["result"]["protocolVersion"], 1, "{response}");
        socket
    }

    pub(super) async fn send(&mut self, message: &Value) {
        let message = Message::text(message.to_string());
        self.stream.send(message).await.expect("the socket is open");
    }

    async fn frame(&mut self) -> Message {
        let frame = timeout(PATIENCE, self.stream.next()).await;
        let frame = frame.expect("a frame in time");
        frame.expect("the socket is open").expect("a frame")
    }

    /// Sends a request. Returns the messages up to and including its response.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Vec<Value> {
        let id = self.next;
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        let mut messages = Vec::new();
        loop {
            match self.frame().await {
                Message::Text(text) => {
                    let message: Value = serde_json::from_str(&text).expect("JSON");
                    let is_response = message["id"] == id && message["method"].is_null();
                    messages.push(message);
                    if is_response {
                        return messages;
                    }
                }
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("no message: {other:?}"),
            }
        }
    }

    /// The code with which the gateway closes the socket.
    pub(super) async fn closed(&mut self) -> Option<u16> {
        loop {
            match self.frame().await {
                Message::Close(frame) => return frame.map(|frame| frame.code.into()),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("not closed: {other:?}"),
            }
        }
    }
}

/// A connection to `/acp` over HTTP whose streams the test reads to their end.
pub(super) struct Connection<'a> {
    user: &'a User<'a>,
    id: HeaderValue,
}

impl<'a> Connection<'a> {
    pub(super) async fn open(user: &'a User<'a>) -> Self {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        let initialize =
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let opened = user.request(Method::POST, "/acp").json(&initialize);
        let opened = opened.send().await.expect("a response");
        let id = opened.headers()["acp-connection-id"].clone();
        Self { user, id }
    }

    fn request(&self, method: Method) -> RequestBuilder {
        let request = self.user.request(method, "/acp");
        request.header("acp-connection-id", &self.id)
    }

    /// The stream of the connection, or of a session.
    pub(super) async fn stream(&self, session: Option<&str>) -> Response {
        let mut request = self.request(Method::GET);
        request = request.header("accept", "text/event-stream");
        if let Some(session) = session {
            request = request.header("acp-session-id", session);
        }
        let response = request.send().await.expect("a response");
        assert_eq!(response.status(), StatusCode::OK);
        response
    }

    async fn load(&self, session: &str) {
        let load = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/load",
            "params": params(session) });
        let response = self.request(Method::POST).json(&load).send().await;
        let response = response.expect("a response");
        assert_eq!(response.status(), StatusCode::ACCEPTED);
    }
}

/// The code of the error of a response, and the error with `ID` for the id of the session.
fn error(response: &Value, session: &str) -> (i64, String) {
    let error = &response["error"];
    let code = error["code"].as_i64();
    let code = code.unwrap_or_else(|| panic!("no error: {response}"));
    (code, error.to_string().replace(session, "ID"))
}

#[tokio::test]
async fn every_request_on_a_foreign_session_has_the_error_of_an_unknown_one() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = alice.waiting_session().await;
    let before = alice.snapshot(&theirs).await;
    let mut socket = Socket::open(&gateway, &bob.key).await;
    let mut http = Acp::open_with(&gateway, &bob.key, &with_attach()).await;
    for (method, code) in METHODS {
        let mut errors = Vec::new();
        for session in [&*theirs, UNKNOWN] {
            let received = socket.call(method, params(session)).await;
            let [response] = &received[..] else {
                panic!("{method}: {received:?}");
            };
            errors.push(error(response, session));
            let mut responses = http.stream(None, None).await;
            let id = http.send(method, params(session)).await;
            errors.push(error(&responses.response(id).await, session));
        }
        assert_eq!(errors[0].0, code, "{method}: {errors:#?}");
        assert!(
            errors.iter().all(|error| *error == errors[0]),
            "{method}: {errors:#?}"
        );
    }
    assert_eq!(alice.snapshot(&theirs).await, before);
    assert_eq!(bob.sessions("").await, [""; 0]);
}

#[tokio::test]
async fn notifications_and_answers_for_a_foreign_session_have_no_effect() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = alice.waiting_session().await;
    let before = alice.snapshot(&theirs).await;
    let mut socket = Socket::open(&gateway, &bob.key).await;
    for method in ["session/cancel", "session/close", "_extension"] {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params(&theirs) });
        socket.send(&message).await;
    }
    // The id of a request of the agent is derived from its session.
    let result = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
    let answer = json!({ "jsonrpc": "2.0", "id": format!("{theirs}:r1"), "result": result });
    socket.send(&answer).await;
    // The gateway handles the messages of a socket in their order.
    let listed = socket.call("session/list", json!({})).await;
    let [listed] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!(listed["result"]["sessions"], json!([]), "{listed}");
    assert_eq!(alice.snapshot(&theirs).await, before);
    let mut owner = Socket::open(&gateway, &alice.key).await;
    owner.call("session/load", params(&theirs)).await;
    owner.send(&answer).await;
    eventually("the turn has ended", LONGEST, || async {
        (alice.snapshot(&theirs).await["state"] == "idle").then_some(())
    })
    .await;
}

#[tokio::test]
async fn connection_gets_no_message_of_a_foreign_session() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = alice.session().await;
    let mut owner = Socket::open(&gateway, &alice.key).await;
    owner.call("session/load", params(&theirs)).await;
    let mut socket = Socket::open(&gateway, &bob.key).await;
    for method in ["session/load", "session/resume", "session/attach"] {
        socket.call(method, params(&theirs)).await;
    }
    let prompted = owner.call("session/prompt", params(&theirs)).await;
    let is_update = |message: &&Value| message["method"] == "session/update";
    assert!(prompted.iter().any(|one| is_update(&one)), "{prompted:?}");
    let own = socket.call("session/new", json!({ "cwd": "", "mcpServers": [] }));
    let own = own.await;
    assert!(
        own.iter()
            .all(|message| !message.to_string().contains(&theirs)),
        "{own:?}"
    );
}

#[tokio::test]
async fn stream_of_a_foreign_session_has_no_message_of_it() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = alice.session().await;
    let mut streams = Vec::new();
    for user in [&alice, &bob] {
        let connection = Connection::open(user).await;
        // The stream of a session can be open before the session is loaded.
        let stream = connection.stream(Some(&theirs)).await;
        connection.load(&theirs).await;
        streams.push((connection, stream));
    }
    alice.turn(&theirs, "echo harbor").await;
    let mut texts = Vec::new();
    for (name, (connection, mut stream)) in ["alice", "bob"].into_iter().zip(streams) {
        let mut text = String::new();
        if name == "alice" {
            while !text.contains("harbor") {
                let chunk = timeout(PATIENCE, stream.chunk()).await.expect("in time");
                let chunk = chunk.expect("an open stream").expect("a chunk");
                text.push_str(std::str::from_utf8(&chunk).expect("ASCII"));
            }
        }
        // The stream ends with its key.
        key_command(&gateway, &["revoke", name]);
        let rest = timeout(LONGEST, stream.text()).await.expect("it ends");
        text.push_str(&rest.expect("text"));
        drop(connection);
        texts.push(text);
    }
    let [own, foreign] = &texts[..] else {
        panic!("{texts:?}");
    };
    assert!(own.contains("session/update"), "{own}");
    assert!(
        !foreign.contains("session/update") && !foreign.contains("harbor"),
        "{foreign}"
    );
}
