//! Lists folders in which a session can work, below the operator's roots.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::roots::Workspaces;
use base::types::SessionId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderPage {
    /// The folder above, if a session can work in it.
    pub parent: Option<PathBuf>,
    /// The real path of the listed folder.
    pub path: PathBuf,
    /// The names of the folders in it, sorted.
    pub names: Vec<String>,
    /// The last name of the page, if there are more.
    pub next: Option<String>,
}

impl Workspaces {
    /// Lists the folders in a folder by name. `after` is the last name of the previous page. Omits links, hidden folders,
    /// names that are not UTF-8, and the folders that the gateway created for sessions.
    pub fn browse(
        &self,
        path: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<FolderPage, FileError> {
        let path = self.resolve_directory(path)?;
        let has_sessions = self.is_first_root(&path);
        let mut names = BTreeSet::new();
        let mut cut = false;
        for entry in self.open_folder(&path)?.entries()? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let hidden =
                name.starts_with('.') || (has_sessions && name.parse::<SessionId>().is_ok());
            if hidden || after.is_some_and(|after| &*name <= after) || !entry.file_type()?.is_dir()
            {
                continue;
            }
            names.insert(name);
            if names.len() > limit {
                names.pop_last();
                cut = true;
            }
        }
        let names: Vec<String> = names.into_iter().collect();
        let next = if cut { names.last().cloned() } else { None };
        Ok(FolderPage {
            parent: self.parent(&path),
            path,
            names,
            next,
        })
    }

    fn parent(&self, path: &Path) -> Option<PathBuf> {
        let parent = path.parent().filter(|parent| self.has(parent));
        parent.map(Path::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browse_lists_folders_below_the_roots_only() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let session = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";
        for folder in [
            "root/a/deep",
            "root/b",
            "root/c",
            "root/.hidden",
            "outside",
            &format!("root/{session}"),
        ] {
            std::fs::create_dir_all(real.join(folder)).unwrap();
        }
        std::fs::write(real.join("root/file"), "").unwrap();
        std::os::unix::fs::symlink(real.join("outside"), real.join("root/link")).unwrap();
        let root = real.join("root");
        let workspaces = Workspaces::new(&root, &[]).unwrap();
        let page = |names: &[&str], next: Option<&str>| FolderPage {
            parent: None,
            path: root.clone(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            next: next.map(str::to_owned),
        };
        let text = root.to_str().unwrap();
        assert_eq!(
            workspaces.browse(text, None, 10).unwrap(),
            page(&["a", "b", "c"], None)
        );
        assert_eq!(
            workspaces.browse(text, None, 2).unwrap(),
            page(&["a", "b"], Some("b"))
        );
        assert_eq!(
            workspaces.browse(text, Some("b"), 2).unwrap(),
            page(&["c"], None)
        );
        let deeper = workspaces.browse("a", None, 10).unwrap();
        assert_eq!(
            (deeper.parent, deeper.names),
            (Some(root.clone()), vec!["deep".to_owned()])
        );
        for outside in ["/", "/etc", "link", "a/../../outside"] {
            let error = workspaces.browse(outside, None, 10).unwrap_err();
            assert!(
                matches!(error, FileError::OutsideRoots | FileError::Malformed),
                "{outside}: {error}"
            );
        }
        assert!(matches!(
            workspaces.browse("missing", None, 10),
            Err(FileError::Missing)
        ));
        assert!(matches!(
            workspaces.browse("file", None, 10),
            Err(FileError::NotADirectory)
        ));
    }
}
