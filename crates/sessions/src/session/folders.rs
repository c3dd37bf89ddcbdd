//! The working folders of sessions, below the workspace roots, and their paths after a restore into another data directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::context::Context;
use super::error::{CreateError, InputError, NotFound, SessionError, WorkspaceError};
use super::record::{self, SessionRecord, SessionRecordView};
use base::types::{Principal, SessionId, Tenant, UserId};
use log::eventlog::{EventLog, RecordPages, Records, tenant_prefix};
use log::store::{Batch, CommitError, ReadError, RecordStore, Table};
use workspace::{FileError, FolderPage, Workspace, Workspaces};

const OUTSIDE_ROOTS: &str = "the folder lies outside the workspace roots: add it to `workspaces.allow`, or start the gateway with --workspace";

const CONTAINS_SESSIONS: &str =
    "the folder contains the folders of all sessions: name a folder below it";

/// The error for a folder of another host that its agent does not offer.
pub(super) const OUTSIDE_REMOTE_FOLDERS: &str = "the folder is on the host of the agent, and not below `remote_folders` of the agent's entry or the roots of the member of the fleet";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Whether the folder was created for this session.
    pub(super) created: bool,
}

/// The folders that a user can give to a new session. Its methods block on the file system.
#[derive(Debug)]
pub struct Folders {
    pub(super) workspaces: Workspaces,
    log: EventLog,
    user: UserId,
}

impl Folders {
    /// The folder that a client named, or a new folder of the session.
    pub(super) fn session_folder(
        &self,
        id: SessionId,
        requested: Option<&str>,
    ) -> Result<Folder, CreateError> {
        let Some(requested) = requested else {
            return Ok(Folder {
                path: self.workspaces.create_directory(&id.to_string())?,
                created: true,
            });
        };
        Ok(Folder {
            path: self.resolve("/cwd", requested)?,
            created: false,
        })
    }

    /// Resolves an existing folder below a root to its real path.
    pub(super) fn resolve(&self, pointer: &str, requested: &str) -> Result<PathBuf, InputError> {
        let missing = || InputError::invalid(pointer, "there is no such folder");
        if self.leads_through_hidden(requested) {
            return Err(missing());
        }
        let path = self.workspaces.resolve_directory(requested);
        let path = path.map_err(|error| match error {
            FileError::OutsideRoots => InputError::Forbidden(OUTSIDE_ROOTS.to_owned()),
            FileError::Missing => missing(),
            other => InputError::invalid(pointer, other.to_string()),
        })?;
        if self.workspaces.contains_created(&path) && self.user != UserId::owner() {
            return Err(InputError::Forbidden(CONTAINS_SESSIONS.to_owned()));
        }
        Ok(path)
    }

    /// The workspace roots, and the folders that were granted to the key.
    pub fn top_folders(&self) -> impl Iterator<Item = &Path> {
        self.workspaces.top_folders()
    }

    /// The folders in a folder below a root, sorted by name.
    pub fn browse(
        &self,
        path: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<FolderPage, FileError> {
        if self.leads_through_hidden(path) {
            return Err(FileError::Missing);
        }
        self.workspaces.browse(path, after, limit)
    }

    /// Whether a path leads through the folder of a session that does not exist for this user. Checked before the path is
    /// resolved, because the error would reveal what is in the folder.
    fn leads_through_hidden(&self, requested: &str) -> bool {
        let way = self.workspaces.way_to(requested);
        way.iter().any(|path| self.is_hidden(path))
    }

    /// Whether a real path lies in the folder of a session that does not exist for this user.
    fn is_hidden(&self, path: &Path) -> bool {
        let session = self.workspaces.created_parent(path);
        let session = session.and_then(|name| name.parse().ok());
        session.is_some_and(|session| !self.may_use(session))
    }

    /// Whether a folder with the id of a session belongs to this user. The folder of a deleted session may have a fork as its
    /// last user, so it belongs to the owner of the deleted one while the log knows the owner.
    fn may_use(&self, session: SessionId) -> bool {
        match self.log.owner(session) {
            Some(owner) => owner == self.user,
            None => self.user == UserId::owner(),
        }
    }
}

impl Context {
    pub fn folders_of(&self, by: &Principal) -> Folders {
        Folders {
            workspaces: self.workspaces.with_granted(by.folders.clone()),
            log: self.log.clone(),
            user: by.user.clone(),
        }
    }

