//! A mode of an agent, as a client selects it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A mode of the agent, or a value of one of its options that selects a mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModeSelection {
    /// The id of the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mode_id: Option<String>,
    /// The id of the option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub config_id: Option<String>,
    /// The value of the option. Absent for an option that is switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value: Option<String>,
}

impl ModeSelection {
    pub fn mode(id: &str) -> Self {
        Self {
            mode_id: Some(id.to_owned()),
            config_id: None,
            value: None,
        }
    }

    /// `value`: `None` for an option that is switched on.
    pub fn option(id: &str, value: Option<&str>) -> Self {
        Self {
            mode_id: None,
            config_id: Some(id.to_owned()),
            value: value.map(str::to_owned),
        }
    }
}
