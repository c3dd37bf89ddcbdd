//! Values in the syntax of TOML.

use std::path::Path;

pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

pub(super) fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

pub(super) fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(|item| quoted(&item.to_string())).collect();
    format!("[{}]", items.join(", "))
}

/// A key, in quotes if it is not a bare key.
pub(super) fn key(name: &str) -> String {
    let bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if bare { name.to_owned() } else { quoted(name) }
}
