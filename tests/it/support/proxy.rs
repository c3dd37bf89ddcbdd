//! A TCP proxy that plays the faults of a network between a client and the gateway.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::procfs;

/// The treatment of the bytes of one direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Pass,
    /// The proxy does not read the bytes, so the sender blocks.
    Stall,
    /// One byte, then a pause.
    Drip(Duration),
    /// They are kept until there are so many, or the sender has ended.
    Gather(usize),
    /// So many of a connection pass; then both ends get a reset.
    CutAfter(usize),
    /// The receiver sees an end of the stream. Later bytes are lost.
    HalfClosed,
}

/// Both directions of every existing and later connection.
#[derive(Debug, Clone, Copy)]
struct Rules {
    up: Flow,
    down: Flow,
    refuses: bool,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    rules: watch::Sender<Rules>,
    /// Ends all connections that are there.
    open: Arc<Mutex<CancellationToken>>,
    /// The port from which it reached the gateway last.
    port: Arc<AtomicU16>,
    to: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

impl Proxy {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test's own task, ended with the proxy"
    )]
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let rules = watch::Sender::new(Rules {
            up: Flow::Pass,
            down: Flow::Pass,
            refuses: false,
        });
        let open = Arc::new(Mutex::new(CancellationToken::new()));
        let port = Arc::new(AtomicU16::new(0));
        let connect = Connect {
            to,
            port: Arc::clone(&port),
        };
        let task = tokio::spawn(accept(listener, connect, rules.clone(), Arc::clone(&open)));
        Self {
            address,
            rules,
            open,
            port,
            to,
            task,
        }
    }

    /// Whether the gateway holds the connection that was made last.
    pub(crate) fn is_held(&self) -> bool {
        procfs::holds(self.to.port(), self.port.load(Ordering::Relaxed))
    }

    /// The direction to the gateway.
    pub(crate) fn up(&self, flow: Flow) {
        self.rules.send_modify(|rules| rules.up = flow);
    }

    /// The direction from the gateway.
    pub(crate) fn down(&self, flow: Flow) {
        self.rules.send_modify(|rules| rules.down = flow);
    }

    /// Whether new connections are reset at once.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.rules.send_modify(|rules| rules.refuses = refuses);
    }

    /// Resets all connections, at both ends.
    pub(crate) fn cut(&self) {
        let mut open = self.open.lock().expect("nobody panics with it");
        std::mem::take(&mut *open).cancel();
    }
}

/// Closes with a reset instead of a farewell.
fn resets(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))
        .expect("a socket has this option");
}

#[expect(
    clippy::disallowed_methods,
    reason = "tasks of the test, which end with their connections"
)]
async fn accept(
    listener: TcpListener,
    connect: Connect,
    rules: watch::Sender<Rules>,
    open: Arc<Mutex<CancellationToken>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        if rules.borrow().refuses {
            resets(&client);
            continue;
        }
        let rules = rules.subscribe();
        let cut = open.lock().expect("nobody panics with it").clone();
        let connect = connect.clone();
        tokio::spawn(async move {
            if let Ok(server) = connect.connect().await {
                carry(client, server, rules, cut).await;
            }
        });
    }
}

/// The way to the gateway.
#[derive(Clone)]
struct Connect {
    to: SocketAddr,
    port: Arc<AtomicU16>,
}

impl Connect {
    /// Small buffers, so that the kernel does not hide unread bytes.
    async fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(64 << 10)?;
        let stream = socket.connect(self.to).await?;
        self.port
            .store(stream.local_addr()?.port(), Ordering::Relaxed);
        Ok(stream)
    }
}

/// Both directions, until both have ended or one is cut.
async fn carry(
    client: TcpStream,
    server: TcpStream,
    rules: watch::Receiver<Rules>,
    cut: CancellationToken,
) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("a socket has this option");
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut up = Direction {
        from: from_client,
        to: to_server,
        rules: rules.clone(),
        of: |rules| rules.up,
        passed: 0,
    };
    let mut down = Direction {
        from: from_server,
        to: to_client,
        rules,
        of: |rules| rules.down,
        passed: 0,
    };
    let farewell = tokio::select! {
        both = async { tokio::try_join!(up.pump(), down.pump()) } => both.is_ok(),
        () = cut.cancelled() => false,
    };
    if !farewell {
        for stream in [down.to.as_ref(), up.to.as_ref()] {
            resets(stream);
        }
    }
}

struct Direction {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    rules: watch::Receiver<Rules>,
    of: fn(&Rules) -> Flow,
    passed: usize,
}

impl Direction {
    /// Fails when the connection is to be cut.
    async fn pump(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        let mut gathered = Vec::new();
        loop {
            let flow = (self.of)(&self.rules.borrow_and_update());
            if !matches!(flow, Flow::Gather(_)) {
                self.to.write_all(&std::mem::take(&mut gathered)).await?;
            }
            if flow == Flow::HalfClosed {
                self.to.shutdown().await?;
            }
            let room = match flow {
                Flow::Drip(_) => 1,
                Flow::CutAfter(bytes) if self.passed >= bytes => {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Flow::CutAfter(bytes) => (bytes - self.passed).min(buffer.len()),
                _ => buffer.len(),
            };
            let read = tokio::select! {
                biased;
                changed = self.rules.changed() => {
                    changed.map_err(io::Error::other)?;
                    continue;
                }
                read = self.from.read(&mut buffer[..room]), if flow != Flow::Stall => read?,
            };
            self.passed += read;
            match flow {
                Flow::HalfClosed => {}
                Flow::Gather(bytes) if gathered.len() + read < bytes && read > 0 => {
                    gathered.extend_from_slice(&buffer[..read]);
                }
                _ => {
                    gathered.extend_from_slice(&buffer[..read]);
                    self.to.write_all(&std::mem::take(&mut gathered)).await?;
                }
            }
            match flow {
                _ if read == 0 => return self.to.shutdown().await,
                Flow::Drip(pause) => tokio::time::sleep(pause).await,
                _ => {}
            }
        }
    }
}
