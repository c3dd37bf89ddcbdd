//! The working folders of sessions, below the workspace roots.

use std::path::PathBuf;

use super::context::Context;
use super::error::{CreateError, InputError, NotFound, SessionError, WorkspaceError};
use super::record::{self, SessionRecord, SessionRecordView};
use crate::eventlog::{RecordPages, tenant_prefix};
use crate::store::Table;
use crate::types::{SessionId, Tenant};
use crate::workspace::{FileError, Workspace, Workspaces};

/// The error for a folder outside of the workspaces.
const OUTSIDE_ROOTS: &str = "the folder lies outside the workspace roots: add it to `workspaces.allow`, or start the gateway with --workspace";

/// The error for a folder of another host that its agent does not offer.
pub(super) const OUTSIDE_REMOTE_FOLDERS: &str = "the folder is on the host of the agent, and not below `remote_folders` of the agent's entry or the roots of the member of the fleet";

/// A session's working folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Whether the folder was created for this session.
    pub(super) created: bool,
}

impl Workspaces {
    /// The folder that a client named, or a new folder of the session. Blocks on the file system.
    pub(super) fn folder(
        &self,
        id: SessionId,
        requested: Option<&str>,
    ) -> Result<Folder, CreateError> {
        let Some(requested) = requested else {
            return Ok(Folder {
                path: self.create_directory(&id.to_string())?,
                created: true,
            });
        };
        Ok(Folder {
            path: self.resolve("/cwd", requested)?,
            created: false,
        })
    }

    /// Resolves an existing folder below a root to its real path. Blocks on the file system.
    pub(super) fn resolve(&self, pointer: &str, requested: &str) -> Result<PathBuf, InputError> {
        self.resolve_directory(requested).map_err(|error| {
            let detail = match error {
                FileError::OutsideRoots => return InputError::Forbidden(OUTSIDE_ROOTS.to_owned()),
                FileError::Missing => "there is no such folder".to_owned(),
                other => other.to_string(),
            };
            InputError::invalid(pointer, detail)
        })
    }
}

impl Context {
    /// The roots in which a session may work.
    pub(super) fn workspaces_of(&self, record: &SessionRecord) -> Workspaces {
        self.workspaces.with_granted(record.granted_folders.clone())
    }

    /// Opens a session's folders.
    pub(super) async fn open_workspace(
        &self,
        record: &SessionRecord,
    ) -> Result<Workspace, WorkspaceError> {
        if record.remote_folders {
            let detail = "the folders of the session are on the host of its agent";
            return Err(InputError::Forbidden(detail.to_owned()).into());
        }
        let (workspaces, cwd) = (self.workspaces_of(record), PathBuf::from(&record.cwd));
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

/// Whether a session of the tenant has this working folder.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_only_folders_below_a_root() {
        let dir = tempfile::tempdir().unwrap();
        let (root, secret) = (dir.path().join("root"), dir.path().join("root-secret"));
        for folder in [&root, &secret, &root.join("a")] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&secret, root.join("link")).unwrap();
        let workspaces = Workspaces::new(&root, &[]).unwrap();
        let real = root.canonicalize().unwrap();
        let id = "01938c5e-7a3b-7c4d-8e5f-0123456789ab".parse().unwrap();
        assert_eq!(
            workspaces.folder(id, Some("a")).unwrap(),
            Folder {
                path: real.join("a"),
                created: false
            }
        );
        assert_eq!(
            workspaces.folder(id, None).unwrap().path,
            real.join(id.to_string())
        );
        for (path, allowed) in [
            ("link", false),
            ("/etc", false),
            ("../root-secret", false),
            ("/nowhere", false),
        ] {
            assert_eq!(workspaces.folder(id, Some(path)).is_ok(), allowed, "{path}");
        }
        assert!(matches!(
            workspaces.folder(id, Some("b")),
            Err(CreateError::Input(InputError::Invalid(_)))
        ));
        assert!(matches!(
            workspaces.folder(id, Some("file")),
            Err(CreateError::Input(InputError::Invalid(_)))
        ));
        assert!(matches!(
            workspaces.folder(id, Some(secret.to_str().unwrap())),
            Err(CreateError::Input(InputError::Forbidden(_)))
        ));
        workspaces.remove_directory(&id.to_string()).unwrap();
        assert!(!real.join(id.to_string()).exists());
    }
}
