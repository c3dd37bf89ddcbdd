//! More connections than the limit.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::gateway::KEY;
use crate::support::lean::{Kept, Lean};
use crate::support::{Gateway, History, Setup, eventually, procfs};

const CONNECTIONS: usize = 40;
const NEWCOMERS: usize = 400;

async fn connect(gateway: &Gateway) -> TcpStream {
    TcpStream::connect(gateway.address())
        .await
        .expect("it listens")
}

/// Opens streams up to the limit. Another client's rejected connection had used the last place.
async fn fill(gateway: &Gateway, session: &str) -> Vec<(Kept, Lean)> {
    let mut held = Vec::new();
    loop {
        let mut client = Kept::new(gateway, session);
        match client.connect(gateway.address()).await {
            Ok(stream) => held.push((client, stream)),
            Err(_) => return held,
        }
    }
}

/// A connection above the limit is closed immediately and affects no other connection.
async fn full(limits: &str) {
    // A waiting connection is not closed because other connections open and close.
    let gateway = Setup::fake(&[])
        .settings(&format!("{limits}\ntesting.header_timeout = \"2m\""))
        .start();
    let session = gateway.session("fake").await;
    // The one through which the turn is asked for.
    let mut control = connect(&gateway).await;
    let host = gateway.address();
    // A connection without a key would be evicted.
    let first = format!("GET /v1 HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\r\n");
    control
        .write_all(first.as_bytes())
        .await
        .expect("it is open");
    assert!(
        control
            .read(&mut [0; 1024])
            .await
            .is_ok_and(|read| read > 0),
        "an answer"
    );
    let held = fill(&gateway, &session).await;
    assert!(held.len() > CONNECTIONS / 2, "{} streams", held.len());
    let port = host.port();
    let connections = procfs::connections(port);

    let body = json!({ "prompt": "flood n=50 rate=50" }).to_string();
    let length = body.len();
    let request = format!(
        "POST /v1/sessions/{session}/prompts HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    control
        .write_all(request.as_bytes())
        .await
        .expect("it is open");
    let newcomers = async {
        for _ in 0..NEWCOMERS {
            let mut newcomer = connect(&gateway).await;
            let closed =
                tokio::time::timeout(Duration::from_secs(10), newcomer.read(&mut [0; 1])).await;
            // A reset is a close too.
            assert_eq!(
                closed.expect("at once").unwrap_or(0),
                0,
                "no connection is served"
            );
        }
        // The kernel's list is not of one moment: while connections come and go, it can contain one twice.
        eventually("no connection is kept", Duration::from_secs(30), || async {
            (procfs::connections(port) <= connections + 8).then_some(())
        })
        .await;
    };
    let mut readers = JoinSet::new();
    for (mut client, mut stream) in held {
        readers.spawn(async move {
            client
                .read(&mut stream, "prompt.completed")
                .await
                .expect("existing connections stay open");
            (client, stream)
        });
    }
    let (read, ()) = tokio::join!(readers.join_all(), newcomers);
    let (clients, streams): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    drop((streams, control));
    eventually("there is room again", Duration::from_secs(10), || async {
        gateway
            .request(reqwest::Method::GET, "/v1")
            .send()
            .await
            .ok()
    })
    .await;
    History::kept(&gateway, &session, clients)
        .await
        .assert_holds();
}

#[tokio::test]
async fn full_gateway_rejects_new_connections_and_serves_existing_ones() {
    full(&format!("server.max_connections = {CONNECTIONS}")).await;
}

#[tokio::test]
async fn address_at_its_connection_limit_keeps_existing_connections() {
    full(&format!(
        "server.max_connections_per_address = {CONNECTIONS}"
    ))
    .await;
}
