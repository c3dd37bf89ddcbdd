//! Each known flood of HTTP/2 frames closes its connection, and ordinary clients are not affected.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::frames::{
    ACK, DATA, END_HEADERS, END_STREAM, Flood, HEADERS, PING, RST_STREAM, WINDOW_UPDATE, frame,
    get, open, stream, until,
};
use crate::support::{Gateway, Setup, eventually, figure};

const PATIENCE: Duration = Duration::from_secs(10);
/// The number of frames that a client tries to send.
const FRAMES: u32 = 200_000;

fn gateway() -> Gateway {
    Setup::fake(&[]).start()
}

/// Floods a gateway. The connection ends soon, and the gateway serves other clients.
async fn closes(name: &str) -> Gateway {
    let gateway = gateway();
    let host = gateway.address();
    let run = Flood::named(name, host).run(host, FRAMES, PATIENCE).await;
    let (sent, ended) = run.expect("it listens");
    figure(&format!("{name}: closed after at most {sent} frames"));
    assert!(ended, "{name}: {sent} frames were sent");
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    gateway
}

/// Checks that the limiter closed a connection because of this type of frame.
async fn assert_limited(gateway: &Gateway, name: &str) {
    eventually("the log has the flood", PATIENCE, || async {
        let log = gateway.log();
        let line = log
            .lines()
            .find(|line| line.contains("closed an HTTP/2 connection"))?;
        assert!(line.contains(&format!("\"{name}\"")), "{line}");
        Some(())
    })
    .await;
}

#[tokio::test]
async fn priority_flood_closes_the_connection() {
    assert_limited(&closes("priority").await, "PRIORITY").await;
}

#[tokio::test]
async fn settings_flood_closes_the_connection() {
    assert_limited(&closes("settings").await, "SETTINGS").await;
}

#[tokio::test]
async fn ping_flood_closes_the_connection() {
    assert_limited(&closes("ping").await, "PING").await;
}

#[tokio::test]
async fn acknowledgement_flood_closes_the_connection() {
    assert_limited(&closes("acknowledgement").await, "PING").await;
}

#[tokio::test]
async fn window_update_flood_closes_the_connection() {
    assert_limited(&closes("window update").await, "WINDOW_UPDATE").await;
}

#[tokio::test]
async fn empty_data_flood_closes_the_connection() {
    // h2 can reject frames of the rejected request before the limiter does.
    closes("empty data").await;
}

#[tokio::test]
async fn flood_of_single_bytes_closes_the_connection() {
    assert_limited(&closes("single bytes").await, "DATA").await;
}

#[tokio::test]
async fn flood_of_unknown_frames_closes_the_connection() {
    assert_limited(&closes("unknown").await, "unknown").await;
}

#[tokio::test]
async fn continuation_flood_closes_the_connection() {
    assert_limited(&closes("continuation").await, "CONTINUATION").await;
    // h2 can reject a large header block before the limiter does.
    closes("large continuation").await;
}

#[tokio::test]
async fn rapid_reset_closes_the_connection() {
    closes("rapid reset").await;
}

#[tokio::test]
async fn requests_that_the_gateway_must_reset_close_the_connection() {
    closes("reset by the gateway").await;
}

#[tokio::test]
async fn flood_of_requests_without_a_window_closes_the_connection() {
    closes("requests without a window").await;
}

/// The number of resets until the connection ends, if each request is accepted before its reset.
async fn resets(host: SocketAddr, most: u32) -> Option<u32> {
    let block = get("/livez", host);
    let mut socket = open(host, &[]).await.expect("it listens");
    for number in 0..most {
        let id = stream(number);
        let request = frame(HEADERS, END_HEADERS | END_STREAM, id, &block);
        let exchange = async {
            // The acknowledgement shows that the gateway has read the request.
            socket
                .write_all(&[request, frame(PING, 0, 0, b"accepted")].concat())
                .await?;
            until(&mut socket, PING, ACK).await?;
            socket
                .write_all(&frame(RST_STREAM, 0, id, &[0, 0, 0, 8]))
                .await
        };
        let done = tokio::time::timeout(PATIENCE, exchange)
            .await
            .expect("an answer in time");
        if done.is_err() {
            return Some(number);
        }
    }
    None
}

#[tokio::test]
async fn reset_after_each_accepted_request_closes_the_connection() {
    let gateway = gateway();
    let ended = resets(gateway.address(), 20_000).await;
    figure(&format!(
        "RST_STREAM: closed after {ended:?} accepted requests"
    ));
    assert_limited(&gateway, "RST_STREAM").await;
}

#[tokio::test]
async fn client_that_resets_a_few_hundred_requests_stays_connected() {
    let gateway = gateway();
    assert_eq!(resets(gateway.address(), 400).await, None);
    assert!(
        !gateway.log().contains("closed an HTTP/2 connection"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn pings_and_windows_of_ordinary_clients_are_not_limited() {
    let gateway = gateway();
    let host = gateway.address();
    let block = get("/favicon.svg", host);
    let mut socket = open(host, &[]).await.expect("it listens");
    // Each response returns more tokens than its frames cost.
    for number in 0..2000 {
        let id = stream(number);
        let mut frames = frame(HEADERS, END_HEADERS | END_STREAM, id, &block);
        frames.extend(frame(PING, 0, 0, b"measured"));
        for part in [0, id].repeat(3) {
            frames.extend(frame(WINDOW_UPDATE, 0, part, &[0, 0, 0x40, 0]));
        }
        socket.write_all(&frames).await.expect("it is open");
        let answered = tokio::time::timeout(PATIENCE, until(&mut socket, DATA, END_STREAM)).await;
        answered.expect("in time").expect("a response");
    }
}
