//! The folders in which sessions can work.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A folder in which a session can work.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceFolder {
    /// The absolute path, for `cwd` of a session and for `path` of this route.
    pub path: String,
    pub name: String,
}

/// A page of folders.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceFolderList {
    /// The listed folder. Null for the list of the roots.
    #[schema(required)]
    pub path: Option<String>,
    /// The folder above. Null if sessions cannot work in it.
    #[schema(required)]
    pub parent: Option<String>,
    pub folders: Vec<WorkspaceFolder>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}
