//! The baselines of sessions: the folder in which they are stored, and the order of the work on each of them.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{AcquireError, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use base::shutdown::lock_or_abort;
use base::types::{SessionId, Timestamp, UserId};
use workspace::{
    Capture, ChangeBounds, ChangedText, FileError, FolderChanges, Precondition, Workspace, compare,
    has_baseline, own_bytes, revert, take_baseline, text_of,
};

/// The number of baselines and comparisons that run at a time.
const CONCURRENCY: usize = 2;
/// The maximum size of all baselines, in bytes. Above it, a new baseline has no contents.
const MAX_TOTAL_BYTES: u64 = 4 << 30;
/// The maximum number of folders whose newest baseline is known.
const MAX_FOLDERS: usize = 4096;
/// The maximum number of sessions that are known to have a baseline.
const MAX_READY: usize = 65_536;
/// The number of slots from which unused ones are removed.
const MIN_SLOTS: usize = 64;

pub(super) type FolderKey = (UserId, String);

#[derive(Debug, Clone)]
pub struct Baselines(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Contains the folder of each baseline. Its name is the id of the session.
    root: PathBuf,
    slots: Mutex<HashMap<SessionId, Weak<Slot>>>,
    permits: Arc<Semaphore>,
    /// The session with the newest baseline of each folder.
    newest: Mutex<HashMap<FolderKey, SessionId>>,
    ready: Mutex<HashSet<SessionId>>,
    total_bytes: AtomicU64,
}

/// The state of the work on one baseline: the last comparison, and when it started.
type Slot = tokio::sync::Mutex<Option<(Instant, Arc<FolderChanges>)>>;

#[derive(Debug)]
pub(super) struct Turn {
    arrived: Instant,
    slot: OwnedMutexGuard<Option<(Instant, Arc<FolderChanges>)>>,
}

/// The baseline of a session with its working folder, for one operation. The operations block.
#[derive(Debug)]
pub struct OpenBaseline {
    workspace: Workspace,
    folder: PathBuf,
    turn: Turn,
    _permit: OwnedSemaphorePermit,
}

impl Baselines {
    pub fn new(root: PathBuf) -> Self {
        Self(Arc::new(Inner {
            root,
            slots: Mutex::default(),
            permits: Arc::new(Semaphore::new(CONCURRENCY)),
            newest: Mutex::default(),
            ready: Mutex::default(),
            total_bytes: AtomicU64::new(0),
        }))
    }

    pub(super) fn root(&self) -> &Path {
        &self.0.root
    }

    fn folder(&self, id: SessionId) -> PathBuf {
        self.0.root.join(id.to_string())
    }

    pub(super) fn is_ready(&self, id: SessionId) -> bool {
        lock_or_abort(self.0.ready.lock()).contains(&id)
    }

    fn set_ready(&self, id: SessionId) {
        let mut ready = lock_or_abort(self.0.ready.lock());
        // The set only saves reads of the disk.
        if ready.len() >= MAX_READY {
            ready.clear();
        }
        ready.insert(id);
    }

    pub(super) async fn turn(&self, id: SessionId) -> Turn {
        let arrived = Instant::now();
        let slot = {
            let mut slots = lock_or_abort(self.0.slots.lock());
            if slots.len() >= MIN_SLOTS {
                slots.retain(|_, slot| slot.strong_count() > 0);
            }
            let used = slots.get(&id).and_then(Weak::upgrade);
            used.unwrap_or_else(|| {
                let slot = Arc::new(Slot::default());
                slots.insert(id, Arc::downgrade(&slot));
                slot
            })
        };
        Turn {
            arrived,
            slot: slot.lock_owned().await,
        }
    }

    /// Waits until few other walks run.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.0.permits).acquire_owned().await
    }

    /// Opens the baseline of a session. Takes it if the session has none. `pack`: a new name. Blocks.
    pub(super) fn open(
        &self,
        id: SessionId,
        key: FolderKey,
        workspace: Workspace,
        turn: Turn,
        permit: OwnedSemaphorePermit,
        pack: &str,
        since: Timestamp,
        store_contents: bool,
    ) -> Result<OpenBaseline, FileError> {
        let folder = self.folder(id);
        if !self.is_ready(id) {
            if !has_baseline(&folder) {
                let left =
                    MAX_TOTAL_BYTES.saturating_sub(self.0.total_bytes.load(Ordering::Relaxed));
                let mut bounds = ChangeBounds::default();
                bounds.max_new_bytes =
                    bounds
                        .max_new_bytes
                        .min(if store_contents { left } else { 0 });
                let previous = self.newest(&key).map(|previous| self.folder(previous));
                let capture = Capture {
                    folder: &folder,
                    pack,
                    previous: previous.as_deref(),
                    since,
                };
                let added = take_baseline(&workspace, capture, &bounds)?;
                self.count(added);
            }
            self.set_newest(key, id);
            self.set_ready(id);
        }
        Ok(OpenBaseline {
            workspace,
            folder,
            turn,
            _permit: permit,
        })
    }

    fn newest(&self, key: &FolderKey) -> Option<SessionId> {
        lock_or_abort(self.0.newest.lock()).get(key).copied()
    }

    /// Makes the baseline of a session the one whose contents the next baseline of this folder shares.
    pub(super) fn set_newest(&self, key: FolderKey, id: SessionId) {
        let mut newest = lock_or_abort(self.0.newest.lock());
        // Without an entry, the next baseline stores all contents again.
        if newest.len() >= MAX_FOLDERS {
            newest.clear();
        }
        newest.insert(key, id);
    }

    pub(super) fn count(&self, added: u64) {
        self.0.total_bytes.fetch_add(added, Ordering::Relaxed);
    }

    /// Removes the baseline of a deleted session. Blocks.
    pub(super) fn remove(&self, id: SessionId, turn: Turn) {
        let folder = self.folder(id);
        lock_or_abort(self.0.ready.lock()).remove(&id);
        lock_or_abort(self.0.newest.lock()).retain(|_, newest| *newest != id);
        let freed = own_bytes(&folder);
        match std::fs::remove_dir_all(&folder) {
            Ok(()) => {
                let less = |total: u64| Some(total.saturating_sub(freed));
                self.0
                    .total_bytes
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                    .unwrap_or_default();
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(session = %id, %error, "could not remove the files at the start of a deleted session");
            }
        }
        drop(turn);
    }
}

impl OpenBaseline {
    /// Compares the working folder with the baseline. Shares the result of a comparison that started after the call.
    pub fn compare(mut self) -> Result<Arc<FolderChanges>, FileError> {
        if let Some((started, changes)) = &*self.turn.slot
            && *started >= self.turn.arrived
        {
            return Ok(Arc::clone(changes));
        }
        let started = Instant::now();
        let changes = compare(&self.workspace, &self.folder, &ChangeBounds::default())?;
        let changes = Arc::new(changes);
        *self.turn.slot = Some((started, Arc::clone(&changes)));
        Ok(changes)
    }

    pub fn text(self, path: &str) -> Result<ChangedText, FileError> {
        text_of(
            &self.workspace,
            &self.folder,
            path,
            &ChangeBounds::default(),
        )
    }

    /// Returns a file to its state at the start. Returns its entity tag, if it exists afterwards.
    pub fn revert(self, path: &str, expected: &Precondition) -> Result<Option<String>, FileError> {
        revert(&self.workspace, &self.folder, path, expected)
    }
}
