//! The gateway's side of the control socket.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, geteuid};
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, UCred};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::folder_rules::FolderRules;
use super::socket::{
    Access, BoundSocket, MAX_BYTES, Reply, Request, Secret, SocketFiles, Welcome, encode,
};

use crate::auth::{GrantError, KeyId, KeyStoreError, KeyText, Keys, RevokeError};
use base::shutdown::{Shutdown, lock_or_abort};
use children::descends_from_this_process;

/// The time for the check of a new connection, for its first request, and for the write of a reply.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after an accept that failed because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Imports the session of the file with this name in the private folder, for this owner. Returns the result or the cause of the
/// failure.
pub type Import = Arc<dyn Fn(String, Option<String>) -> ImportResult + Send + Sync>;
type ImportResult = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

pub struct ControlServer {
    pub keys: Keys,
    pub import: Import,
    pub rules: FolderRules,
    pub url: String,
    pub exits_when_idle: bool,
    pub clients: ControlClients,
    pub shutdown: Shutdown,
}

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
        socket.listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(socket.listener)?;
        let shutdown = self.shutdown.clone();
        let shared = Arc::new(Shared {
            server: self,
            token: socket.token,
            unchecked: Unchecked::default(),
            holders: Holders::default(),
            has_warned: AtomicBool::new(false),
        });
        shutdown.spawn(shared.accept(listener, socket.files));
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
                    shutdown.spawn_client(Arc::clone(&self).serve(stream, evicted));
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
                let released = shared.holders.release(&shared.server.keys, &held);
                released.map_err(|error| Reply::failed(&error))
            });
            if let Err(Reply::Failed(reason)) = released.await {
                tracing::warn!(
                    reason,
                    "could not revoke the key of an editor; it expires without use"
                );
            }
        }
    }

    /// Checks that the process of a connection may use the socket: it runs as the gateway's user, and it is not a
    /// process of an agent. The token alone is not enough, because an agent can read it through an editor that provides
    /// its files. Returns the reply if the process may not use the socket.
    async fn check_peer(self: &Arc<Self>, peer: io::Result<UCred>) -> Result<(), Reply> {
        let rejected = |reason: &str| Err(Reply::Failed(reason.to_owned()));
        let Some(peer) = peer.ok().filter(|peer| peer.uid() == geteuid().as_raw()) else {
            tracing::debug!("another user connected to the control socket");
            return rejected("the control socket is only for the user of the gateway");
        };
        // A process outside of the gateway's PID namespace has no pid in this namespace. Agents always have one.
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
        done.unwrap_or_else(|_| Err(Reply::Failed("the work was aborted".to_owned())))
    }

    fn grant(&self, key: &KeyId, folder: &str) -> Result<(), Reply> {
        let checked = self.server.rules.check(folder);
        let Some(real) = checked.map_err(|error| Reply::Rejected(error.to_string()))? else {
            return Ok(());
        };
        let granted = self.server.keys.grant_folder(key, &real);
        granted.map_err(|error| match error {
            GrantError::Store(error) => Reply::failed(&error),
            error => Reply::Rejected(error.to_string()),
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
    ) -> io::Result<Option<(Access, OwnedSemaphorePermit)>> {
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
        self.reply(&Reply::Failed(rejection)).await?;
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
                (Request::Allow(folder), Some(held)) if held.is_editor => {
                    let id = held.id.clone();
                    let grant = move |shared: &Shared| shared.grant(&id, &folder);
                    let granted = self.shared.blocking(grant).await;
                    granted.map_or_else(|reply| reply, |()| Reply::Allowed)
                }
                (Request::Allow(_), _) => {
                    Reply::Rejected("the connection has no key of an editor".to_owned())
                }
                (Request::Import { file, owner }, _) => {
                    let imported = (self.shared.server.import)(file, owner).await;
                    imported.map_or_else(Reply::Rejected, Reply::Imported)
                }
            };
            self.reply(&reply).await?;
        }
        Ok(())
    }

    fn welcome(&self) -> Reply {
        let server = &self.shared.server;
        Reply::Welcome(Welcome {
            url: server.url.clone(),
            key: self.held.as_ref().map(|held| held.text.clone()),
            exits_when_idle: server.exits_when_idle,
        })
    }

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