    /// The roots in which a session may work.
    pub(super) fn workspaces_of(&self, record: &SessionRecord) -> Workspaces {
        self.workspaces.with_granted(record.granted_folders.clone())
    }

    pub(super) async fn open_workspace(
        &self,
        record: &SessionRecord,
    ) -> Result<Workspace, WorkspaceError> {
        if record.remote_folders {
            let detail = "the folders of the session are on the host of its agent";
            return Err(InputError::Forbidden(detail.to_owned()).into());
        }
        let workspaces = self.workspaces_of(record);
        let cwd = PathBuf::from(&record.cwd);
        let additional: Vec<PathBuf> = record
            .additional_directories
            .iter()
            .map(PathBuf::from)
            .collect();
        let opened = self
            .shutdown
            .spawn_blocking(move || workspaces.open(&cwd, &additional))
            .await;
        opened?.map_err(|error| match error {
            FileError::Missing => NotFound("folder").into(),
            // The configured roots have changed, or a symbolic link has replaced the folder.
            FileError::OutsideRoots | FileError::PermissionDenied => {
                let detail = "the session's folders no longer lie below the workspace roots";
                InputError::Forbidden(detail.to_owned()).into()
            }
            other => SessionError::internal(&other).into(),
        })
    }
}

pub(super) async fn has_session_in(
    context: &Context,
    tenant: &Tenant,
    cwd: &str,
) -> Result<bool, SessionError> {
    let prefix = tenant_prefix(tenant);
    let mut pages = RecordPages::below(&context.log, Table::SessionIndex, prefix);
    while let Some(page) = pages.next_raw().await? {
        for (_, value) in &page {
            if record::decode::<SessionRecordView<'_>>(value)?.cwd == cwd {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

const PAGE_SIZE: usize = 500;

#[derive(Debug, thiserror::Error)]
pub enum RelocateError {
    #[error("could not read the sessions")]
    Read(#[from] ReadError),
    #[error("could not decode a session")]
    Decode(#[from] serde_json::Error),
    #[error("could not write the sessions")]
    Write(#[from] CommitError),
}

/// Sets the path of each folder that the gateway created for a session: its name below `root`. Returns the folders of
/// sessions that do not exist on this machine. Blocks; no gateway may use the store.
pub fn relocate_folders(
    store: &dyn RecordStore,
    root: &Path,
) -> Result<BTreeSet<PathBuf>, RelocateError> {
    let mut missing = BTreeSet::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = store.scan(Table::Session, b"", after.as_deref(), PAGE_SIZE)?;
        let mut changed = Records::default();
        for (_, stored) in &page {
            let mut session: SessionRecord = record::decode(stored)?;
            if session.remote_folders {
                continue;
            }
            let own = root.join(session.folder_id().to_string());
            if session.own_folder && Path::new(&session.cwd) != own {
                session.cwd = own.to_string_lossy().into_owned();
                let key = session.index_key();
                session.put(Some(&key), &mut changed);
            }
            let folders = std::iter::once(&session.cwd).chain(&session.additional_directories);
            missing.extend(folders.map(PathBuf::from).filter(|folder| !folder.is_dir()));
        }
        if !changed.is_empty() {
            store.commit(&Batch {
                records: changed.changed,
                ..Batch::default()
            })?;
        }
        match page.last() {
            Some((key, _)) if page.len() == PAGE_SIZE => after = Some(key.clone()),
            _ => return Ok(missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use log::eventlog::testing::{memory_log, open};

    fn folders_of(user: UserId, workspaces: &Workspaces, log: &EventLog) -> Folders {
        Folders {
            workspaces: workspaces.clone(),
            log: log.clone(),
            user,
        }
    }

    #[tokio::test]
    async fn resolves_only_folders_below_a_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let secret = dir.path().join("root-secret");
        for folder in [&root, &secret, &root.join("a")] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&secret, root.join("link")).unwrap();
        let workspaces = Workspaces::new(&root, &[]).unwrap();
        let log = memory_log(log::limits::Limits::default());
        let folders = folders_of(UserId::owner(), &workspaces, &log);
        let real = root.canonicalize().unwrap();
        let id = "01938c5e-7a3b-7c4d-8e5f-0123456789ab".parse().unwrap();
        assert_eq!(
            folders.session_folder(id, Some("a")).unwrap(),
            Folder {
                path: real.join("a"),
                created: false
            }
        );
        assert_eq!(
            folders.session_folder(id, None).unwrap().path,
            real.join(id.to_string())
        );
        for path in ["link", "/etc", "../root-secret", "/nowhere"] {
            assert!(folders.session_folder(id, Some(path)).is_err(), "{path}");
        }
        for path in ["b", "file"] {
            assert!(matches!(
                folders.session_folder(id, Some(path)),
                Err(CreateError::Input(InputError::Invalid(_)))
            ));
        }
        assert!(matches!(
            folders.session_folder(id, Some(secret.to_str().unwrap())),
            Err(CreateError::Input(InputError::Forbidden(_)))
        ));
        workspaces.remove_directory(&id.to_string()).unwrap();
        assert!(!real.join(id.to_string()).exists());
    }

    #[tokio::test]
    async fn folder_of_a_session_exists_only_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::new(dir.path(), &[]).unwrap();
        let log = memory_log(log::limits::Limits::default());
        let session = open(&log, 7).await;
        let seq = log::eventlog::testing::say(&session, "");
        session.wait(seq).await.unwrap();
        let name = session.session().to_string();
        let inside = workspaces.create_directory(&name).unwrap().join("src");
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(dir.path().join("project")).unwrap();
        let owner = folders_of(UserId::owner(), &workspaces, &log);
        let stranger = UserId::from_text("default/stranger");
        let stranger = folders_of(stranger, &workspaces, &log);
        std::fs::write(inside.join("file"), "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("project"), inside.join("link")).unwrap();
        let nested = dir.path().join("project/nested");
        std::os::unix::fs::symlink(inside.join("link"), &nested).unwrap();
        for path in [inside.join("file"), inside.join("link"), nested] {
            let path = path.to_str().unwrap();
            let refused = stranger.resolve("/cwd", path).unwrap_err();
            let missing = stranger.resolve("/cwd", "missing").unwrap_err();
            assert_eq!(refused.to_string(), missing.to_string(), "{path}");
            let hidden = stranger.browse(path, None, 10);
            assert!(matches!(hidden, Err(FileError::Missing)), "{path}");
        }
        for path in [&*name, inside.to_str().unwrap()] {
            owner.resolve("/cwd", path).unwrap();
            let refused = stranger.resolve("/cwd", path).unwrap_err();
            let missing = stranger.resolve("/cwd", "missing").unwrap_err();
            assert_eq!(refused.to_string(), missing.to_string(), "{path}");
            owner.browse(path, None, 10).unwrap();
            let hidden = stranger.browse(path, None, 10);
            assert!(matches!(hidden, Err(FileError::Missing)), "{path}");
        }
        for path in [".", ""] {
            owner.resolve("/cwd", path).unwrap();
            let refused = stranger.resolve("/cwd", path).unwrap_err();
            assert!(matches!(refused, InputError::Forbidden(_)), "{path}");
        }
        stranger.resolve("/cwd", "project").unwrap();
    }
}
