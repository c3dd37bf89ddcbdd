//! The changes of a session's working folder.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::types::Timestamp;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileChangeKind {
    Added,
    Modified,
    Deleted,
}

/// A file that differs from its state at the start of the session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// The path relative to `cwd`, for the other routes of changes and for those of files.
    pub path: String,
    pub kind: FileChangeKind,
    /// The number of added lines; null unless both texts are known.
    #[schema(required)]
    pub additions: Option<u64>,
    /// The number of deleted lines; null unless both texts are known.
    #[schema(required)]
    pub deletions: Option<u64>,
    /// Whether the content is or was not text.
    pub binary: bool,
    /// Whether a content is too large to be shown (1 MiB), cannot be read, or was not stored at the start.
    pub too_large: bool,
}

/// The changes of the working folder of a session, sorted by path.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileChangeList {
    /// The time of the state with which the folder is compared.
    pub since: Timestamp,
    /// False if changes may be missing in the list, or old contents.
    pub complete: bool,
    /// Why the list is not complete; null if it is.
    #[schema(required)]
    pub reason: Option<String>,
    pub files: Vec<FileChange>,
    /// Whether there are more changes than all pages of the list contain.
    pub more: bool,
    /// The `cursor` of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// The texts of a changed file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileChangeText {
    pub path: String,
    pub kind: FileChangeKind,
    /// The text at the start of the session; null for an added file.
    #[schema(required)]
    pub old_text: Option<String>,
    /// The current text; null for a deleted file.
    #[schema(required)]
    pub new_text: Option<String>,
    /// The `ETag` of the current file, for `If-Match` of a revert or a write; null for a deleted file.
    #[schema(required)]
    pub etag: Option<String>,
}
