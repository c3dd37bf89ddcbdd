//! Slow clients are closed by their deadlines while a thousand of them are open.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::frames::ends;
use crate::support::{Setup, figure};

const SLOW: usize = 1000;

/// The longest time that a slow client may stay: the timeout of a head, and the time of a busy machine.
const LONGEST: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_thousand_slow_clients_are_closed_by_their_deadlines() {
    // With the default limits, new connections would evict half of these.
    let limits = "server.max_connections = 9000\ntesting.max_unauthenticated_connections = 4500\ntesting.max_unauthenticated_connections_per_address = 1100\ntesting.header_timeout = \"4s\"";
    let gateway = Setup::fake(&[]).settings(limits).start();
    let host = gateway.address();
    let mut slow = JoinSet::new();
    for number in 0..SLOW {
        slow.spawn(async move {
            let mut socket = TcpStream::connect(host).await.expect("it listens");
            let opened = Instant::now();
            let (start, piece): (String, &[u8]) = match number % 4 {
                0 => (String::new(), b""),
                1 => (format!("GET /v1 HTTP/1.1\r\nhost: {host}\r\nx-slow: "), b"x"),
                2 => ("PRI * HTTP/2.0\r\n".to_owned(), b""),
                _ => (
                    format!("POST /v1/sessions HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1000\r\n\r\n"),
                    b" ",
                ),
            };
            drop(socket.write_all(start.as_bytes()).await);
            let (mut receive, mut send) = socket.into_split();
            let dribble = async {
                while send.write_all(piece).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                ended = ends(&mut receive, LONGEST) => assert!(ended, "client {number} is still open"),
                () = dribble => {}
            }
            opened.elapsed()
        });
    }
    let longest = slow
        .join_all()
        .await
        .into_iter()
        .max()
        .expect("there are many");
    figure(&format!(
        "{SLOW} slow clients: the last one ended after {longest:?}"
    ));
}
