//! A reverse proxy that serves the gateway below a path, and removes the path from requests.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The path of the proxy, which the gateway does not see.
pub(crate) const PATH: &str = "/tools/gateway";

/// A proxy whose address is known before the gateway starts.
pub(crate) struct PrefixProxy {
    listener: TcpListener,
}

/// A proxy that runs.
pub(crate) struct Served {
    /// The URL of the gateway for clients, without a slash at the end.
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The treatment of the `Host` of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    Kept,
    /// The gateway gets its own address, and `X-Forwarded-For`.
    Replaced,
}

impl PrefixProxy {
    pub(crate) async fn bind() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.expect("a free port"),
        }
    }

    /// The setting `server.public_url` of the gateway.
    pub(crate) fn url(&self) -> String {
        format!(
            "http://{}{PATH}",
            self.listener.local_addr().expect("it is bound")
        )
    }

    /// Forwards requests to the gateway at this URL.
    #[expect(
        clippy::disallowed_methods,
        reason = "the test's own task, ended with the proxy"
    )]
    pub(crate) fn serve(self, gateway: &str, host: Host) -> Served {
        let to: SocketAddr = gateway
            .trim_start_matches("http://")
            .parse()
            .expect("an address");
        let url = self.url();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = self.listener.accept().await {
                connections.spawn(forward(client, to, host));
            }
        });
        Served { url, task }
    }
}

/// Forwards one request, whose connection ends with it.
async fn forward(mut client: TcpStream, to: SocketAddr, host: Host) -> io::Result<()> {
    let mut read = Vec::new();
    let head = loop {
        if let Some(at) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            break at;
        }
        if client.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    };
    let body = read.split_off(head + 4);
    read.truncate(head);
    let text = String::from_utf8(read).expect("a head is text");
    let (line, headers) = text.split_once("\r\n").expect("a request line");
    let (method, target) = line.split_once(' ').expect("a method");
    let Some(target) = target
        .strip_prefix(PATH)
        .filter(|rest| rest.starts_with('/'))
    else {
        let answer =
            "HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\nconnection: close\r\n\r\nproxy";
        return client.write_all(answer.as_bytes()).await;
    };
    let is_upgrade = headers.to_ascii_lowercase().contains("upgrade: websocket");
    let mut forwarded = vec![format!("{method} {target}")];
    for header in headers.split_terminator("\r\n") {
        let name = header
            .split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        match name.as_str() {
            "host" if host == Host::Replaced => {
                forwarded.extend([
                    format!("Host: {to}"),
                    "X-Forwarded-For: 192.0.2.1".to_owned(),
                ]);
            }
            "connection" if !is_upgrade => {}
            _ => forwarded.push(header.to_owned()),
        }
    }
    if !is_upgrade {
        forwarded.push("Connection: close".to_owned());
    }
    let forwarded = format!("{}\r\n\r\n", forwarded.join("\r\n"));
    let mut gateway = TcpStream::connect(to).await?;
    gateway.write_all(forwarded.as_bytes()).await?;
    gateway.write_all(&body).await?;
    copy_bidirectional(&mut client, &mut gateway)
        .await
        .map(drop)
}
