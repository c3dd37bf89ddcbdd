//! Checks of a session's title and metadata.

use serde_json::{Map, Value};

use super::refusal::Refusal;

/// The maximum number of characters of a title.
const TITLE_CHARS: usize = 512;
/// The maximum number of members of a session's metadata.
pub(super) const MAX_METADATA_MEMBERS: usize = 64;
/// The maximum size of a session's metadata in bytes of JSON.
const MAX_METADATA_BYTES: usize = 64 << 10;

pub(super) fn check_title(title: Option<&str>) -> Result<(), Refusal> {
    match title {
        Some(title) if title.chars().count() > TITLE_CHARS => {
            Err(Refusal::invalid("/title", "at most 512 characters"))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), Refusal> {
    let bytes = serde_json::to_vec(metadata).map_err(|error| Refusal::internal(&error))?.len();
    if bytes > MAX_METADATA_BYTES {
        return Err(Refusal::invalid("/metadata", "at most 64 KiB of JSON"));
    }
    if metadata.len() > MAX_METADATA_MEMBERS {
        Err(Refusal::invalid("/metadata", "at most 64 members"))
    } else {
        Ok(())
    }
}
