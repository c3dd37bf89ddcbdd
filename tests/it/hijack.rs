//! Streams that own the socket of their connection, with other requests before, beside and after them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::gateway::KEY;
use crate::support::lean::{self, Lean};
use crate::support::{Gateway, Setup};

/// The deadline for every action, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

async fn connect(gateway: &Gateway) -> TcpStream {
    TcpStream::connect(gateway.address())
        .await
        .expect("it listens")
}

fn events(session: &str) -> String {
    format!("/v1/sessions/{session}/events")
}

/// A request's head with the key, and these lines more.
fn request(method: &str, to: SocketAddr, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {KEY}\r\n{more}\r\n")
}

const STREAM: &str = "accept: text/event-stream\r\n";

/// Reads until `end` has arrived, and returns all bytes after it too. Panics if the connection ends before.
async fn until(socket: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while memchr::memmem::find(&text, end.as_bytes()).is_none() {
        let read = tokio::time::timeout(PATIENCE, socket.read_buf(&mut text)).await;
        let read =
            read.unwrap_or_else(|_| panic!("{end:?} in time: {}", String::from_utf8_lossy(&text)));
        assert!(
            read.expect("it is open") > 0,
            "{end:?} before the end: {}",
            String::from_utf8_lossy(&text)
        );
    }
    String::from_utf8(text).expect("text")
}

/// Reads one complete response. The connection stays open.
async fn whole(socket: &mut TcpStream, only_head: bool) -> String {
    let mut text = Vec::new();
    loop {
        if let Some(end) = memchr::memmem::find(&text, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&text[..end]);
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length = length.map(|length| length.parse::<usize>().expect("a number"));
            if only_head
                || length.is_some_and(|length| text.len() == end + 4 + length)
                || length.is_none() && text.ends_with(b"\r\n0\r\n\r\n")
            {
                return String::from_utf8(text).expect("text");
            }
        }
        let read = tokio::time::timeout(PATIENCE, socket.read_buf(&mut text))
            .await
            .expect("in time");
        assert!(
            read.expect("it is open") > 0,
            "{}",
            String::from_utf8_lossy(&text)
        );
    }
}

/// Everything up to the connection's end.
async fn rest(socket: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end too.
    drop(
        tokio::time::timeout(PATIENCE, socket.read_to_end(&mut text))
            .await
            .expect("it ends in time"),
    );
    String::from_utf8(text).expect("text")
}

/// A stream that is open: its head, and the frames up to `ready`.
async fn opened(socket: &mut TcpStream) -> String {
    let text = until(socket, "event: ready").await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let (head, _) = text.split_once("\r\n\r\n").expect("a head");
    for line in [
        "content-type: text/event-stream",
        "cache-control: no-store, no-transform",
        "transfer-encoding: chunked",
        "x-content-type-options: nosniff",
    ] {
        assert!(head.lines().any(|is| is == line), "{line}: {head}");
    }
    for name in ["date: ", "x-request-id: "] {
        assert!(
            head.lines().any(|is| is.starts_with(name)),
            "{name}: {head}"
        );
    }
    // With this header, Node's fetch accepts a truncated stream as complete.
    assert!(!head.contains("connection: "), "{head}");
    text
}

/// Receives new events.
async fn lives(gateway: &Gateway, session: &str, socket: &mut TcpStream) {
    let turn = gateway.turn(session, "echo it-lives");
    let (_, text) = tokio::join!(turn, until(socket, "event: prompt.completed"));
    assert!(text.contains("it-lives"), "{text}");
}

async fn with_session() -> (Gateway, String, SocketAddr) {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let to = gateway.address();
    (gateway, session, to)
}

