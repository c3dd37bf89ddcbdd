//! Files of a session.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::types::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Folder,
    /// A symbolic link. The routes follow it if it stays inside.
    Link,
    /// Neither of these: it cannot be read or written.
    Other,
}

/// A file as it is listed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// As the routes take it: relative to `cwd`, or absolute in an additional directory.
    pub path: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: FileKind,
    /// In bytes; null for what is no file.
    #[schema(required)]
    pub size: Option<u64>,
    pub modified_at: Timestamp,
    /// By the ending of its name; null when that says nothing.
    #[schema(required)]
    pub mime_type: Option<String>,
}

/// A page of files.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileList {
    pub files: Vec<FileEntry>,
    #[schema(required)]
    pub next_cursor: Option<String>,
}
