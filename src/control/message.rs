//! The messages on the control socket.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::telemetry::ErrorChain;

/// The maximum size of a message. A path has at most 4 KiB.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// A text that must not be logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// The key that a command needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    /// The command has a key.
    OwnKey,
    /// A key for an editor. `former` is the key of an earlier connection, which stays in use if it is still valid.
    Editor { former: Option<Secret> },
    /// A key for a terminal sign-in.
    SignIn,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Request {
    /// The first request of each connection. A repetition changes nothing.
    Hello { token: Secret, access: Access },
    /// Grants a folder to the key of the connection.
    Allow { folder: String },
}

/// The gateway's answer to the first request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// The URL of the gateway on this machine.
    pub url: String,
    pub key: Option<Secret>,
    /// Whether the gateway stops when nobody uses it. Then a command may start it again.
    pub exits_when_idle: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Reply {
    Welcome(Welcome),
    Allowed,
    /// The request cannot succeed without a change.
    Rejected {
        reason: String,
    },
    Failed {
        reason: String,
    },
}

impl Reply {
    pub(super) fn failed(error: &dyn std::error::Error) -> Self {
        Self::Failed {
            reason: ErrorChain(error).to_string(),
        }
    }

    pub(super) fn failure(reason: impl Into<String>) -> Self {
        Self::Failed {
            reason: reason.into(),
        }
    }
}

pub(super) fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages have string keys and serialize");
    line.push(b'\n');
    line
}