#[tokio::test]
async fn stream_request_accepts_every_form() {
    let (gateway, session, to) = with_session().await;
    let path = events(&session);
    let (status, ticket) = gateway
        .post("/v1/tickets", &json!({ "paths": [path] }))
        .await;
    assert_eq!(status, 201);
    let ticket = ticket["ticket"].as_str().expect("a text");
    let by_ticket = format!(
        "GET {path}?ticket={ticket} HTTP/1.1\r\nhost: {to}\r\naccept: text/event-stream\r\n\r\n"
    );
    let upgrade = format!("{STREAM}connection: upgrade\r\nupgrade: websocket\r\n");
    for head in [
        request("GET", to, &path, STREAM),
        request("GET", to, &format!("http://{to}{path}"), STREAM),
        request("GET", to, &path, &format!("{STREAM}connection: close\r\n")),
        request(
            "GET",
            to,
            &path,
            &format!("{STREAM}connection: keep-alive\r\n"),
        ),
        request("GET", to, &path, &upgrade),
        request("GET", to, &path, &format!("{STREAM}content-length: 0\r\n")),
        by_ticket,
        request("GET", to, &format!("/v1/events?session={session}"), STREAM),
    ] {
        let mut socket = connect(&gateway).await;
        socket.write_all(head.as_bytes()).await.expect("it is open");
        opened(&mut socket).await;
        lives(&gateway, &session, &mut socket).await;
    }
    // Byte by byte.
    let mut socket = connect(&gateway).await;
    for byte in request("GET", to, &path, STREAM).bytes() {
        socket.write_all(&[byte]).await.expect("it is open");
        tokio::task::yield_now().await;
    }
    opened(&mut socket).await;
    lives(&gateway, &session, &mut socket).await;
}

#[tokio::test]
async fn http_1_0_client_gets_an_unchunked_stream() {
    let (gateway, session, to) = with_session().await;
    let mut socket = connect(&gateway).await;
    let head = request("GET", to, &events(&session), STREAM).replacen("HTTP/1.1", "HTTP/1.0", 1);
    socket.write_all(head.as_bytes()).await.expect("it is open");
    let text = until(&mut socket, "event: ready").await;
    assert!(
        text.starts_with("HTTP/1.0 200 OK\r\n") && !text.contains("chunked"),
        "{text}"
    );
    assert!(text.contains("\r\n\r\nretry: "), "{text}");
    lives(&gateway, &session, &mut socket).await;
}

#[tokio::test]
async fn a_connection_has_other_answers_before_its_stream() {
    let (gateway, session, to) = with_session().await;
    let path = events(&session);
    let mut socket = connect(&gateway).await;
    let unknown = "/v1/sessions/01938c5e-7a3b-7c4d-8e5f-0123456789ab/events";
    let nobody = format!("GET {path} HTTP/1.1\r\nhost: {to}\r\naccept: text/event-stream\r\n\r\n");
    for (head, status) in [
        (request("GET", to, "/v1", ""), "200"),
        (nobody, "401"),
        (request("GET", to, unknown, STREAM), "404"),
        (request("GET", to, &format!("{path}?x=1"), STREAM), "422"),
        (request("HEAD", to, &path, STREAM), "200"),
        (request("OPTIONS", to, &path, STREAM), "405"),
        (
            request("GET", to, &format!("{path}?follow=false"), STREAM),
            "200",
        ),
        (
            request("GET", to, &path, "accept: application/json\r\n"),
            "200",
        ),
    ] {
        socket.write_all(head.as_bytes()).await.expect("it is open");
        let text = whole(&mut socket, head.starts_with("HEAD")).await;
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status} ")),
            "{head}{text}"
        );
        assert!(!text.contains("connection: close"), "{head}{text}");
    }
    socket
        .write_all(request("GET", to, &path, STREAM).as_bytes())
        .await
        .expect("it is open");
    opened(&mut socket).await;
    lives(&gateway, &session, &mut socket).await;
}

#[tokio::test]
async fn pipelined_response_before_a_stream_is_complete() {
    let (gateway, session, to) = with_session().await;
    let mut socket = connect(&gateway).await;
    let both = request("GET", to, "/v1", "") + &request("GET", to, &events(&session), STREAM);
    socket.write_all(both.as_bytes()).await.expect("it is open");
    let text = until(&mut socket, "event: ready").await;
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{text}");
    lives(&gateway, &session, &mut socket).await;
}

#[tokio::test]
async fn a_client_that_sends_too_much_during_its_stream_is_cut_off() {
    let (gateway, session, to) = with_session().await;
    let mut socket = connect(&gateway).await;
    socket
        .write_all(request("GET", to, &events(&session), STREAM).as_bytes())
        .await
        .expect("it is open");
    opened(&mut socket).await;
    socket
        .write_all(request("GET", to, "/v1", "").as_bytes())
        .await
        .expect("it is open");
    let turn = gateway.turn(&session, "echo it-lives");
    let (_, text) = tokio::join!(turn, until(&mut socket, "event: prompt.completed"));
    assert!(!text.contains("HTTP/1.1"), "{text}");
    let noise = vec![b'x'; 1 << 20];
    let (mut reads, mut writes) = socket.split();
    let (text, _) = tokio::join!(
        async {
            let mut text = Vec::new();
            drop(
                tokio::time::timeout(PATIENCE, reads.read_to_end(&mut text))
                    .await
                    .expect("it is left"),
            );
            text
        },
        writes.write_all(&noise),
    );
    assert!(
        !text.ends_with(b"0\r\n\r\n"),
        "it is cut, and does not look whole"
    );
}

