//! The gateway's side of the control socket.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::geteuid;
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::folder_rules::FolderRules;
use super::message::{Access, MAX_BYTES, Reply, Request, Secret, Welcome, encode};
use super::socket::{BoundSocket, SocketFiles};
use crate::auth::{GrantError, KeyId, Keys};
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::telemetry::ErrorChain;

/// The maximum number of connections. Each editor has one.
const MAX_CONNECTIONS: usize = 256;
/// The time for the first request, and for the write of a reply.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after an accept that failed because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The number of connected commands. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ControlClients(Arc<AtomicUsize>);

impl ControlClients {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn enter(&self) -> Option<ClientGuard> {
        let entered = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < MAX_CONNECTIONS).then_some(count + 1)
        });
        entered.ok().map(|_| ClientGuard(self.clone()))
    }
}

#[derive(Debug)]
struct ClientGuard(ControlClients);

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

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
    /// The number of connections of each key.
    holders: Mutex<HashMap<KeyId, usize>>,
}

impl ControlServer {
    /// Starts to accept connections. Must be called on the runtime.
    pub fn start(self, socket: BoundSocket) -> io::Result<()> {
        let BoundSocket { listener, token, files } = socket;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let shutdown = self.shutdown.clone();
        let shared = Arc::new(Shared { server: self, token, holders: Mutex::default() });
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
                    if let Some(guard) = self.server.clients.enter() {
                        drop(shutdown.spawn_client(Arc::clone(&self).serve(stream, guard)));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection on the control socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(files);
    }

    async fn serve(self: Arc<Self>, stream: UnixStream, _guard: ClientGuard) {
        let is_owner = stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw());
        if !is_owner {
            return tracing::warn!("another user connected to the control socket; closed the connection");
        }
        let (read, write) = stream.into_split();
        let mut connection =
            Connection { shared: Arc::clone(&self), lines: BufReader::new(read), write, held: None };
        let shutdown = self.server.shutdown.clone();
        let ended = tokio::select! {
            // The clients connect to the next gateway with the same keys.
            () = shutdown.drain_started() => return,
            ended = connection.run() => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection of the control socket ended");
        }
        if let Some(held) = connection.held.take() {
            self.release(held).await;
        }
    }

    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Reply> + Send + 'static,
    ) -> Result<T, Reply> {
        let shared = Arc::clone(self);
        let done = self.server.shutdown.spawn_blocking(move || work(&shared)).await;
        done.unwrap_or_else(|_| Err(Reply::Failed { reason: "the work was aborted".to_owned() }))
    }

    /// The key for a new connection.
    fn hold(&self, access: Access) -> Result<Option<HeldKey>, Reply> {
        let keys = &self.server.keys;
        let created = match access {
            Access::OwnKey => return Ok(None),
            Access::Editor { former: Some(former) } if keys.attach_key(&former.0).is_some() => {
                let id = keys.attach_key(&former.0);
                return Ok(id.map(|id| self.count(HeldKey { id, text: former, is_editor: true })));
            }
            Access::Editor { .. } => (keys.create_attach_key(), true),
            Access::SignIn => (keys.create_sign_in_key(), false),
        };
        let (created, is_editor) = created;
        let (text, id) = created.map_err(|error| failed(&error))?;
        Ok(Some(self.count(HeldKey { id, text: Secret(text.expose().to_owned()), is_editor })))
    }

    fn count(&self, held: HeldKey) -> HeldKey {
        *lock_or_abort(self.holders.lock()).entry(held.id.clone()).or_default() += 1;
        held
    }

    /// Revokes the key of a connection that has ended, unless another connection has the same key.
    async fn release(self: &Arc<Self>, held: HeldKey) {
        let is_last = {
            let mut holders = lock_or_abort(self.holders.lock());
            let count = holders.get_mut(&held.id).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if count == 0 {
                holders.remove(&held.id);
            }
            count == 0
        };
        if !is_last {
            return;
        }
        let revoked = self.blocking(move |shared| {
            shared.server.keys.revoke(held.id.as_str()).map_err(|error| failed(&error))
        });
        if let Err(Reply::Failed { reason }) = revoked.await {
            tracing::warn!(reason, "could not revoke the key of an editor; it expires without use");
        }
    }

    fn grant(&self, key: &KeyId, folder: &str) -> Result<(), Reply> {
        let checked = self.server.rules.check(folder);
        let Some(real) = checked.map_err(|error| Reply::Rejected { reason: error.to_string() })? else {
            return Ok(());
        };
        self.server.keys.grant_folder(key, &real).map_err(|error| match error {
            GrantError::Store(error) => failed(&error),
            error => Reply::Rejected { reason: error.to_string() },
        })
    }
}

fn failed(error: &dyn std::error::Error) -> Reply {
    Reply::Failed { reason: ErrorChain(error).to_string() }
}

/// The key of a connection.
#[derive(Debug, Clone)]
struct HeldKey {
    id: KeyId,
    text: Secret,
    is_editor: bool,
}

struct Connection {
    shared: Arc<Shared>,
    lines: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    held: Option<HeldKey>,
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        let first = timeout(STALL_TIMEOUT, self.next()).await?;
        let Some(Request::Hello { token, access }) = first? else { return Ok(()) };
        if !bool::from(token.0.as_bytes().ct_eq(self.shared.token.0.as_bytes())) {
            return self.reply(&Reply::Failed { reason: "the token is wrong".to_owned() }).await;
        }
        match self.shared.blocking(move |shared| shared.hold(access)).await {
            Ok(held) => self.held = held,
            Err(reply) => return self.reply(&reply).await,
        }
        self.reply(&self.welcome()).await?;
        while let Some(request) = self.next().await? {
            let reply = match (request, &self.held) {
                (Request::Hello { .. }, _) => self.welcome(),
                (Request::Allow { folder }, Some(HeldKey { id, is_editor: true, .. })) => {
                    let id = id.clone();
                    let granted = self.shared.blocking(move |shared| shared.grant(&id, &folder));
                    granted.await.map_or_else(|reply| reply, |()| Reply::Allowed)
                }
                (Request::Allow { .. }, _) => {
                    Reply::Rejected { reason: "the connection has no key of an editor".to_owned() }
                }
            };
            self.reply(&reply).await?;
        }
        Ok(())
    }

    fn welcome(&self) -> Reply {
        let ControlServer { url, exits_when_idle, .. } = &self.shared.server;
        let key = self.held.as_ref().map(|held| held.text.clone());
        Reply::Welcome(Welcome { url: url.clone(), key, exits_when_idle: *exits_when_idle })
    }

    /// The next request. `None` at the end of the connection.
    async fn next(&mut self) -> io::Result<Option<Request>> {
        let mut line = Vec::new();
        (&mut self.lines).take(MAX_BYTES as u64).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }

    async fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        timeout(STALL_TIMEOUT, self.write.write_all(&encode(reply))).await?
    }
}
