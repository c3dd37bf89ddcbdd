//! Errors in the configuration, with the key and its location.

use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{}: the file is not used, because {reason}. It names commands that the gateway runs. To use it as it is, name it with --config",
        path.display()
    )]
    Untrusted { path: PathBuf, reason: String },
    #[error("{origin}: {message}")]
    Syntax { origin: Origin, message: String },
    #[error("{origin}: unknown key `{key}`{}", did_you_mean(suggestion.as_deref()))]
    Unknown {
        origin: Origin,
        key: String,
        suggestion: Option<String>,
    },
    #[error("{origin}: unknown variable{}", did_you_mean(suggestion.as_deref()))]
    UnknownVariable {
        origin: Origin,
        suggestion: Option<String>,
    },
    #[error("{origin}: `{key}` must be {expected}, not {found}")]
    Type {
        origin: Origin,
        key: String,
        expected: String,
        found: &'static str,
    },
    #[error("{origin}: `{key}`: {reason}")]
    Invalid {
        origin: Origin,
        key: String,
        reason: String,
    },
    #[error("{origin}: `{key}` needs `{missing}`")]
    Missing {
        origin: Origin,
        key: String,
        missing: &'static str,
    },
    #[error("{name}: {reason}")]
    Variable { name: &'static str, reason: String },
    #[error(
        "no home directory for the data; set the data directory with --data DIR or ACP_GATEWAY_DATA"
    )]
    NoDataFolder,
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
}

pub(super) fn closest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    known
        .into_iter()
        .map(|name| (similarity(written, name), name))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name.to_owned())
}

/// Combines two measures: a common prefix counts for long names, and edit distance counts for short names.
fn similarity(written: &str, name: &str) -> f64 {
    let edit_similarity = strsim::normalized_damerau_levenshtein(written, name) + 0.2;
    strsim::jaro_winkler(written, name).max(edit_similarity)
}

#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Origin {
    #[display("default")]
    Default,
    #[display("{}:{line}", path.display())]
    File {
        path: Arc<PathBuf>,
        line: usize,
    },
    Environment(Arc<str>),
    Flag(&'static str),
}
