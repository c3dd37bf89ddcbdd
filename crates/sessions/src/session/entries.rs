//! The entries of all actors. A session has at most one actor.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use super::actor::{Actor, ActorEntry};
use super::context::Context;
use super::error::SessionError;
use base::shutdown::lock_or_abort;
use base::types::{SessionId, UserId};
use log::eventlog::SessionLog;

/// The number of locks for loading. Part of the session id selects the lock.
const LOAD_LOCKS: usize = 16;

/// Loads actors, runs them and replaces those that have stopped.
#[derive(Debug, Clone)]
pub(super) struct ActorEntries {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    entries: Mutex<HashMap<SessionId, Arc<ActorEntry>>>,
    /// Sessions whose next actor skips their queue, because their actor panicked and a prompt may cause the panic.
    without_queue: Mutex<HashSet<SessionId>>,
    /// Sessions that were deleted while the disk accepted no commits.
    deleted: Mutex<HashSet<SessionId>>,
    /// Serializes the loading of a session, so that it never has two actors.
    load_locks: [tokio::sync::Mutex<()>; LOAD_LOCKS],
}

impl ActorEntries {
    pub(super) fn new(context: Context) -> Self {
        let inner = Inner {
            context,
            entries: Mutex::default(),
            without_queue: Mutex::default(),
            deleted: Mutex::default(),
            load_locks: Default::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(super) fn context(&self) -> &Context {
        &self.inner.context
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<ActorEntry>>> {
        lock_or_abort(self.inner.entries.lock())
    }

    fn running_entry(&self, id: SessionId) -> Option<Arc<ActorEntry>> {
        self.entries()
            .get(&id)
            .filter(|entry| !entry.commands.is_closed())
            .cloned()
    }

    /// The entry of a session that clients of the user can find.
    pub(super) async fn find(
        &self,
        user: &UserId,
        id: SessionId,
    ) -> Result<Arc<ActorEntry>, SessionError> {
        let entry = self.entry_for(Some(user), id).await?;
        let access = self.context().log.access(entry.log.owner(), id, user);
        let has_access = access.is_some();
        if has_access && entry.visible.load(Ordering::Acquire) {
            return Ok(entry);
        }
        // A list contains a new session as soon as its record is stored, before the request that creates it continues. The
        // session of another user is read too, because an unknown id is: the time of the response reveals no session.
        let is_created = self.is_created(id).await?;
        if has_access && is_created {
            Ok(entry)
        } else {
            Err(SessionError::NoSuchSession)
        }
    }

    async fn is_created(&self, id: SessionId) -> Result<bool, SessionError> {
        let record = self.context().read_session(id).await?;
        Ok(record.is_some_and(|record| !record.unfinished))
    }

    pub(super) async fn entry(&self, id: SessionId) -> Result<Arc<ActorEntry>, SessionError> {
        self.entry_for(None, id).await
    }

    /// The same. Loads only a session to which this user has access.
    async fn entry_for(
        &self,
        user: Option<&UserId>,
        id: SessionId,
    ) -> Result<Arc<ActorEntry>, SessionError> {
        if lock_or_abort(self.inner.deleted.lock()).contains(&id) {
            return Err(SessionError::NoSuchSession);
        }
        match self.running_entry(id) {
            Some(found) => Ok(found),
            // Boxed, because the future of almost every request contains this one, and few requests load.
            None => Box::pin(self.load(user, id)).await,
        }
    }

    async fn load(
        &self,
        user: Option<&UserId>,
        id: SessionId,
    ) -> Result<Arc<ActorEntry>, SessionError> {
        let lock = usize::from(id.as_bytes()[15]) % LOAD_LOCKS;
        let _guard = self.inner.load_locks[lock].lock().await;
        if let Some(found) = self.running_entry(id) {
            return Ok(found);
        }
        // The previous actor must have stopped, with its last event durable, before the session is loaded.
        let previous = self.entries().get(&id).map(|entry| entry.stopped.clone());
        if let Some(stopped) = previous {
            stopped.cancelled().await;
        }
        let restore = !lock_or_abort(self.inner.without_queue.lock()).contains(&id);
        let loaded = Actor::load(self.context(), user, id, restore).await?;
        let Some((actor, entry)) = loaded else {
            return Err(SessionError::NoSuchSession);
        };
        lock_or_abort(self.inner.without_queue.lock()).remove(&id);
        Ok(self.install(actor, entry))
    }

    pub(super) fn install(&self, actor: Actor, entry: ActorEntry) -> Arc<ActorEntry> {
        let id = entry.log.session();
        let entry = Arc::new(entry);
        self.entries().insert(id, Arc::clone(&entry));
        self.run(actor, Arc::clone(&entry));
        entry
    }

    /// Removes this entry. Another actor may already have replaced it.
    fn uninstall(&self, id: SessionId, entry: &Arc<ActorEntry>) {
        let mut entries = self.entries();
        if entries
            .get(&id)
            .is_some_and(|installed| Arc::ptr_eq(installed, entry))
        {
            entries.remove(&id);
        }
    }

    fn run(&self, actor: Actor, entry: Arc<ActorEntry>) {
        let entries = self.clone();
        let id = entry.log.session();
        let shutdown = self.context().shutdown.clone();
        let running = shutdown.spawn_isolated(actor.run());
        shutdown.spawn_isolated(async move {
            let Ok(unanswered) = running.await else {
                return entries.recover_panicked(id, &entry).await;
            };
            entries.uninstall(id, &entry);
            entry.stopped.cancel();
            // The next actor executes the remaining commands. If it cannot be loaded, they get no reply.
            for command in unanswered {
                if let Ok(next) = entries.entry(id).await {
                    let _ = next.commands.send(command).await;
                }
            }
        });
    }

    /// Recovers a session whose actor panicked. The next actor closes everything that was open, so that no
    /// client waits for it.
    async fn recover_panicked(&self, id: SessionId, entry: &Arc<ActorEntry>) {
        tracing::error!(session = %id, "the session's actor panicked; its turn fails, and the session is loaded again from the log");
        // The next actor reads from the store, so everything that was appended must be committed.
        let _ = entry.log.wait(entry.log.appended()).await;
        lock_or_abort(self.inner.without_queue.lock()).insert(id);
        self.uninstall(id, entry);
        entry.stopped.cancel();
        if let Err(error) = self.entry(id).await {
            tracing::warn!(session = %id, %error, "could not load the session again after its actor panicked");
        }
    }

    pub(super) fn remove(&self, id: SessionId) {
        self.entries().remove(&id);
    }

    /// Hides the session from all clients now, and erases its log when the disk has space for the commit.
    pub(super) fn remove_after_commit(&self, log: SessionLog, seq: u64) {
        let id = log.session();
        let entries = self.clone();
        lock_or_abort(self.inner.deleted.lock()).insert(id);
        let shutdown = self.context().shutdown.clone();
        self.context().shutdown.spawn_isolated(async move {
            let durable = tokio::select! {
                durable = log.wait(seq) => durable.is_ok(),
                () = shutdown.drain_started() => false,
            };
            if durable {
                entries.remove(id);
                lock_or_abort(entries.inner.deleted.lock()).remove(&id);
            }
        });
    }
}
