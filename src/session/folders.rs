//! Where a session's agent may stand: folders below the workspace roots.

use std::path::{Component, Path, PathBuf};

use super::refusal::Refusal;
use crate::types::SessionId;

/// The operator's workspace roots. The first is where sessions get folders of their own.
#[derive(Debug, Clone)]
pub struct Workspaces {
    root: PathBuf,
    allow: Vec<PathBuf>,
}

/// A session's working folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// It was made for this session.
    pub(super) own: bool,
}

impl Workspaces {
    /// Roots are canonical from here on, so that a link cannot lead out of one later.
    pub fn new(root: &Path, allow: &[PathBuf]) -> std::io::Result<Self> {
        let allow = allow.iter().map(|path| path.canonicalize()).collect::<Result<_, _>>()?;
        Ok(Self { root: root.canonicalize()?, allow })
    }

    /// Blocks: it asks the file system.
    pub(super) fn folder(&self, id: SessionId, wanted: Option<&str>) -> Result<Folder, Refusal> {
        let Some(wanted) = wanted else {
            let path = self.root.join(id.to_string());
            std::fs::create_dir(&path).map_err(|error| Refusal::internal(&error))?;
            return Ok(Folder { path, own: true });
        };
        self.existing("/cwd", wanted).map(|path| Folder { path, own: false })
    }

    /// A folder that exists and lies below a root, by its real path.
    pub(super) fn existing(&self, pointer: &str, wanted: &str) -> Result<PathBuf, Refusal> {
        let invalid =
            |detail: &str| Refusal::Invalid { pointer: pointer.to_owned(), detail: detail.to_owned() };
        if wanted.contains('\0') || Path::new(wanted).components().any(|c| c == Component::ParentDir) {
            return Err(invalid("a path has no `..` and no NUL"));
        }
        let path = self.root.join(wanted);
        // What lies outside is told apart from what does not exist only below the roots: else one could look around.
        let outside = || Refusal::Forbidden("the folder lies outside the workspace roots".to_owned());
        let inside = |path: &Path| self.roots().any(|root| path.starts_with(root));
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(_) if inside(&path) => return Err(invalid("there is no such folder")),
            Err(_) => return Err(outside()),
        };
        if !inside(&real) {
            return Err(outside());
        }
        if !real.is_dir() {
            return Err(invalid("it is not a folder"));
        }
        Ok(real)
    }

    /// Erases the folder that was made for this session, and no other. Blocks.
    pub(super) fn erase(&self, id: SessionId) -> std::io::Result<()> {
        match std::fs::remove_dir_all(self.root.join(id.to_string())) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.root).chain(&self.allow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_below_a_root() {
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
        assert_eq!(workspaces.folder(id, Some("a")).unwrap(), Folder { path: real.join("a"), own: false });
        assert_eq!(workspaces.folder(id, None).unwrap().path, real.join(id.to_string()));
        for (wanted, allowed) in
            [("link", false), ("/etc", false), ("../root-secret", false), ("/nowhere", false)]
        {
            assert_eq!(workspaces.folder(id, Some(wanted)).is_ok(), allowed, "{wanted}");
        }
        assert!(matches!(workspaces.folder(id, Some("b")), Err(Refusal::Invalid { .. })));
        assert!(matches!(workspaces.folder(id, Some("file")), Err(Refusal::Invalid { .. })));
        assert!(matches!(workspaces.folder(id, Some(secret.to_str().unwrap())), Err(Refusal::Forbidden(_))));
        workspaces.erase(id).unwrap();
        assert!(!real.join(id.to_string()).exists());
    }
}