/// A turn that waits for an answer, as a stream on this socket; returns the handle that lets the turn continue.
async fn waiting_turn(
    gateway: &Gateway,
    session: &str,
    socket: &mut TcpStream,
    more: &str,
) -> String {
    let to = gateway.address();
    let prompt = gateway
        .prompt(session, "stream n=5; permission; echo done")
        .await;
    let path = format!(
        "/v1/sessions/{session}/prompts/{}/events",
        prompt["promptId"].as_str().expect("an id")
    );
    let head = request("GET", to, &path, &format!("{STREAM}{more}"));
    socket.write_all(head.as_bytes()).await.expect("it is open");
    until(socket, "event: request.created").await;
    let asked = gateway
        .get(&format!("/v1/sessions/{session}/requests"))
        .await;
    let asked = asked["requests"][0]["requestId"]
        .as_str()
        .expect("it waits");
    format!("/v1/sessions/{session}/permissions/{asked}")
}

async fn allow(gateway: &Gateway, permission: &str) {
    assert_eq!(
        gateway
            .post(permission, &json!({ "optionId": "allow" }))
            .await
            .0,
        204
    );
}

/// The end of a chunked body.
const LAST_CHUNK: &str = "\r\n0\r\n\r\n";

/// A request that changes something, which no client sends twice by itself.
fn post(to: SocketAddr, session: &str, text: &str) -> String {
    let body = json!({ "prompt": text }).to_string();
    let more = format!(
        "content-type: application/json\r\nprefer: wait=30\r\ncontent-length: {}\r\n",
        body.len()
    );
    request(
        "POST",
        to,
        &format!("/v1/sessions/{session}/prompts"),
        &more,
    ) + &body
}

#[tokio::test]
async fn a_connection_serves_the_next_request_after_its_stream() {
    let (gateway, session, to) = with_session().await;
    let mut socket = connect(&gateway).await;
    for round in 0..3 {
        let permission = waiting_turn(&gateway, &session, &mut socket, "").await;
        let ((), text) = tokio::join!(allow(&gateway, &permission), until(&mut socket, LAST_CHUNK));
        assert!(
            text.contains("event: end") && text.ends_with(LAST_CHUNK),
            "{text}"
        );
        socket
            .write_all(request("GET", to, "/v1", "").as_bytes())
            .await
            .expect("it is open");
        assert!(
            whole(&mut socket, false)
                .await
                .starts_with("HTTP/1.1 200 OK\r\n")
        );
        let prompt_text = format!("echo round-{round}");
        socket
            .write_all(post(to, &session, &prompt_text).as_bytes())
            .await
            .expect("it is open");
        let prompt = whole(&mut socket, false).await;
        assert!(
            prompt.starts_with("HTTP/1.1 200 OK\r\n")
                && prompt.contains(&prompt_text["echo ".len()..]),
            "{prompt}"
        );
    }
}

#[tokio::test]
async fn requests_during_a_stream_are_answered_after_it() {
    let (gateway, session, to) = with_session().await;
    let mut socket = connect(&gateway).await;
    let permission = waiting_turn(&gateway, &session, &mut socket, "").await;
    let early = request("GET", to, "/v1", "") + &post(to, &session, "echo early");
    socket
        .write_all(early.as_bytes())
        .await
        .expect("it is open");
    allow(&gateway, &permission).await;
    let mut text = String::new();
    let answers = |text: &str| {
        text.split_once(LAST_CHUNK)
            .map_or(0, |(_, rest)| rest.matches("HTTP/1.1 200").count())
    };
    while answers(&text) < 2 || !text.contains("/prompts/p2\r\n") {
        text.push_str(&until(&mut socket, "\n").await);
    }
    assert!(text.find("event: end") < text.find(LAST_CHUNK), "{text}");
}

