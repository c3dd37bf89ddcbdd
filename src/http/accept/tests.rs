use axum::response::IntoResponse;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_http::catch_panic::CatchPanicLayer;

use super::*;
use crate::http::layers;

fn acceptor(limits: Limits, proxies: Vec<Network>) -> Acceptor {
    Acceptor {
        limits: Arc::new(limits),
        proxies,
        require_proxy: false,
        stream_workers: StreamWorkers::start().unwrap(),
        shutdown: Shutdown::new(),
    }
}

#[test]
fn only_proxies_and_loopback_are_accepted_behind_a_proxy() {
    let open = acceptor(Limits::default(), vec!["10.0.0.0/8".parse().unwrap()]);
    let behind = Acceptor { require_proxy: true, ..open.clone() };
    for (peer, served) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("127.0.0.1", true),
        ("::1", true),
        ("::ffff:127.0.0.1", true),
        ("192.0.2.1", false),
        ("2001:db8::1", false),
    ] {
        let peer = peer.parse().unwrap();
        assert_eq!((behind.accepts_peer(peer), open.accepts_peer(peer)), (served, true), "{peer}");
    }
}

#[test]
fn aborted_connections_do_not_end_the_accept_queue() {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    let mut queue = [Ok(1), Err(ConnectionAborted), Ok(2), Err(Interrupted), Ok(3), Err(WouldBlock), Ok(4)]
        .map(|accepted| accepted.map_err(io::Error::from))
        .into_iter();
    let taken: Vec<_> =
        drain_accept_queue(|| queue.next().expect("the iterator stops at the end of the queue")).collect();
    assert_eq!(taken, [1, 2, 3]);
    assert_eq!(
        drain_accept_queue(|| Err::<(), _>(ConnectionAborted.into())).count(),
        0,
        "the iterator is bounded"
    );
}

#[test]
fn connections_are_limited_in_total_and_per_address_except_proxies() {
    let limits = Limits { max_connections: 4, max_connections_per_address: 2, ..Limits::default() };
    let connections = Connections::new(&acceptor(limits, vec!["10.0.0.0/8".parse().unwrap()]));
    let take = |address: &str| connections.acquire(address.parse().unwrap());
    let first = take("192.0.2.1").unwrap();
    let _second = take("::ffff:192.0.2.1").unwrap();
    assert!(take("192.0.2.1").is_none(), "an IPv4 address and its IPv6-mapped form are the same address");
    let _proxied: Vec<_> = (0..2).map(|_| take("10.0.0.1").unwrap()).collect();
    assert!(take("192.0.2.2").is_none(), "the total limit is reached");
    drop(first);
    assert!(take("192.0.2.1").is_some());
    assert_eq!(connections.all.count(&()), 3);
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("the future completes in time")
}

/// The response of one connection, up to a chunk that contains `last` or to the end of the connection.
async fn request(stream: &mut TcpStream, path: &str, last: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut answer, mut chunk) = (String::new(), [0; 1024]);
    while !answer.contains(last) {
        match in_time(stream.read(&mut chunk)).await {
            Ok(0) | Err(_) => break,
            Ok(read) => answer.push_str(std::str::from_utf8(&chunk[..read]).unwrap()),
        }
    }
    answer
}

#[tokio::test]
async fn a_handler_panic_is_a_500_for_its_request_only() {
    async fn panics() -> &'static str {
        panic!("on purpose")
    }
    let body =
        || futures_util::stream::once(async { panic!("on purpose") as Result<bytes::Bytes, std::io::Error> });
    let router = Router::new()
        .route("/panics", get(panics))
        .route("/panics-later", get(move || async move { Body::from_stream(body()).into_response() }))
        .route("/fine", get(|| async { "it is fine" }))
        .layer(CatchPanicLayer::custom(layers::panic_response));
    let acceptor = acceptor(Limits::default(), Vec::new());
    let shutdown = acceptor.shutdown.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(shutdown.spawn_critical(serve(listener, router, acceptor)));

    let mut first = TcpStream::connect(address).await.unwrap();
    assert!(request(&mut first, "/panics", "\r\n\r\n").await.starts_with("HTTP/1.1 500 "));
    assert!(
        request(&mut first, "/fine", "fine").await.starts_with("HTTP/1.1 200 "),
        "the connection serves the next request"
    );
    let mut second = TcpStream::connect(address).await.unwrap();
    let cut = request(&mut second, "/panics-later", "0\r\n\r\n").await;
    assert!(!cut.contains("0\r\n\r\n"), "a truncated response must not look complete: {cut}");
    assert!(
        request(&mut first, "/fine", "fine").await.starts_with("HTTP/1.1 200 "),
        "other connections are not affected"
    );
    shutdown.start_drain();
    assert!(in_time(shutdown.wait_for_tasks(Duration::from_secs(10))).await);
}
