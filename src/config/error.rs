//! What is wrong with a configuration, with its key and its place.

use std::path::PathBuf;

use super::node::Origin;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{origin}: {message}")]
    Syntax { origin: Origin, message: String },
    #[error("{origin}: unknown key `{key}`{}", did_you_mean(suggestion.as_deref()))]
    Unknown { origin: Origin, key: String, suggestion: Option<String> },
    #[error("{origin}: unknown variable{}", did_you_mean(suggestion.as_deref()))]
    UnknownVariable { origin: Origin, suggestion: Option<String> },
    #[error("{origin}: `{key}` must be {expected}, not {found}")]
    Type { origin: Origin, key: String, expected: String, found: &'static str },
    #[error("{origin}: `{key}`: {reason}")]
    Invalid { origin: Origin, key: String, reason: String },
    #[error("{origin}: `{key}` needs `{missing}`")]
    Missing { origin: Origin, key: String, missing: &'static str },
    #[error("{name}: {reason}")]
    Variable { name: &'static str, reason: String },
    #[error("there is no home folder for the data; name one by --data DIR or ACP_GATEWAY_DATA")]
    NoDataFolder,
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// The known name that is nearest to what was written, if one is near.
pub(super) fn closest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    known
        .into_iter()
        .map(|name| (similarity(written, name), name))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name.to_owned())
}

/// A common beginning says much for a long name, two swapped letters little against a short one.
fn similarity(written: &str, name: &str) -> f64 {
    let edit_similarity = strsim::normalized_damerau_levenshtein(written, name) + 0.2;
    strsim::jaro_winkler(written, name).max(edit_similarity)
}
