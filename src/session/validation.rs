//! Checks of a session's title and metadata.

use serde_json::{Map, Value};

use super::error::InputError;
use crate::types::text::{UnsafeCharacter, check_name, check_text};

/// The maximum number of characters of a title.
const TITLE_CHARS: usize = 512;
/// The maximum number of members of a session's metadata.
pub(super) const MAX_METADATA_MEMBERS: usize = 64;
/// The maximum size of a session's metadata in bytes of JSON.
const MAX_METADATA_BYTES: usize = 64 << 10;

pub(super) fn check_title(title: Option<&str>) -> Result<(), InputError> {
    let Some(title) = title else { return Ok(()) };
    if title.chars().count() > TITLE_CHARS {
        return Err(InputError::invalid("/title", "at most 512 characters"));
    }
    check_name(title).map_err(|error| InputError::invalid("/title", error.to_string()))
}

pub(super) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), InputError> {
    let bytes = serde_json::to_vec(metadata)
        .expect("JSON values have string keys and serialize")
        .len();
    if bytes > MAX_METADATA_BYTES {
        return Err(InputError::invalid("/metadata", "at most 64 KiB of JSON"));
    }
    if metadata.len() > MAX_METADATA_MEMBERS {
        return Err(InputError::invalid("/metadata", "at most 64 members"));
    }
    metadata
        .iter()
        .try_for_each(|(name, value)| check_member(name, value))
        .map_err(|(what, error)| {
            InputError::invalid(
                "/metadata",
                format!("the {what} of a member is not valid: {error}"),
            )
        })
}

/// Checks the name of a member, and all names and texts in its value.
fn check_member(name: &str, value: &Value) -> Result<(), (&'static str, UnsafeCharacter)> {
    check_name(name).map_err(|error| ("name", error))?;
    check_value(value)
}

fn check_value(value: &Value) -> Result<(), (&'static str, UnsafeCharacter)> {
    match value {
        Value::String(text) => check_text(text).map_err(|error| ("value", error)),
        Value::Array(values) => values.iter().try_for_each(check_value),
        Value::Object(members) => members
            .iter()
            .try_for_each(|(name, value)| check_member(name, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}