pub(super) const MAX_CONNECTIONS: usize = 256;
/// The maximum number of connections whose token is not checked yet. A new one evicts the oldest.
const MAX_UNCHECKED: usize = 64;

/// The places of connections with a checked token.
#[derive(Clone)]
pub struct ControlClients(Arc<Semaphore>);

impl Default for ControlClients {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CONNECTIONS)))
    }
}

impl ControlClients {
    pub fn count(&self) -> usize {
        MAX_CONNECTIONS - self.0.available_permits()
    }

    fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

/// The connections whose token is not checked yet, the oldest first.
#[derive(Default)]
pub(super) struct Unchecked(Mutex<VecDeque<CancellationToken>>);

impl Unchecked {
    pub(super) fn enter(&self) -> CancellationToken {
        let evicted = CancellationToken::new();
        let mut open = lock_or_abort(self.0.lock());
        // The token of a connection that has left is cancelled too.
        open.retain(|one| !one.is_cancelled());
        if open.len() >= MAX_UNCHECKED
            && let Some(oldest) = open.pop_front()
        {
            oldest.cancel();
        }
        open.push_back(evicted.clone());
        evicted
    }
}

#[derive(Clone)]
pub(super) struct HeldKey {
    pub(super) id: KeyId,
    pub(super) text: Secret,
    pub(super) is_editor: bool,
}

/// The number of connections of each key. A key is revoked and presented again under the same lock: a connection never gets
/// a key that another one is about to revoke.
#[derive(Default)]
pub(super) struct Holders(Mutex<HashMap<KeyId, usize>>);

impl Holders {
    pub(super) fn hold(&self, keys: &Keys, access: Access) -> Result<Option<HeldKey>, Reply> {
        let mut holders = lock_or_abort(self.0.lock());
        let held = match access {
            Access::OwnKey => return Ok(None),
            Access::Editor(earlier) => {
                let valid = earlier.and_then(|key| Some((keys.attach_key(&key.0)?, key)));
                match valid {
                    Some((id, text)) => HeldKey {
                        id,
                        text,
                        is_editor: true,
                    },
                    None => created(keys.create_attach_key(), true)?,
                }
            }
            Access::SignIn => created(keys.create_sign_in_key(), false)?,
        };
        *holders.entry(held.id.clone()).or_default() += 1;
        Ok(Some(held))
    }

    /// Revokes the key of a connection that has ended, unless another connection has the same key. Blocks on the store.
    pub(super) fn release(&self, keys: &Keys, held: &HeldKey) -> Result<(), RevokeError> {
        let mut holders = lock_or_abort(self.0.lock());
        if let Some(count) = holders.get_mut(&held.id)
            && *count > 1
        {
            *count -= 1;
            return Ok(());
        }
        holders.remove(&held.id);
        keys.revoke(held.id.as_str()).map(drop)
    }
}

fn created(
    created: Result<(KeyText, KeyId), KeyStoreError>,
    is_editor: bool,
) -> Result<HeldKey, Reply> {
    let (text, id) = created.map_err(|error| Reply::failed(&error))?;
    Ok(HeldKey {
        id,
        text: Secret(text.expose().to_owned()),
        is_editor,
    })
}

#[cfg(test)]
mod clients_tests {
    use super::*;

    #[test]
    fn oldest_unchecked_connection_is_evicted() {
        let unchecked = Unchecked::default();
        let tokens: Vec<_> = (0..=MAX_UNCHECKED).map(|_| unchecked.enter()).collect();
        let evicted: Vec<_> = tokens.iter().map(CancellationToken::is_cancelled).collect();
        assert!(evicted[0] && evicted[1..].iter().all(|evicted| !evicted));
        // A connection that has left needs no place.
        tokens[5].cancel();
        unchecked.enter();
        assert!(!tokens[1].is_cancelled());
        unchecked.enter();
        assert!(tokens[1].is_cancelled());
    }

