//! Checks of a session's title and metadata.

use serde_json::{Map, Value};

use super::error::InputError;

/// The maximum number of characters of a title.
const TITLE_CHARS: usize = 512;
/// The maximum number of members of a session's metadata.
pub(super) const MAX_METADATA_MEMBERS: usize = 64;
/// The maximum size of a session's metadata in bytes of JSON.
const MAX_METADATA_BYTES: usize = 64 << 10;

pub(super) fn check_title(title: Option<&str>) -> Result<(), InputError> {
    match title {
        Some(title) if title.chars().count() > TITLE_CHARS => {
            Err(InputError::invalid("/title", "at most 512 characters"))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), InputError> {
    let bytes = serde_json::to_vec(metadata).expect("JSON values have string keys and serialize").len();
    if bytes > MAX_METADATA_BYTES {
        return Err(InputError::invalid("/metadata", "at most 64 KiB of JSON"));
    }
    if metadata.len() > MAX_METADATA_MEMBERS {
        Err(InputError::invalid("/metadata", "at most 64 members"))
    } else {
        Ok(())
    }
}
