//! The files of a session, their changes, and the folders in which sessions can work.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use base::types::Timestamp;

/// The type of an entry in a list of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Folder,
    /// A symbolic link. The routes follow it if the target is inside the workspace.
    Link,
    /// Any other object. It cannot be read or written.
    Other,
}

/// An entry in a list of files.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// The path in the form that the file routes accept: relative to `cwd`, or absolute in an additional
    /// directory.
    pub path: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: FileKind,
    /// The size in bytes; null unless the entry is a file.
    #[schema(required)]
    pub size: Option<u64>,
    pub modified_at: Timestamp,
    /// The media type by the suffix of the name; null if the suffix is unknown.
    #[schema(required)]
    pub mime_type: Option<String>,
}

/// A page of files.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileList {
    pub files: Vec<FileEntry>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// The bytes of a file.
// Only the OpenAPI document uses this type: the routes stream the bytes.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct FileContent(pub Vec<u8>);

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
