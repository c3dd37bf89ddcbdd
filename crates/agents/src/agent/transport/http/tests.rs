//! The transport against a host of the test, which answers each request as the test decides.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Host, StartOutcome, StartRejection, open};
use crate::agent::transport::{LineWriter, Queueing, Transport};
use base::shutdown::Shutdown;
use outgoing::ProxyVariables;
use outgoing::{AddressRule, Client, ClientOptions};

const PATIENCE: Duration = Duration::from_secs(10);
const STREAM: &str = "200 OK\r\ncontent-type: text/event-stream";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
const PROMPT: &str =
    r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#;

struct TestHost {
    listener: TcpListener,
    /// Requests that no call of `next` has taken yet.
    waiting: Vec<TestRequest>,
}

/// A request with its connection. Dropping it closes the connection.
struct TestRequest {
    head: String,
    body: String,
    stream: TcpStream,
}

impl TestHost {
    async fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (
            Self {
                listener,
                waiting: Vec::new(),
            },
            address,
        )
    }

    /// The next request with this method and this header of the session.
    async fn next(&mut self, method: &str, session: Option<&str>) -> TestRequest {
        loop {
            let matching = |request: &TestRequest| {
                request.head.starts_with(method) && request.header("acp-session-id") == session
            };
            if let Some(index) = self.waiting.iter().position(matching) {
                return self.waiting.remove(index);
            }
            let accepted = timeout(PATIENCE, self.listener.accept()).await;
            let (stream, _) = accepted.expect("a request").unwrap();
            self.waiting.push(TestRequest::read(stream).await);
        }
    }

    /// Answers `initialize`, and opens the stream of the connection.
    async fn initialize(&mut self) -> TestRequest {
        let request = self.next("POST", None).await;
        assert_eq!(
            (&*request.body, request.header("acp-connection-id")),
            (INITIALIZE, None)
        );
        let result = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        request
            .answer(
                "200 OK\r\nacp-connection-id: c1\r\nset-cookie: lb=7; Path=/",
                result,
            )
            .await;
        let mut stream = self.next("GET", None).await;
        assert_eq!(stream.header("acp-connection-id"), Some("c1"));
        assert_eq!(
            (stream.header("cookie"), stream.header("last-event-id")),
            (Some("lb=7"), None)
        );
        stream.open().await;
        stream
    }
}

