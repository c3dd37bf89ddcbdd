//! The gateway's side of the control socket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, geteuid};
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, UCred};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::clients::{ClientGuard, ControlClients, MAX_CONNECTIONS, Unchecked};
use super::folder_rules::FolderRules;
use super::holders::{HeldKey, Holders};
use super::message::{Access, MAX_BYTES, Reply, Request, Secret, Welcome, encode};
use super::socket::{BoundSocket, SocketFiles};
use crate::auth::{GrantError, KeyId, Keys};
use crate::process::descends_from_this_process;
use crate::shutdown::Shutdown;

/// The time for the check of a new connection, for its first request, and for the write of a reply.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after an accept that failed because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the control socket until the drain.
#[derive(Debug)]
pub struct ControlServer {
    pub keys: Keys,
    pub rules: FolderRules,
    /// The URL of the gateway on this machine.
    pub url: String,
    pub exits_when_idle: bool,
    pub clients: ControlClients,
    pub shutdown: Shutdown,
}

#[derive(Debug)]
struct Shared {
    server: ControlServer,
    token: Secret,
    unchecked: Unchecked,
    holders: Holders,
    /// Whether the log contains a rejected process of an agent. An agent must not fill the log.
    has_warned: AtomicBool,
}

impl ControlServer {
    /// Starts to accept connections. Must be called on the runtime.
    pub fn start(self, socket: BoundSocket) -> io::Result<()> {
        let BoundSocket {
            listener,
            token,
            files,
        } = socket;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let shutdown = self.shutdown.clone();
        let shared = Arc::new(Shared {
            server: self,
            token,
            unchecked: Unchecked::default(),
            holders: Holders::default(),
            has_warned: AtomicBool::new(false),
        });
        shutdown.spawn(shared.accept(listener, files));
        Ok(())
    }
}

impl Shared {
    async fn accept(self: Arc<Self>, listener: UnixListener, files: SocketFiles) {
        let shutdown = self.server.shutdown.clone();
        loop {
            let accepted = tokio::select! {
                () = shutdown.drain_started() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let evicted = self.unchecked.enter();
                    drop(shutdown.spawn_client(Arc::clone(&self).serve(stream, evicted)));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection on the control socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(files);
    }

    async fn serve(self: Arc<Self>, stream: UnixStream, evicted: CancellationToken) {
        let checked = evicted.clone().drop_guard();
        let shutdown = self.server.shutdown.clone();
        let peer = stream.peer_cred();
        let (read, write) = stream.into_split();
        let mut connection = Connection {
            shared: Arc::clone(&self),
            lines: BufReader::new(read),
            write,
            held: None,
        };
        let first = tokio::select! {
            () = shutdown.drain_started() => return,
            () = evicted.cancelled() => return tracing::debug!("too many connections without a token"),
            first = timeout(STALL_TIMEOUT, connection.check(peer)) => first,
        };
        let Ok(Ok(Some((access, _guard)))) = first else {
            return;
        };
        drop(checked);
        let ended = tokio::select! {
            // The clients connect to the next gateway with the same keys.
            () = shutdown.drain_started() => return,
            ended = connection.run(access) => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection of the control socket ended");
        }
        if let Some(held) = connection.held.take() {
            let released = self.blocking(move |shared| {
                shared
                    .holders
                    .release(&shared.server.keys, &held)
                    .map_err(|error| Reply::failed(&error))
            });
            if let Err(Reply::Failed { reason }) = released.await {
                tracing::warn!(
                    reason,
                    "could not revoke the key of an editor; it expires without use"
                );
            }
        }
    }

    /// Whether the process of a connection may use the socket: it has the user of the gateway, and is no process of an agent.
    /// An agent can get the token from an editor that serves its files. Otherwise, returns the reply.
    async fn check_peer(self: &Arc<Self>, peer: io::Result<UCred>) -> Result<(), Reply> {
        let rejected = |reason: &str| Err(Reply::failure(reason));
        let Some(peer) = peer.ok().filter(|peer| peer.uid() == geteuid().as_raw()) else {
            tracing::debug!("another user connected to the control socket");
            return rejected("the control socket is only for the user of the gateway");
        };
        // A process outside of the namespace of the gateway has no pid in it. Agents have one.
        let Some(pid) = peer.pid().and_then(Pid::from_raw) else {
            return Ok(());
        };
        let checked = self
            .blocking(move |_| Ok(descends_from_this_process(pid)))
            .await?;
        match checked {
            Ok(false) => Ok(()),
            Ok(true) => {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%pid, "rejected a process of an agent on the control socket; further ones are not logged");
                }
                rejected("processes of agents must not use the control socket")
            }
            Err(error) => {
                tracing::debug!(%pid, %error, "could not read the ancestors of a process");
                rejected(
                    "could not read the ancestors of the process: /proc must show the processes of the user",
                )
            }
        }
    }

    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Reply> + Send + 'static,
    ) -> Result<T, Reply> {
        let shared = Arc::clone(self);
        let done = self
            .server
            .shutdown
            .spawn_blocking(move || work(&shared))
            .await;
        done.unwrap_or_else(|_| Err(Reply::failure("the work was aborted")))
    }

    fn grant(&self, key: &KeyId, folder: &str) -> Result<(), Reply> {
        let checked = self.server.rules.check(folder);
        let Some(real) = checked.map_err(|error| Reply::Rejected {
            reason: error.to_string(),
        })?
        else {
            return Ok(());
        };
        self.server
            .keys
            .grant_folder(key, &real)
            .map_err(|error| match error {
                GrantError::Store(error) => Reply::failed(&error),
                error => Reply::Rejected {
                    reason: error.to_string(),
                },
            })
    }
}

