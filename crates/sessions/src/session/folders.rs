//! The working folders of sessions, below the workspace roots, and their paths after a restore into another data directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::context::Context;
use super::error::{CreateError, InputError, NotFound, SessionError, WorkspaceError};
use super::record::{self, SessionRecord, SessionRecordView};
use base::types::{SessionId, Tenant};
use log::eventlog::{RecordPages, Records, tenant_prefix};
use log::store::{Batch, CommitError, ReadError, RecordStore, Table};
use workspace::{FileError, Workspace, Workspaces};

const OUTSIDE_ROOTS: &str = "the folder lies outside the workspace roots: add it to `workspaces.allow`, or start the gateway with --workspace";

/// The error for a folder of another host that its agent does not offer.
pub(super) const OUTSIDE_REMOTE_FOLDERS: &str = "the folder is on the host of the agent, and not below `remote_folders` of the agent's entry or the roots of the member of the fleet";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Whether the folder was created for this session.
    pub(super) created: bool,
}

/// The folder that a client named, or a new folder of the session. Blocks on the file system.
pub(super) fn session_folder(
    workspaces: &Workspaces,
    id: SessionId,
    requested: Option<&str>,
) -> Result<Folder, CreateError> {
    let Some(requested) = requested else {
        return Ok(Folder {
            path: workspaces.create_directory(&id.to_string())?,
            created: true,
        });
    };
    Ok(Folder {
        path: resolve(workspaces, "/cwd", requested)?,
        created: false,
    })
}

/// Resolves an existing folder below a root to its real path. Blocks on the file system.
pub(super) fn resolve(
    workspaces: &Workspaces,
    pointer: &str,
    requested: &str,
) -> Result<PathBuf, InputError> {
    workspaces.resolve_directory(requested).map_err(|error| {
        let detail = match error {
            FileError::OutsideRoots => return InputError::Forbidden(OUTSIDE_ROOTS.to_owned()),
            FileError::Missing => "there is no such folder".to_owned(),
            other => other.to_string(),
        };
        InputError::invalid(pointer, detail)
    })
}

impl Context {
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

    #[test]
    fn resolves_only_folders_below_a_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let secret = dir.path().join("root-secret");
        for folder in [&root, &secret, &root.join("a")] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&secret, root.join("link")).unwrap();
        let workspaces = Workspaces::new(&root, &[]).unwrap();
        let real = root.canonicalize().unwrap();
        let id = "01938c5e-7a3b-7c4d-8e5f-0123456789ab".parse().unwrap();
        assert_eq!(
            session_folder(&workspaces, id, Some("a")).unwrap(),
            Folder {
                path: real.join("a"),
                created: false
            }
        );
        assert_eq!(
            session_folder(&workspaces, id, None).unwrap().path,
            real.join(id.to_string())
        );
        for (path, allowed) in [
            ("link", false),
            ("/etc", false),
            ("../root-secret", false),
            ("/nowhere", false),
        ] {
            assert_eq!(
                session_folder(&workspaces, id, Some(path)).is_ok(),
                allowed,
                "{path}"
            );
        }
        assert!(matches!(
            session_folder(&workspaces, id, Some("b")),
            Err(CreateError::Input(InputError::Invalid(_)))
        ));
        assert!(matches!(
            session_folder(&workspaces, id, Some("file")),
            Err(CreateError::Input(InputError::Invalid(_)))
        ));
        assert!(matches!(
            session_folder(&workspaces, id, Some(secret.to_str().unwrap())),
            Err(CreateError::Input(InputError::Forbidden(_)))
        ));
        workspaces.remove_directory(&id.to_string()).unwrap();
        assert!(!real.join(id.to_string()).exists());
    }
}