impl TestRequest {
    async fn read(mut stream: TcpStream) -> Self {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let mut request = Self {
            head: String::from_utf8(head).unwrap(),
            body: String::new(),
            stream,
        };
        let length = request
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        request.stream.read_exact(&mut body).await.unwrap();
        request.body = String::from_utf8(body).unwrap();
        request
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        lines
            .find(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    async fn answer(mut self, status: &str, body: &str) {
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(response.as_bytes()).await.unwrap();
    }

    /// Answers with the head of a stream.
    async fn open(&mut self) {
        let head = format!("HTTP/1.1 {STREAM}\r\nconnection: close\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await.unwrap();
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }
}

struct Agent {
    lines: Lines<BufReader<DuplexStream>>,
    outgoing: std::sync::Arc<dyn LineWriter>,
    transport: Box<dyn Transport>,
    outcome: StartOutcome,
}

impl Agent {
    fn connect(address: SocketAddr) -> Self {
        let proxies = ProxyVariables::default();
        let addresses = AddressRule::Any;
        let options = ClientOptions {
            proxies: &proxies,
            uses_tls: false,
            ca_certificates: None,
            addresses,
        };
        let url: Uri = format!("http://{address}/acp").parse().unwrap();
        let host = Host::new(
            Client::new(options).unwrap(),
            url,
            HeaderMap::new(),
            1 << 20,
        );
        let (channel, outcome) = open(host, &Shutdown::new());
        let lines = BufReader::new(channel.incoming).lines();
        let agent = Self {
            lines,
            outgoing: channel.outgoing,
            transport: channel.transport,
            outcome,
        };
        agent.send(INITIALIZE);
        agent
    }

    fn send(&self, line: &str) {
        self.outgoing
            .send(Bytes::from(format!("{line}\n")).into(), Queueing::Ordinary)
            .unwrap();
    }

    async fn line(&mut self) -> Option<String> {
        timeout(PATIENCE, self.lines.next_line())
            .await
            .expect("a line")
            .unwrap()
    }

    /// The reason of the end.
    async fn end(&mut self) -> String {
        while self.line().await.is_some() {}
        self.transport
            .exit()
            .await
            .disconnected
            .expect("a reason")
            .into()
    }
}

fn chunk(id: &str, text: &str) -> String {
    let id = if id.is_empty() {
        String::new()
    } else {
        format!("id: {id}\n")
    };
    format!("{id}data: {{\"method\":\"session/update\",\"params\":\"{text}\"}}\n\n")
}

/// An agent with a turn of the session `s` in progress. Returns the streams of the connection and of the session.
async fn in_a_turn(host: &mut TestHost, address: SocketAddr) -> (Agent, TestRequest, TestRequest) {
    let mut agent = Agent::connect(address);
    let connection = host.initialize().await;
    assert!(agent.line().await.unwrap().contains(r#""result":{}"#));
    agent.send(PROMPT);
    let mut session = host.next("GET", Some("s")).await;
    session.open().await;
    let prompt = host.next("POST", Some("s")).await;
    assert_eq!(
        (&*prompt.body, prompt.header("content-type")),
        (PROMPT, Some("application/json"))
    );
    prompt.answer("202 Accepted", "").await;
    (agent, connection, session)
}

#[tokio::test]
async fn cut_streams_continue_after_their_last_message() {
    let (mut host, address) = TestHost::start().await;
    let (mut agent, connection, mut session) = in_a_turn(&mut host, address).await;
    session.send(&chunk("e/1", "a")).await;
    assert!(agent.line().await.unwrap().contains("\"a\""));
    session.send("id: e/2\ndata: {\"cut\":").await;
    drop((session, connection));

    let again = host.next("GET", Some("s")).await;
    assert_eq!(again.header("last-event-id"), Some("e/1"));
    // The host has not noticed the end of the previous stream.
    again.answer("409 Conflict", "").await;
    let mut session = host.next("GET", Some("s")).await;
    session.open().await;
    session.send(&chunk("e/2", "b")).await;
    // The stream of the connection had no message, and no open call has its response there.
    let mut connection = host.next("GET", None).await;
    assert_eq!(connection.header("last-event-id"), None);
    connection.open().await;
    assert!(agent.line().await.unwrap().contains("\"b\""));

    session
        .send("data: {\"id\":\"q\",\"method\":\"session/request_permission\"}\n\n")
        .await;
    assert!(agent.line().await.unwrap().contains("request_permission"));
    agent.send(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#);
    host.next("POST", Some("s"))
        .await
        .answer("202 Accepted", "")
        .await;
    agent.transport.begin_close();
    let delete = host.next("DELETE", None).await;
    assert_eq!(delete.header("acp-connection-id"), Some("c1"));
    delete.answer("202 Accepted", "").await;
    timeout(PATIENCE, agent.transport.closed())
        .await
        .expect("it is closed");
}

#[tokio::test]
async fn cut_stream_without_ids_ends_the_connection() {
    let (mut host, address) = TestHost::start().await;
    let (mut agent, _connection, mut session) = in_a_turn(&mut host, address).await;
    session.send(&chunk("", "a")).await;
    assert!(agent.line().await.unwrap().contains("\"a\""));
    drop(session);
    assert_eq!(agent.end().await, "the agent ended a stream");
    host.next("DELETE", None)
        .await
        .answer("202 Accepted", "")
        .await;
}

#[tokio::test]
async fn connection_that_the_host_has_forgotten_ends() {
    let (mut host, address) = TestHost::start().await;
    let (mut agent, _connection, mut session) = in_a_turn(&mut host, address).await;
    session.send(&chunk("1", "a")).await;
    agent.line().await;
    drop(session);
    host.next("GET", Some("s"))
        .await
        .answer("404 Not Found", "hunter2")
        .await;
    assert_eq!(agent.end().await, "the agent's host answered 404 Not Found");
}

#[tokio::test]
async fn rejected_messages_are_sent_again_or_answered_with_an_error() {
    let (mut host, address) = TestHost::start().await;
    let (mut agent, _connection, _session) = in_a_turn(&mut host, address).await;
    let list = r#"{"jsonrpc":"2.0","id":3,"method":"session/list","params":{}}"#;
    agent.send(list);
    host.next("POST", None)
        .await
        .answer("429 Too Many Requests", "")
        .await;
    host.next("POST", None)
        .await
        .answer("503 Service Unavailable", "")
        .await;
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a wrong header"}}"#;
    let request = host.next("POST", None).await;
    assert_eq!(request.body, list);
    request.answer("400 Bad Request", body).await;
    let error = agent.line().await.unwrap();
    assert!(
        error.contains(r#""id":3,"error""#) && error.contains("400 Bad Request: a wrong header"),
        "{error}"
    );

    // A lost answer would leave the agent waiting.
    agent.send(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#);
    host.next("POST", None)
        .await
        .answer("500 Internal Server Error", "")
        .await;
    assert_eq!(
        agent.end().await,
        "the agent's host answered 500 Internal Server Error"
    );
}

#[tokio::test]
async fn message_with_an_unknown_outcome_is_not_repeated() {
    let (mut host, address) = TestHost::start().await;
    let (mut agent, _connection, _session) = in_a_turn(&mut host, address).await;
    agent.send(r#"{"jsonrpc":"2.0","id":3,"method":"session/list","params":{}}"#);
    drop(host.next("POST", None).await);
    assert!(agent.end().await.starts_with("the connection was lost: "));
    host.next("DELETE", None).await;
    assert!(host.waiting.is_empty());
}

#[tokio::test]
async fn host_that_rejects_initialize_is_reported() {
    for (status, body, expected) in [
        (
            "401 Unauthorized",
            "",
            Some(StartRejection::Status(http::StatusCode::UNAUTHORIZED)),
        ),
        ("200 OK", "<html>", Some(StartRejection::NotAcp)),
        (
            "200 OK",
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#,
            None,
        ),
    ] {
        let (mut host, address) = TestHost::start().await;
        let mut agent = Agent::connect(address);
        host.next("POST", None).await.answer(status, body).await;
        agent.end().await;
        assert_eq!(agent.outcome.get().cloned(), expected, "{status} {body}");
    }
}