struct Connection {
    shared: Arc<Shared>,
    lines: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    held: Option<HeldKey>,
}

impl Connection {
    /// Checks the process of the connection, and the token of its first request. `None`: the connection was rejected.
    async fn check(
        &mut self,
        peer: io::Result<UCred>,
    ) -> io::Result<Option<(Access, ClientGuard)>> {
        let checked = self.shared.check_peer(peer).await;
        if let Err(reply) = checked {
            self.reply(&reply).await?;
            return Ok(None);
        }
        let Some(Request::Hello { token, access }) = self.next().await? else {
            return Ok(None);
        };
        let rejection = if !bool::from(token.0.as_bytes().ct_eq(self.shared.token.0.as_bytes())) {
            "the token is wrong".to_owned()
        } else if let Some(guard) = self.shared.server.clients.enter() {
            return Ok(Some((access, guard)));
        } else {
            format!("too many editors are connected (limit {MAX_CONNECTIONS}): close one")
        };
        self.reply(&Reply::failure(rejection)).await?;
        Ok(None)
    }

    async fn run(&mut self, access: Access) -> io::Result<()> {
        let held = self
            .shared
            .blocking(move |shared| shared.holders.hold(&shared.server.keys, access))
            .await;
        match held {
            Ok(held) => self.held = held,
            Err(reply) => return self.reply(&reply).await,
        }
        self.reply(&self.welcome()).await?;
        while let Some(request) = self.next().await? {
            let reply = match (request, &self.held) {
                (Request::Hello { .. }, _) => self.welcome(),
                (
                    Request::Allow { folder },
                    Some(HeldKey {
                        id,
                        is_editor: true,
                        ..
                    }),
                ) => {
                    let id = id.clone();
                    let granted = self
                        .shared
                        .blocking(move |shared| shared.grant(&id, &folder));
                    granted
                        .await
                        .map_or_else(|reply| reply, |()| Reply::Allowed)
                }
                (Request::Allow { .. }, _) => Reply::Rejected {
                    reason: "the connection has no key of an editor".to_owned(),
                },
            };
            self.reply(&reply).await?;
        }
        Ok(())
    }

    fn welcome(&self) -> Reply {
        let ControlServer {
            url,
            exits_when_idle,
            ..
        } = &self.shared.server;
        let key = self.held.as_ref().map(|held| held.text.clone());
        Reply::Welcome(Welcome {
            url: url.clone(),
            key,
            exits_when_idle: *exits_when_idle,
        })
    }

    /// The next request. `None` at the end of the connection.
    async fn next(&mut self) -> io::Result<Option<Request>> {
        let mut line = Vec::new();
        (&mut self.lines)
            .take(MAX_BYTES as u64)
            .read_until(b'\n', &mut line)
            .await?;
        if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }

    async fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        timeout(STALL_TIMEOUT, self.write.write_all(&encode(reply))).await?
    }
}
