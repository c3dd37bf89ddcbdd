//! The memory of bodies and messages that clients with a key send and do not complete.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::ALONE;
use crate::key_life::key;
use crate::support::gateway::KEY;
use crate::support::{Answer, Setup, chat_turns, eventually, figure, procfs};

const STALLED: usize = 200;
const KEYS: usize = 6;
const MIB: usize = 1 << 20;
const MOST_MEMORY_KIB: u64 = 256 << 10;
const REMAINING_MEMORY_KIB: u64 = 64 << 10;
/// How long a client waits for a response to its incomplete body.
const PATIENCE: Duration = Duration::from_mins(1);

/// A surface with a body. `method`: `None` for a WebSocket. `mib`: the size of its largest body.
#[derive(Clone, Copy)]
struct Surface {
    method: Option<&'static str>,
    path: &'static str,
    mib: usize,
}

const fn surface(method: &'static str, path: &'static str, mib: usize) -> Surface {
    let method = Some(method);
    Surface { method, path, mib }
}

const fn socket(path: &'static str, mib: usize) -> Surface {
    let method = None;
    Surface { method, path, mib }
}

/// The surfaces without the routes of chat protocols that begin turns.
const SURFACES: [Surface; 7] = [
    surface("POST", "/v1/sessions", 10),
    surface("POST", "/v1/broadcasts", 1),
    surface("PUT", "/v1/sessions/{session}/files/large", 16),
    surface("POST", "/acp", 10),
    socket("/acp", 10),
    socket("/v1/fleet/connect", 0),
    surface("POST", "/openai/v1/conversations", 32),
];

/// Sends the start of a body, without its last byte, and keeps the connection. Returns the status of a rejection.
async fn stall(
    host: std::net::SocketAddr,
    key: &str,
    session: &str,
    surface: Surface,
) -> (TcpStream, Option<u16>) {
    let path = surface.path.replace("{session}", session);
    let bytes = (surface.mib * MIB).max(256 << 10);
    let mut socket = TcpStream::connect(host).await.expect("it listens");
    let head = match surface.method {
        None => format!(
            "GET {path} HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        ),
        Some(method) => format!(
            "{method} {path} HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n"
        ),
    };
    let head = head + &format!("host: {host}\r\nauthorization: Bearer {key}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.expect("it reads");
    if surface.method.is_none() {
        let mut answer = Vec::new();
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            if socket.read_buf(&mut answer).await.unwrap_or(0) == 0 {
                return (socket, Some(0));
            }
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{path}");
        // One masked text frame with a length of 64 bits. The mask is zero.
        let mut frame = vec![0x81, 0xff];
        frame.extend((bytes as u64).to_be_bytes());
        frame.extend([0; 4]);
        drop(socket.write_all(&frame).await);
    }
    let piece = vec![b' '; 256 << 10];
    let mut left = bytes - 1;
    while left > 0 {
        let part = left.min(piece.len());
        if socket.write_all(&piece[..part]).await.is_err() {
            break;
        }
        left -= part;
    }
    let mut answer = vec![0; 64];
    let read = tokio::time::timeout(Duration::from_secs(2), socket.read(&mut answer)).await;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = read.is_ok().then(|| status.unwrap_or(0));
    (socket, status)
}

#[tokio::test]
async fn stalled_bodies_of_clients_with_keys_use_bounded_memory_and_return_it() {
    let _alone = ALONE.lock().await;
    let gateway = Setup::fake(&[])
        .settings("testing.body_timeout = \"120s\"")
        .start();
    let mut keys = vec![KEY.to_owned()];
    for number in 1..KEYS {
        keys.push(key(&gateway, &format!("key{number}"), "admin").await);
    }
    let session = gateway.session("fake").await;
    let chats = chat_turns().map(|(path, _)| surface("POST", path, 32));
    let surfaces = [&SURFACES[..], &chats[..]].concat();
    let idle = procfs::resident(gateway.pid());
    let mut clients = JoinSet::new();
    for number in 0..STALLED {
        let key = keys[number % KEYS].clone();
        let host = gateway.address();
        let session = session.clone();
        let surface = surfaces[number % surfaces.len()];
        clients.spawn(async move { stall(host, &key, &session, surface).await });
    }
    let mut sockets = Vec::new();
    let mut rejected = Vec::new();
    let joined = async {
        while let Some(client) = clients.join_next().await {
            let stalled = client.expect("a client does not panic");
            sockets.push(stalled.0);
            rejected.extend(stalled.1);
        }
    };
    tokio::time::timeout(PATIENCE, joined)
        .await
        .expect("each client has stalled");
    let most = procfs::highest(gateway.pid()) - idle;
    let full = |code: u16| rejected.iter().filter(|status| **status == code).count();
    figure(&format!(
        "{STALLED} stalled bodies: {most} KiB over {idle} KiB when idle, {} rejected with 429, {} with 503",
        full(429),
        full(503)
    ));
    assert!(most < MOST_MEMORY_KIB, "{most} KiB over {idle} KiB");
    assert!(full(429) + full(503) > 0, "{rejected:?}");
    let answer = Answer::of(gateway.request(reqwest::Method::GET, "/v1")).await;
    assert_eq!(answer.status, 200, "reads continue");
    drop(sockets);
    eventually("the memory returns", Duration::from_secs(30), || async {
        let resident = procfs::resident(gateway.pid());
        (resident < idle + REMAINING_MEMORY_KIB).then_some(())
    })
    .await;
    figure(&format!(
        "after they closed: {} KiB",
        procfs::resident(gateway.pid())
    ));
    let turn = gateway
        .turn(&gateway.session("fake").await, "echo next")
        .await;
    assert_eq!(turn["text"], "next", "bodies are accepted again");
}
