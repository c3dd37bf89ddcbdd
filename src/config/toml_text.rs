//! Values in the syntax of TOML.

use std::path::Path;

pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

pub(super) fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

pub(super) fn list(items: impl IntoIterator<Item: ToString>) -> String {
    let items: Vec<_> = items
        .into_iter()
        .map(|item| quoted(&item.to_string()))
        .collect();
    format!("[{}]", items.join(", "))
}

/// Returns an inline table. A name is in quotes if it is not a bare key.
pub(super) fn table<'a>(entries: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let bare = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let name = |name: &str| {
        if bare(name) {
            name.to_owned()
        } else {
            quoted(name)
        }
    };
    let entries: Vec<_> = entries
        .into_iter()
        .map(|(key, value)| format!("{} = {value}", name(key)))
        .collect();
    if entries.is_empty() {
        "{}".to_owned()
    } else {
        format!("{{ {} }}", entries.join(", "))
    }
}
