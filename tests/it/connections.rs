//! No peer can stop or block the accept loop permanently.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::gateway::KEY;
use crate::support::{Gateway, Setup};

const LIMIT: Duration = Duration::from_secs(1);
/// How much later than its limit a connection may close, on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

async fn connect(gateway: &Gateway) -> TcpStream {
    let address = gateway.url.trim_start_matches("http://");
    TcpStream::connect(address).await.expect("it listens")
}

/// Everything until the peer closes; panics when it does not.
async fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let closed = tokio::time::timeout(LIMIT + SLACK, stream.read_to_end(&mut bytes)).await;
    // A reset is a close too.
    drop(closed.expect("the connection closes in time"));
    bytes
}

fn hurried() -> Gateway {
    Setup::fake(&[])
        .settings("testing.header_timeout = \"1s\"\ntesting.body_timeout = \"1s\"\ntesting.write_stall_timeout = \"1s\"\ntimeouts.keep_alive_interval = \"200ms\"")
        .start()
}

#[tokio::test]
async fn silent_or_slow_head_is_closed() {
    let gateway = hurried();
    let began = Instant::now();
    let mut silent = connect(&gateway).await;
    let mut dribbling = connect(&gateway).await;
    dribbling
        .write_all(b"GET /v1 HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
        .await
        .expect("it is open");
    let dribble = async {
        while dribbling.write_all(b"x").await.is_ok() && began.elapsed() < LIMIT + SLACK {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(
            began.elapsed() < LIMIT + SLACK,
            "a dribbled head was waited for"
        );
    };
    let (received, ()) = tokio::join!(until_closed(&mut silent), dribble);
    assert_eq!(received, b"");
    assert!(began.elapsed() >= LIMIT, "others may take their time");
}

/// Asks over a connection that stays open.
async fn ask(stream: &mut TcpStream, gateway: &Gateway) {
    let head = format!(
        "GET /readyz HTTP/1.1\r\nhost: {}\r\n\r\n",
        gateway.address()
    );
    stream.write_all(head.as_bytes()).await.expect("it is open");
    let mut answer = Vec::new();
    let mut piece = [0; 1024];
    while !answer.ends_with(b"\r\n\r\nok") {
        let read = tokio::time::timeout(SLACK, stream.read(&mut piece)).await;
        let read = read.expect("in time").expect("an answer");
        assert_ne!(
            read,
            0,
            "it was closed: {}",
            String::from_utf8_lossy(&answer)
        );
        answer.extend_from_slice(&piece[..read]);
    }
    assert!(
        answer.starts_with(b"HTTP/1.1 200 OK"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[tokio::test]
async fn connection_after_a_request_may_idle_longer_but_not_send_a_head_longer() {
    let limits = "testing.header_timeout = \"1s\"\ntesting.connection_idle_timeout = \"8s\"";
    let gateway = Setup::fake(&[]).settings(limits).start();
    let mut resting = connect(&gateway).await;
    ask(&mut resting, &gateway).await;
    tokio::time::sleep(LIMIT * 2).await;
    let began = Instant::now();
    ask(&mut resting, &gateway).await;
    assert_eq!(until_closed(&mut resting).await, b"");
    assert!(began.elapsed() >= LIMIT * 8, "{:?}", began.elapsed());

    let gateway = Setup::fake(&[])
        .settings("testing.header_timeout = \"1s\"\ntesting.connection_idle_timeout = \"2m\"")
        .start();
    let mut dribbling = connect(&gateway).await;
    ask(&mut dribbling, &gateway).await;
    dribbling
        .write_all(b"GET /v1 HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
        .await
        .expect("it is open");
    let began = Instant::now();
    while dribbling.write_all(b"x").await.is_ok() && began.elapsed() < LIMIT + SLACK {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(
        began.elapsed() < LIMIT + SLACK,
        "a dribbled head was waited for"
    );
}

#[tokio::test]
async fn idle_connections_are_closed_sooner_near_the_limit() {
    let limits = "testing.header_timeout = \"1s\"\ntesting.connection_idle_timeout = \"2m\"\nserver.max_connections_per_address = 4";
    let gateway = Setup::fake(&[]).settings(limits).start();
    let mut resting = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&gateway).await;
        ask(&mut stream, &gateway).await;
        resting.push(stream);
    }
    let mut closed = futures_util::stream::FuturesUnordered::new();
    for stream in &mut resting {
        closed.push(stream.read_u8());
    }
    let first =
        tokio::time::timeout(LIMIT + SLACK, futures_util::StreamExt::next(&mut closed)).await;
    assert!(
        first.expect("in time").expect("one of three").is_err(),
        "it is closed"
    );
}

#[tokio::test]
async fn incomplete_http_2_preface_is_closed() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let gateway = hurried();
    let mut stalled = Vec::new();
    for sent in [1, 16, 23, 24] {
        let mut stream = connect(&gateway).await;
        stream
            .write_all(&PREFACE[..sent])
            .await
            .expect("it is open");
        stalled.push(stream);
    }
    for stream in &mut stalled {
        until_closed(stream).await;
    }
}

#[tokio::test]
async fn http_2_without_a_request_is_not_kept_open_by_pings() {
    let gateway = hurried();
    let (_client, connection) = h2::client::handshake(connect(&gateway).await)
        .await
        .expect("h2c");
    let ended = tokio::time::timeout(LIMIT + SLACK, connection).await;
    ended
        .expect("the connection closes in time")
        .expect("the server announced it");
}

type H2 = h2::client::SendRequest<bytes::Bytes>;

/// A connection whose streams accept this many bytes until the test opens their windows.
async fn h2(
    gateway: &Gateway,
    window: u32,
    tasks: &mut tokio::task::JoinSet<Result<(), h2::Error>>,
) -> H2 {
    let mut client = h2::client::Builder::new();
    let made = client
        .initial_window_size(window)
        .handshake(connect(gateway).await)
        .await;
    let (client, connection) = made.expect("h2c");
    tasks.spawn(connection);
    client
}

async fn h2_events(client: &mut H2, gateway: &Gateway, session: &str) -> h2::RecvStream {
    let request = http::Request::get(format!("{}/v1/sessions/{session}/events", gateway.url))
        .header("authorization", format!("Bearer {KEY}"))
        .header("accept", "text/event-stream")
        .body(())
        .expect("a request");
    let (response, _) = client.send_request(request, true).expect("a stream");
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), 200);
    response.into_body()
}

#[tokio::test]
async fn stalled_http_2_stream_is_reset_and_its_neighbour_is_not() {
    let gateway = Setup::fake(&[])
        .settings("testing.write_stall_timeout = \"3s\"\ntimeouts.keep_alive_interval = \"200ms\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "flood n=1000 size=200").await;
    let mut tasks = tokio::task::JoinSet::new();
    for window in [0, 1000] {
        let mut client = h2(&gateway, window, &mut tasks).await;
        let mut stalled = h2_events(&mut client, &gateway, &session).await;
        let reset = async {
            // Without a release of the data, the window stays closed.
            while let Some(chunk) = stalled.data().await {
                if let Err(error) = chunk {
                    return error;
                }
            }
            panic!("its end is no end of the events")
        };
        let error = tokio::time::timeout(LIMIT + SLACK, reset)
            .await
            .expect("it ends in time");
        assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
    }
    let mut client = h2(&gateway, 1000, &mut tasks).await;
    let mut neighbour = h2_events(&mut client, &gateway, &session).await;
    let _stalled = h2_events(&mut client, &gateway, &session).await;
    let began = Instant::now();
    while began.elapsed() < LIMIT * 6 {
        let chunk = tokio::time::timeout(SLACK, neighbour.data())
            .await
            .expect("in time");
        let length = chunk
            .expect("the stream goes on")
            .expect("the stream is not reset")
            .len();
        neighbour
            .flow_control()
            .release_capacity(length)
            .expect("it was taken");
    }
}

#[tokio::test]
async fn missing_body_times_out() {
    let gateway = hurried();
    let mut stream = connect(&gateway).await;
    let host = gateway.url.trim_start_matches("http://");
    let head = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"agent\":"
    );
    stream.write_all(head.as_bytes()).await.expect("it is open");
    let answer = String::from_utf8(until_closed(&mut stream).await).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("\"malformed\""), "{answer}");
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
}

#[tokio::test]
async fn a_still_stream_lives_by_comments_and_a_stalled_one_ends() {
    let gateway = hurried();
    let session = gateway.session("fake").await;
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    stream.until("ready").await;
    let began = Instant::now();
    let still = async {
        while stream.comments < 3 || began.elapsed() < LIMIT * 3 {
            drop(tokio::time::timeout(Duration::from_millis(50), stream.next()).await);
        }
    };
    tokio::time::timeout(LIMIT * 3 + SLACK, still)
        .await
        .expect("three comments");
    gateway.turn(&session, "hello").await;
    assert!(!stream.until("prompt.completed").await.is_empty());
}

#[tokio::test]
async fn stalled_stream_is_closed_and_can_resume() {
    let gateway = hurried();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "flood n=20000 size=200").await;
    let address: SocketAddr = gateway
        .url
        .trim_start_matches("http://")
        .parse()
        .expect("an address");
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket
        .set_recv_buffer_size(8 << 10)
        .expect("a small buffer");
    let mut stream = socket.connect(address).await.expect("it listens");
    let head = format!(
        "GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {KEY}\r\n\
         accept: text/event-stream\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("it is open");
    tokio::time::sleep(LIMIT * 3).await;
    let received = until_closed(&mut stream).await;
    assert!(received.starts_with(b"HTTP/1.1 200 OK"), "it had begun");
    assert!(
        received.len() < 2 << 20,
        "{} bytes were kept for it",
        received.len()
    );
    assert!(
        gateway.all_events(&session).await.len() > 20_000,
        "nothing is lost"
    );
}

#[tokio::test]
async fn smuggled_and_oversized_requests_are_refused_by_the_parser() {
    let gateway = Setup::fake(&[]).start();
    let host = gateway.url.trim_start_matches("http://");
    let large = "x".repeat(100_000);
    for (head, status) in [
        (
            format!("GET /v1 HTTP/1.1\r\nhost: {host}\r\nhost: evil\r\nconnection: close\r\n\r\n"),
            "400",
        ),
        (
            format!("GET http://evil/v1 HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"),
            "421",
        ),
        (
            "GET /v1 HTTP/1.1\r\nconnection: close\r\n\r\n".to_owned(),
            "400",
        ),
        (
            format!(
                "POST /v1/sessions HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx"
            ),
            "400",
        ),
        (
            format!("GET /v1 HTTP/1.1\r\nhost: {host}\r\nx-large: {large}\r\n\r\n"),
            "431",
        ),
        (format!("GET /v1 HTTP/1.1\r\nhost : {host}\r\n\r\n"), "400"),
        ("\u{16}\u{3}\u{1}nonsense\r\n\r\n".to_owned(), "400"),
    ] {
        let mut stream = connect(&gateway).await;
        // The response may arrive and the connection may close before the client has written everything.
        drop(stream.write_all(head.as_bytes()).await);
        let mut answer = [0; 12];
        tokio::time::timeout(SLACK, stream.read_exact(&mut answer))
            .await
            .expect("in time")
            .expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(
            answer,
            format!("HTTP/1.1 {status}"),
            "{}",
            &head[..head.len().min(80)]
        );
    }
}

#[tokio::test]
async fn one_address_has_only_so_many_connections() {
    let gateway = Setup::fake(&[])
        .settings("server.max_connections_per_address = 4")
        .start();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(connect(&gateway).await);
    }
    let mut fifth = connect(&gateway).await;
    assert_eq!(
        until_closed(&mut held[0]).await,
        b"",
        "the oldest connection is evicted"
    );
    for stream in held.iter_mut().skip(1).chain([&mut fifth]) {
        ask(stream, &gateway).await;
    }
    drop(held);
    let again =
        crate::support::eventually("a place is free again", Duration::from_secs(10), || async {
            gateway.request(Method::GET, "/v1").send().await.ok()
        });
    assert_eq!(again.await.status(), 200);
}

#[tokio::test]
async fn http_2_without_tls_is_spoken() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    let (mut client, connection) = h2::client::handshake(connect(&gateway).await)
        .await
        .expect("h2c");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection);
    let url = format!("{}/v1/sessions/{session}/events", gateway.url);
    // More streams than a browser may have connections.
    let mut streams = Vec::new();
    for _ in 0..20 {
        let request = http::Request::get(&url)
            .header("authorization", format!("Bearer {KEY}"))
            .header("accept", "text/event-stream")
            .body(())
            .expect("a request");
        let (response, _) = client.send_request(request, true).expect("a stream");
        let response = response.await.expect("an answer");
        assert_eq!(response.status(), 200);
        streams.push(response.into_body());
    }
    for stream in &mut streams {
        let mut text = Vec::new();
        while !text.windows(12).any(|part| part == b"event: ready") {
            let chunk = tokio::time::timeout(SLACK, stream.data())
                .await
                .expect("in time");
            let chunk = chunk.expect("the stream goes on").expect("it is whole");
            stream
                .flow_control()
                .release_capacity(chunk.len())
                .expect("it was taken");
            text.extend_from_slice(&chunk);
        }
        assert!(text.starts_with(b"retry: 1"));
    }
}
