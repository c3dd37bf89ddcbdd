//! When baselines are taken and removed.
//!
//! A baseline is taken in the background after the creation of its session. The first prompt waits for it.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use super::baselines::OpenBaseline;
use super::context::Context;
use super::error::{NotFound, SessionError, WorkspaceError};
use super::record::SessionRecord;
use base::types::{SessionId, Timestamp};
use workspace::FileError;

/// How long a prompt waits for the baseline of its session. After that it runs, and the baseline may be later.
const PROMPT_WAIT: Duration = Duration::from_secs(10);

impl Context {
    /// Opens the baseline of a session with its working folder. Takes the baseline if the session has none.
    pub(super) async fn open_baseline(
        &self,
        id: SessionId,
    ) -> Result<OpenBaseline, WorkspaceError> {
        let turn = self.baselines.turn(id).await;
        // After the deletion of the session there is no record. The deletion waits for this turn.
        let record = self.read_session(id).await?;
        let record = record.ok_or(SessionError::NoSuchSession)?;
        let workspace = self.open_workspace(&record).await?;
        let permit = self
            .baselines
            .permit()
            .await
            .map_err(|error| SessionError::internal(&error))?;
        let baselines = self.baselines.clone();
        let key = (record.owner.clone(), record.cwd);
        let pack = self.ids.uuid().to_string();
        let since = self.ids.now();
        let store = !self.log.storage_full();
        let open = move || baselines.open(id, key, workspace, turn, permit, &pack, since, store);
        let opened = self.shutdown.spawn_blocking(open).await?;
        opened.map_err(|error| match error {
            FileError::Missing => NotFound("folder").into(),
            FileError::DiskFull => SessionError::StorageFull.into(),
            other => SessionError::internal(&other).into(),
        })
    }

    /// Takes the baseline of a session, unless it has one. A prompt runs without one if its folder cannot be read.
    pub(super) async fn take_baseline(&self, id: SessionId) {
        if self.baselines.is_ready(id) {
            return;
        }
        match tokio::time::timeout(PROMPT_WAIT, self.open_baseline(id)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(session = %id, %error, "a session has no baseline"),
            Err(_) => {
                tracing::warn!(session = %id, "the files at the start of the session could not be recorded in time");
            }
        }
    }

    /// The same in the background.
    pub(super) fn begin_baseline(&self, id: SessionId) {
        let context = self.clone();
        self.shutdown
            .spawn_isolated(async move { context.take_baseline(id).await });
    }

    pub(super) fn remove_baseline(&self, id: SessionId) {
        let context = self.clone();
        self.shutdown.spawn_isolated(async move {
            let turn = context.baselines.turn(id).await;
            let baselines = context.baselines.clone();
            // `remove` logs its own errors, and the panic hook logs a panic, so the result is not needed.
            let remove = move || baselines.remove(id, turn);
            let _ = context.shutdown.spawn_blocking(remove).await;
        });
    }
}

/// Counts the stored baselines after a start, and removes those whose sessions were deleted.
pub(super) async fn sweep(context: Context) {
    let root = context.baselines.root().to_owned();
    let Ok((ids, bytes)) = context.shutdown.spawn_blocking(move || stored(&root)).await else {
        return;
    };
    context.baselines.count(bytes);
    let mut sessions: Vec<(Timestamp, SessionRecord)> = Vec::new();
    for id in ids {
        if context.shutdown.is_draining() {
            return;
        }
        match context.read_session(id).await {
            Ok(Some(record)) => sessions.push((record.created_at, record)),
            Ok(None) => context.remove_baseline(id),
            // The next start tries again.
            Err(_) => return,
        }
    }
    sessions.sort_unstable_by_key(|(created_at, _)| *created_at);
    for (_, record) in sessions {
        context.baselines.set_newest(
            (record.owner.clone(), record.cwd.clone()),
            record.session_id,
        );
    }
}

/// The sessions with a stored baseline, and the size of all their files.
fn stored(root: &Path) -> (Vec<SessionId>, u64) {
    let entries = |path: &Path| {
        std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
    };
    let mut ids = Vec::new();
    let mut inodes = HashSet::new();
    let mut bytes = 0;
    for entry in entries(root) {
        let id = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<SessionId>().ok());
        let Some(id) = id else { continue };
        ids.push(id);
        for pack in entries(&entry.path()).filter_map(|pack| pack.metadata().ok()) {
            if inodes.insert(pack.ino()) {
                bytes += pack.len();
            }
        }
    }
    (ids, bytes)
}
