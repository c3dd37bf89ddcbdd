//! The folders that the owner of the gateway has granted to a key, in addition to the workspace roots.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Real paths of folders. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<PathBuf>", into = "Vec<PathBuf>")]
pub struct GrantedFolders(Option<Arc<[PathBuf]>>);

impl GrantedFolders {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter().flat_map(|folders| folders.iter())
    }

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |folders| folders.len())
    }

    pub fn contains(&self, path: &Path) -> bool {
        self.iter().any(|folder| path.starts_with(folder))
    }

    /// These folders and one more.
    #[must_use]
    pub fn with(&self, folder: PathBuf) -> Self {
        self.iter().cloned().chain([folder]).collect()
    }

    #[must_use]
    pub fn around<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let paths: Vec<&Path> = paths.into_iter().collect();
        self.iter()
            .filter(|folder| paths.iter().any(|path| path.starts_with(folder)))
            .cloned()
            .collect()
    }
}

impl FromIterator<PathBuf> for GrantedFolders {
    fn from_iter<I: IntoIterator<Item = PathBuf>>(folders: I) -> Self {
        Vec::from_iter(folders).into()
    }
}

impl From<Vec<PathBuf>> for GrantedFolders {
    fn from(folders: Vec<PathBuf>) -> Self {
        Self((!folders.is_empty()).then(|| folders.into()))
    }
}

impl From<GrantedFolders> for Vec<PathBuf> {
    fn from(folders: GrantedFolders) -> Self {
        folders.iter().cloned().collect()
    }
}

/// Why an agent cannot use a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FolderError {
    #[error(
        "a symbolic link has replaced the folder {} or one of its parents: restore the folder, or create a session in \
         another one", folder.display()
    )]
    Replaced { folder: PathBuf },
    #[error("the folder {} does not exist: create it again, or create a session in another one", folder.display())]
    Missing { folder: PathBuf },
    #[error(
        "the folder {} is outside of the workspace roots: add it to `workspaces.allow`, or create a session in another \
         one", folder.display()
    )]
    OutsideRoots { folder: PathBuf },
    #[error("could not open the folder {}: {cause}", folder.display())]
    Unusable { folder: PathBuf, cause: String },
}

impl FolderError {
    /// The error inside of an I/O error.
    pub fn inside(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<FolderError> for io::Error {
    fn from(error: FolderError) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_contain_paths_below_them() {
        let granted = GrantedFolders::default()
            .with("/a/b".into())
            .with("/c".into());
        for (path, is_inside) in [
            ("/a/b", true),
            ("/a/b/c", true),
            ("/a/bc", false),
            ("/a", false),
            ("/c/d", true),
        ] {
            assert_eq!(granted.contains(Path::new(path)), is_inside, "{path}");
        }
        let used = granted.around([Path::new("/c/d"), Path::new("/x")]);
        assert_eq!(used.iter().collect::<Vec<_>>(), [Path::new("/c")]);
        assert_eq!(serde_json::to_string(&granted).unwrap(), r#"["/a/b","/c"]"#);
        assert_eq!(
            serde_json::from_str::<GrantedFolders>("[]").unwrap(),
            GrantedFolders::default()
        );
    }
}
