//! Why an agent cannot use a folder of its session.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
