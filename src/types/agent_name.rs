//! The name of an agent in the configuration and in requests.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// `[a-z0-9][a-z0-9_-]{0,63}`: safe in a URL, a path and a log line.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentName(Arc<str>);

#[derive(Debug, thiserror::Error)]
#[error(
    "an agent's name has 1 to 64 characters of a-z, 0-9, '_' and '-', and begins with a letter or a digit"
)]
pub struct AgentNameError;

impl AgentName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentName {
    type Err = AgentNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.as_bytes();
        let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let valid = bytes.first().is_some_and(plain)
            && bytes.len() <= 64
            && bytes.iter().all(|b| plain(b) || matches!(b, b'_' | b'-'));
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(AgentNameError)
        }
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_form!(AgentName);
