//! The modes, models and slash commands that the agent offers.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::acp::RawObject;

/// The maximum number of models and commands that are kept.
const MAX_LISTED: usize = 512;
/// The category of the option that selects the model.
const MODEL: &str = "model";
/// The name of a model that the agent does not report.
const UNKNOWN_MODEL: &str = "unknown";

/// The settings of the session.
#[derive(Debug, Default)]
pub(super) struct Settings {
    mode: Option<String>,
    /// The id of the option that selects the model.
    option: Option<String>,
    model: Option<String>,
    models: Vec<Value>,
    commands: Vec<Value>,
}

impl Settings {
    /// Reads the result of `session/new`.
    pub(super) fn created(&mut self, result: &RawObject<'_>) {
        if let Some(modes) = result.object("modes") {
            self.mode = modes
                .text("currentModeId")
                .map(std::borrow::Cow::into_owned);
        }
        if let Some(options) = result.get("configOptions") {
            self.set_options(options);
        }
    }

    /// Reads the list of options. Returns whether the model has changed.
    pub(super) fn set_options(&mut self, options: &RawValue) -> bool {
        let options: Vec<Value> = serde_json::from_str(options.get()).unwrap_or_default();
        let selects = |option: &&Value| option["category"] == MODEL || option["id"] == MODEL;
        let Some(option) = options.iter().find(selects) else {
            return false;
        };
        self.option = option["id"].as_str().map(str::to_owned);
        let values = option["options"]
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .iter();
        // An option can have groups of values.
        let values = values.flat_map(|value| {
            value["options"]
                .as_array()
                .map_or(std::slice::from_ref(value), Vec::as_slice)
        });
        let model = |value: &Value| json!({ "value": value["value"], "displayName": value["name"], "description": value["description"].as_str().unwrap_or_default() });
        self.models = values.take(MAX_LISTED).map(model).collect();
        let current = option["currentValue"].as_str().map(str::to_owned);
        let has_changed = current != self.model;
        self.model = current;
        has_changed
    }

    pub(super) fn set_commands(&mut self, update: &RawObject<'_>) {
        let commands: Vec<Value> = update
            .get("availableCommands")
            .and_then(|commands| serde_json::from_str(commands.get()).ok())
            .unwrap_or_default();
        let command = |command: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            json!({ "name": command["name"], "description": text(&command["description"]), "argumentHint": text(&command["input"]["hint"]) })
        };
        self.commands = commands.iter().take(MAX_LISTED).map(command).collect();
    }

    pub(super) fn model(&self) -> &str {
        self.model.as_deref().unwrap_or(UNKNOWN_MODEL)
    }

    pub(super) fn set_model(&mut self, model: &str) {
        self.model = Some(model.to_owned());
    }

    /// The option that selects the model.
    pub(super) fn model_option(&self) -> Option<&str> {
        self.option.as_deref()
    }

    pub(super) fn mode(&self) -> &str {
        self.mode.as_deref().unwrap_or("default")
    }

    /// Sets the mode. Returns whether it has changed.
    pub(super) fn set_mode(&mut self, mode: &str) -> bool {
        let has_changed = self.mode.as_deref() != Some(mode);
        self.mode = Some(mode.to_owned());
        has_changed
    }

    /// The names of the slash commands.
    pub(super) fn command_names(&self) -> Vec<&Value> {
        self.commands
            .iter()
            .map(|command| &command["name"])
            .collect()
    }

    /// The answer to the control request `initialize`.
    pub(super) fn initialize_response(&self) -> Value {
        json!({
            "commands": self.commands, "models": self.models, "agents": [], "account": {},
            "output_style": "default", "available_output_styles": ["default"],
        })
    }
}
