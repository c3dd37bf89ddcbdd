//! The versions of ACP that the demo supports. A connection uses one version from its `initialize` to its end.

use serde::Deserialize;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    V1,
    V2,
}

/// The common params of `initialize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestedVersion {
    protocol_version: serde_json::Value,
}

impl RequestedVersion {
    /// The highest supported version that is not above the requested one, and otherwise the first version.
    pub(super) fn version(&self) -> Version {
        if self.protocol_version.as_u64().is_some_and(|version| version >= 2) {
            Version::V2
        } else {
            Version::V1
        }
    }
}
