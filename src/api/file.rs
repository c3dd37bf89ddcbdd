//! The files of a session.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::types::Timestamp;

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