#[tokio::test]
async fn stream_is_complete_and_last_after_a_pipelined_request_or_close() {
    let (gateway, session, _) = with_session().await;
    let next = request("GET", gateway.address(), "/v1", "");
    let next = format!("\r\n{}", next.strip_suffix("\r\n").expect("an empty line"));
    for more in [
        "connection: close\r\n".to_owned(),
        "connection: x, Close\r\n".to_owned(),
        next,
    ] {
        let mut socket = connect(&gateway).await;
        let permission = waiting_turn(&gateway, &session, &mut socket, &more).await;
        let ((), text) = tokio::join!(allow(&gateway, &permission), rest(&mut socket));
        assert!(
            text.contains("event: end") && text.ends_with(LAST_CHUNK),
            "{text}"
        );
        gateway.turn(&session, "hello").await;
    }
}

#[tokio::test]
async fn streaming_response_in_a_drain_has_no_connection_close() {
    let mut gateway = Setup::fake(&[])
        .settings("timeouts.drain_timeout = \"12s\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "slow chunks=300 ms=30").await;
    // A drain does not wait for a turn that has no process yet.
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    let to = gateway.address();
    gateway.signal(rustix::process::Signal::TERM);
    let began = Instant::now();
    loop {
        let mut socket = connect(&gateway).await;
        socket
            .write_all(request("GET", to, "/readyz", "").as_bytes())
            .await
            .expect("it is open");
        if whole(&mut socket, false)
            .await
            .contains("\r\nconnection: close\r\n")
        {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "it does not drain");
    }
    for path in [
        events(&session),
        format!("{}?follow=false", events(&session)),
    ] {
        let mut socket = connect(&gateway).await;
        socket
            .write_all(request("GET", to, &path, STREAM).as_bytes())
            .await
            .expect("it is open");
        let text = until(&mut socket, LAST_CHUNK).await;
        assert!(
            text.contains("event: shutdown") && !text.contains("connection: "),
            "{text}"
        );
        // Other responses contain the header.
        socket
            .write_all(request("GET", to, "/readyz", "").as_bytes())
            .await
            .expect("it is open");
        assert!(
            whole(&mut socket, false)
                .await
                .contains("\r\nconnection: close\r\n")
        );
    }
    assert_eq!(gateway.ended(PATIENCE), Some(0), "{}", gateway.log());
}

#[tokio::test]
async fn heads_that_are_wrong_large_or_late_get_no_stream() {
    let gateway = Setup::fake(&[])
        .settings("testing.header_timeout = \"6s\"")
        .start();
    let session = gateway.session("fake").await;
    let to = gateway.address();
    let path = events(&session);
    let large = format!("{STREAM}x-large: {}\r\n", "x".repeat(100_000));
    for (head, status) in [
        (
            request("GET", to, &path, &format!("{STREAM}host: evil\r\n")),
            "400",
        ),
        (
            request("GET", to, &format!("http://evil{path}"), STREAM),
            "421",
        ),
        (request("GET", to, &path, &large), "431"),
        (
            request(
                "GET",
                to,
                &path,
                &format!("{STREAM}content-length: 1\r\ncontent-length: 2\r\n"),
            ),
            "400",
        ),
    ] {
        let mut socket = connect(&gateway).await;
        // The response may arrive and the connection may close before the client has written everything.
        drop(socket.write_all(head.as_bytes()).await);
        let mut answer = [0; 12];
        let read = tokio::time::timeout(PATIENCE, socket.read_exact(&mut answer)).await;
        read.expect("in time").expect("an answer");
        assert_eq!(
            String::from_utf8_lossy(&answer),
            format!("HTTP/1.1 {status}")
        );
    }
    let began = Instant::now();
    let mut late = connect(&gateway).await;
    let head = request("GET", to, &path, STREAM);
    late.write_all(&head.as_bytes()[..head.len() - 1])
        .await
        .expect("it is open");
    let text = rest(&mut late).await;
    assert!(
        !text.contains("200 OK") && began.elapsed() >= Duration::from_millis(900),
        "{text}"
    );
}

/// A client that reads complete responses slowly, and sends the next request during the current response.
async fn sip(socket: &mut TcpStream, heads: [&str; 2], bytes: usize, pause: Duration) -> Vec<u8> {
    socket
        .write_all(heads[0].as_bytes())
        .await
        .expect("it is open");
    let mut received = Vec::new();
    let mut piece = vec![0; bytes];
    for at in 0.. {
        tokio::time::sleep(pause).await;
        match socket.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(read) => received.extend_from_slice(&piece[..read]),
        }
        if at == 4 {
            socket
                .write_all(heads[1].as_bytes())
                .await
                .expect("it is open");
        }
    }
    received
}

