use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse as _;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::server::{Acceptor, BoundListeners, serve};
use crate::stream::StreamWorkers;
use base::shutdown::Shutdown;

fn acceptor() -> Acceptor {
    Acceptor {
        limits: Arc::default(),
        stream_limits: Arc::default(),
        proxies: Vec::new(),
        require_proxy: false,
        stream_workers: StreamWorkers::start().unwrap(),
        connection_use: crate::server::ConnectionUse::default(),
        shutdown: Shutdown::new(),
    }
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("the future completes in time")
}

/// The response of one connection, up to a chunk that contains `last` or to the end of the connection.
async fn request(stream: &mut TcpStream, path: &str, last: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let mut chunk = [0; 1024];
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
    let body = || {
        futures_util::stream::once(async {
            panic!("on purpose") as Result<bytes::Bytes, std::io::Error>
        })
    };
    let router = Router::new()
        .route("/panics", get(panics))
        .route(
            "/panics-later",
            get(move || async move { Body::from_stream(body()).into_response() }),
        )
        .route("/fine", get(|| async { "it is fine" }))
        .layer(CatchPanicLayer::custom(panic_response));
    let acceptor = acceptor();
    let shutdown = acceptor.shutdown.clone();
    let listeners = BoundListeners::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listeners.local_addr().unwrap();
    drop(shutdown.spawn_critical(serve(listeners.register().unwrap(), router, acceptor)));

    let mut first = TcpStream::connect(address).await.unwrap();
    assert!(
        request(&mut first, "/panics", "\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 500 ")
    );
    assert!(
        request(&mut first, "/fine", "fine")
            .await
            .starts_with("HTTP/1.1 200 "),
        "the connection serves the next request"
    );
    let mut second = TcpStream::connect(address).await.unwrap();
    let cut = request(&mut second, "/panics-later", "0\r\n\r\n").await;
    assert!(
        !cut.contains("0\r\n\r\n"),
        "a truncated response must not look complete: {cut}"
    );
    assert!(
        request(&mut first, "/fine", "fine")
            .await
            .starts_with("HTTP/1.1 200 "),
        "other connections are not affected"
    );
    shutdown.start_drain();
    assert!(in_time(shutdown.wait_for_tasks(Duration::from_secs(10))).await);
}
