//! The mode and the options of a session. The agent defines them, and the values are raw ACP.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::schema::OptionValue;

/// A change of the mode of a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetMode {
    /// The id of one of the agent's modes.
    #[schema(min_length = 1, max_length = 1024)]
    pub mode_id: String,
}

/// A change of a configuration option of a session.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetConfigOption {
    /// The id of a value, or a boolean for a switch.
    #[schema(value_type = OptionValue)]
    pub value: Box<RawValue>,
}

/// The modes of a session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SessionModes)]
pub struct Modes {
    /// Raw ACP: `currentModeId` and `availableModes`. Null if the agent has no modes.
    #[schema(required, value_type = Option<Object>)]
    pub modes: Option<Box<RawValue>>,
}

/// The configuration options of a session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SessionConfigOptions)]
pub struct ConfigOptions {
    /// Raw ACP. Null if the agent has no options.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub config_options: Option<Box<RawValue>>,
}