    #[test]
    fn connections_with_a_checked_token_are_bounded() {
        let clients = ControlClients::default();
        let mut guards: Vec<_> = std::iter::from_fn(|| clients.enter())
            .take(MAX_CONNECTIONS + 1)
            .collect();
        assert_eq!(
            (guards.len(), clients.count()),
            (MAX_CONNECTIONS, MAX_CONNECTIONS)
        );
        guards.pop();
        assert!(clients.enter().is_some());
    }
}

#[cfg(test)]
mod holders_tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::auth::limits::Limits;
    use base::types::{Ids, PrincipalLimits};
    use log::store::{
        Batch, CommitError, MemoryStore, ReadError, Record, RecordStore, RunHeader, Table,
    };

    /// A store that announces each deletion, and waits before it.
    #[derive(Debug)]
    struct SlowDeletes {
        store: MemoryStore,
        gate: Mutex<(SyncSender<()>, Receiver<()>)>,
    }

    impl RecordStore for SlowDeletes {
        fn commit(&self, batch: &Batch) -> Result<Vec<RunHeader>, CommitError> {
            if batch.records.iter().any(|record| record.value.is_none()) {
                let gate = self.gate.lock().unwrap();
                gate.0.send(()).unwrap();
                gate.1.recv().unwrap();
            }
            self.store.commit(batch)
        }

        fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
            self.store.get(table, key)
        }

        fn scan(
            &self,
            table: Table,
            prefix: &[u8],
            after: Option<&[u8]>,
            limit: usize,
        ) -> Result<Vec<Record>, ReadError> {
            self.store.scan(table, prefix, after, limit)
        }
    }

    fn editor(earlier: Option<&Secret>) -> Access {
        Access::Editor(earlier.cloned())
    }

    /// A connection ends while the next one presents the same key.
    #[test]
    fn key_of_a_new_connection_is_valid_while_the_previous_connection_ends() {
        let (begun, begins) = sync_channel(1);
        let (release, released) = sync_channel(1);
        let gate = Mutex::new((begun, released));
        let store = SlowDeletes {
            store: MemoryStore::new(Ids::system()),
            gate,
        };
        let keys = Keys::open(
            Arc::new(store),
            Ids::system(),
            &Limits::default(),
            PrincipalLimits::default(),
            None,
        )
        .unwrap();
        let holders = Holders::default();
        let first = holders.hold(&keys, editor(None)).unwrap().unwrap();
        thread::scope(|scope| {
            let ended = scope.spawn(|| holders.release(&keys, &first));
            begins.recv().unwrap();
            let next = scope.spawn(|| holders.hold(&keys, editor(Some(&first.text))));
            // A `hold` that does not wait returns in this time.
            thread::sleep(Duration::from_millis(200));
            release.send(()).unwrap();
            ended.join().unwrap().unwrap();
            let next = next.join().unwrap().unwrap().unwrap();
            assert_eq!(keys.attach_key(&next.text.0), Some(next.id));
        });
    }

    #[test]
    fn key_ends_with_its_last_connection() {
        let store = Arc::new(MemoryStore::new(Ids::system()));
        let keys = Keys::open(
            store,
            Ids::system(),
            &Limits::default(),
            PrincipalLimits::default(),
            None,
        )
        .unwrap();
        let holders = Holders::default();
        let first = holders.hold(&keys, editor(None)).unwrap().unwrap();
        let second = holders
            .hold(&keys, editor(Some(&first.text)))
            .unwrap()
            .unwrap();
        assert_eq!(first.text, second.text);
        holders.release(&keys, &first).unwrap();
        assert!(keys.attach_key(&first.text.0).is_some());
        holders.release(&keys, &second).unwrap();
        assert_eq!(keys.attach_key(&first.text.0), None);
        assert!(holders.hold(&keys, Access::OwnKey).unwrap().is_none());
    }
}