#[tokio::test]
async fn slowly_read_single_response_is_complete() {
    let gateway = Setup::fake(&[])
        .settings("testing.header_timeout = \"5s\"\ntesting.write_stall_timeout = \"5s\"\ntesting.send_buffer_bytes = \"32KiB\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "flood n=200 size=4000").await;
    let to = gateway.address();
    let path = format!("{}?limit=1000", events(&session));
    let json = |more| {
        request(
            "GET",
            to,
            &path,
            &format!("accept: application/json\r\n{more}"),
        )
    };
    let last = request("GET", to, "/readyz", "connection: close\r\n");
    let sips = async |heads: [&str; 2], next: &str| {
        let mut socket = lean::connect_small(to).await.expect("a connection");
        let began = Instant::now();
        let received = sip(&mut socket, heads, 32 << 10, Duration::from_millis(150)).await;
        assert!(
            began.elapsed() > Duration::from_secs(6),
            "it took its time: {:?}",
            began.elapsed()
        );
        let text = String::from_utf8(received).expect("text");
        let (head, bodies) = text.split_once("\r\n\r\n").expect("a head");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .expect("its length");
        let (body, rest) = bodies
            .split_at_checked(length.parse().expect("a number"))
            .expect("all of it came");
        assert!(body.ends_with('}') && rest.starts_with(next), "{rest}");
        assert_eq!(rest.is_empty(), next.is_empty(), "{rest}");
    };
    let alone = json("connection: close\r\n");
    let first = json("");
    // Also when the next request is there already.
    tokio::join!(
        sips([alone.as_str(), ""], ""),
        sips([first.as_str(), last.as_str()], "HTTP/1.1 200 OK\r\n"),
    );
}

/// A client with a small receive buffer.
async fn follows(gateway: &Gateway, session: &str) -> Lean {
    let to = gateway.address();
    let mut socket = lean::connect_small(to).await.expect("a connection");
    socket
        .write_all(lean::head(to, &events(session), None).as_bytes())
        .await
        .expect("it is open");
    Lean::answered(socket).await.expect("a stream")
}

/// The log as received by a client that reads a little after each pause, up to the end of this number of turns.
async fn read_slowly(stream: &mut Lean, turns: usize, pause: Duration) -> Vec<serde_json::Value> {
    let mut came = Vec::new();
    let mut ended = 0;
    while ended < turns {
        tokio::time::sleep(pause).await;
        let frames = stream
            .frames()
            .await
            .expect("it does not break")
            .expect("it has no end");
        for frame in frames.into_iter().filter(|frame| frame.seq().is_some()) {
            ended += usize::from(frame.of("prompt.completed"));
            let data = frame
                .0
                .lines()
                .find_map(|line| line.strip_prefix("data: "))
                .expect("data")
                .to_owned();
            came.push(serde_json::from_str(&data).expect("JSON"));
        }
    }
    came
}

#[tokio::test]
async fn slowly_read_stream_of_many_pieces_equals_the_log() {
    let gateway = Setup::fake(&[])
        .settings("testing.send_buffer_bytes = \"8KiB\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "flood n=600 size=1000").await;
    let mut stream = follows(&gateway, &session).await;
    assert_eq!(
        read_slowly(&mut stream, 1, Duration::ZERO).await,
        gateway.all_events(&session).await
    );
}

#[tokio::test]
async fn slowly_read_waiting_streams_equal_the_log() {
    let gateway = Setup::fake(&[])
        .settings("testing.send_buffer_bytes = \"8KiB\"")
        .start();
    // The writer notifies one reader itself; other threads notify many readers.
    for count in [1, 6] {
        let session = gateway.session("fake").await;
        let mut streams = Vec::new();
        for _ in 0..count {
            streams.push(follows(&gateway, &session).await);
        }
        let turns = [
            "hello",
            "flood n=300 size=1000",
            "flood n=700 size=1000 rate=1000",
        ];
        let says = async {
            for turn in turns {
                gateway.turn(&session, turn).await;
            }
        };
        // The clients read slightly slower than the agent writes.
        let take = streams
            .iter_mut()
            .map(|stream| read_slowly(stream, turns.len(), Duration::from_millis(7)));
        let ((), received) = tokio::join!(says, futures_util::future::join_all(take));
        let log = gateway.all_events(&session).await;
        for (number, received) in received.into_iter().enumerate() {
            assert!(
                received == log,
                "stream {number} of {count}: {} events of {}",
                received.len(),
                log.len()
            );
        }
    }
}
