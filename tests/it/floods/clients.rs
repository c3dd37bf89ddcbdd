//! Clients without a key, and the neighbours that they must not lock out.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::frames::ends;
use crate::support::gateway::KEY;
use crate::support::{Gateway, Setup};

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection from an address of the loopback network.
pub(crate) async fn connect_from(address: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((address, 0).into())?;
    socket.connect(to).await
}

/// Sends a request over a connection that stays open, and reads the head of the response. Returns its status.
pub(crate) async fn ask(socket: &mut TcpStream, path: &str, key: Option<&str>) -> io::Result<u16> {
    let host = socket.peer_addr()?;
    let key = key
        .map(|key| format!("authorization: Bearer {key}\r\n"))
        .unwrap_or_default();
    socket
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{key}\r\n").as_bytes())
        .await?;
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        if socket.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let text = String::from_utf8_lossy(&answer);
    Ok(text
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status"))
}

async fn ask_in_time(socket: &mut TcpStream, path: &str, key: Option<&str>) -> io::Result<u16> {
    tokio::time::timeout(PATIENCE, ask(socket, path, key))
        .await
        .expect("in time")
}

/// The sockets that do not end while the test waits for each.
async fn still_open(sockets: Vec<TcpStream>, wait: Duration) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for mut socket in sockets {
        if !ends(&mut socket, wait).await {
            open.push(socket);
        }
    }
    open
}

const ONE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

async fn open(gateway: &Gateway, from: Ipv4Addr) -> TcpStream {
    connect_from(from, gateway.address())
        .await
        .expect("it listens")
}

#[tokio::test]
async fn client_evicts_the_oldest_unauthenticated_connection_of_its_address() {
    let gateway = Setup::fake(&[])
        .settings("server.max_connections_per_address = 4")
        .start();
    let mut neighbour = open(&gateway, OTHER).await;
    let mut keyed = open(&gateway, ONE).await;
    assert_eq!(
        ask_in_time(&mut keyed, "/v1", Some(KEY))
            .await
            .expect("an answer"),
        200
    );
    // A request without a key, or with a wrong one, does not authenticate a connection.
    let mut silent = open(&gateway, ONE).await;
    let mut public = open(&gateway, ONE).await;
    assert_eq!(
        ask_in_time(&mut public, "/livez", None)
            .await
            .expect("an answer"),
        200
    );
    let mut wrong = open(&gateway, ONE).await;
    assert_eq!(
        ask_in_time(&mut wrong, "/v1", Some("acpg_wrong"))
            .await
            .expect("an answer"),
        401
    );
    let mut newcomers = Vec::new();
    for evicted in [&mut silent, &mut public, &mut wrong] {
        let mut newcomer = open(&gateway, ONE).await;
        assert_eq!(
            ask_in_time(&mut newcomer, "/v1", Some(KEY))
                .await
                .expect("an answer"),
            200
        );
        newcomers.push(newcomer);
        assert!(
            ends(evicted, PATIENCE).await,
            "the oldest connection made room"
        );
    }
    assert_eq!(
        ask_in_time(&mut keyed, "/v1", Some(KEY))
            .await
            .expect("it is open"),
        200
    );
    assert_eq!(
        ask_in_time(&mut neighbour, "/v1", Some(KEY))
            .await
            .expect("it is open"),
        200
    );
}

#[tokio::test]
async fn authenticated_connections_are_never_evicted() {
    let gateway = Setup::fake(&[])
        .settings("server.max_connections_per_address = 4")
        .start();
    let mut keyed = Vec::new();
    for _ in 0..4 {
        let mut socket = open(&gateway, ONE).await;
        assert_eq!(
            ask_in_time(&mut socket, "/v1", Some(KEY))
                .await
                .expect("an answer"),
            200
        );
        keyed.push(socket);
    }
    for _ in 0..20 {
        let mut newcomer = open(&gateway, ONE).await;
        assert!(
            ends(&mut newcomer, PATIENCE).await,
            "nothing can be evicted"
        );
    }
    for socket in &mut keyed {
        assert_eq!(
            ask_in_time(socket, "/v1", Some(KEY))
                .await
                .expect("it is open"),
            200
        );
    }
}

#[tokio::test]
async fn one_address_cannot_evict_the_connections_of_another() {
    let gateway = Setup::fake(&[])
        .settings("server.max_connections = 40")
        .start();
    let mut neighbour = open(&gateway, OTHER).await;
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(open(&gateway, ONE).await);
    }
    let mut newcomer = open(&gateway, OTHER).await;
    for socket in [&mut neighbour, &mut newcomer] {
        assert_eq!(
            ask_in_time(socket, "/v1", Some(KEY))
                .await
                .expect("it is open"),
            200
        );
    }
    // The others wait for a place and are evicted in turn.
    let deadline = Instant::now() + PATIENCE;
    while flood.len() > 5 && Instant::now() < deadline {
        flood = still_open(flood, Duration::from_millis(2)).await;
    }
    assert_eq!(
        still_open(flood, Duration::from_millis(100)).await.len(),
        5,
        "an eighth of all connections"
    );
}

#[tokio::test]
async fn trusted_proxy_has_no_share_of_its_own() {
    let settings = "server.max_connections = 40\nserver.trusted_proxies = [\"127.0.0.2\"]\nserver.public_url = \"https://gateway.example\"";
    let gateway = Setup::fake(&[]).settings(settings).start();
    let mut proxied = Vec::new();
    for _ in 0..20 {
        proxied.push(open(&gateway, OTHER).await);
    }
    for socket in &mut proxied {
        assert_eq!(
            ask_in_time(socket, "/livez", None)
                .await
                .expect("it is open"),
            200
        );
    }
    // The connections of the proxy use all 20 places of unauthenticated connections.
    let mut direct = open(&gateway, ONE).await;
    assert_eq!(
        ask_in_time(&mut direct, "/v1", Some(KEY))
            .await
            .expect("an answer"),
        200
    );
    assert!(
        ends(&mut proxied[0], PATIENCE).await,
        "the oldest connection made room"
    );
}
