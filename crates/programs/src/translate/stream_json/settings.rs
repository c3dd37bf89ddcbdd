//! The modes, models and slash commands of a session.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounds::{self, MAX_NAME};
use crate::translate::message::{Budget, LineError, Object};

const MAX_LISTED: usize = 512;
pub(super) const MODEL: &str = "model";

/// The permission modes of the CLI. It rejects a mode that is not available.
const MODES: [(&str, &str, &str); 6] = [
    ("auto", "Auto", "A classifier approves or rejects tools"),
    (
        "default",
        "Default",
        "Asks before the first use of each tool",
    ),
    (
        "acceptEdits",
        "Accept Edits",
        "Accepts edits of files without a question",
    ),
    ("plan", "Plan Mode", "Reads and plans, and changes nothing"),
    ("dontAsk", "Don't Ask", "Rejects tools that no rule allows"),
    (
        "bypassPermissions",
        "Bypass Permissions",
        "Runs every tool without a question",
    ),
];

#[derive(Debug)]
pub(super) struct Settings {
    mode: String,
    pub(super) model: Option<String>,
    models: Vec<Model>,
    commands: Vec<Value>,
    has_auto_mode: bool,
}

#[derive(Debug)]
struct Model {
    value: String,
    /// The id of the model API.
    resolved: Option<String>,
    option: Value,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: "default".to_owned(),
            model: None,
            models: Vec::new(),
            commands: Vec::new(),
            has_auto_mode: false,
        }
    }
}

impl Settings {
    pub(super) fn initialized(&mut self, answer: &Object<'_>) -> Result<(), LineError> {
        let mut budget = Budget::<{ bounds::LISTED }>::default();
        self.models.clear();
        self.commands.clear();
        let models = answer.array("models").unwrap_or_default();
        for model in models.into_iter().take(MAX_LISTED) {
            let model = Object::parse("models", model)?;
            let value = model.required_text("value")?;
            self.has_auto_mode |= model.is_true("supportsAutoMode");
            let name = model.text("displayName").unwrap_or_else(|| value.clone());
            let description = model.text("description");
            let resolved = model.text("resolvedModel");
            let texts = [Some(&name), description.as_ref(), resolved.as_ref()];
            let texts: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
            if value.len() > MAX_NAME || !budget.reserve(2 * value.len() + texts) {
                continue;
            }
            self.models.push(Model {
                option: json!({ "value": value, "name": name, "description": description }),
                value: value.into_owned(),
                resolved: resolved.map(Cow::into_owned),
            });
        }
        let commands = answer.array("commands").unwrap_or_default();
        for command in commands.into_iter().take(MAX_LISTED) {
            let command = Object::parse("commands", command)?;
            let name = command.required_text("name")?;
            let description = command.text("description").unwrap_or_default();
            let hint = command.text("argumentHint").unwrap_or_default();
            if budget.reserve(name.len() + description.len() + hint.len()) {
                let input = (!hint.is_empty()).then(|| json!({ "hint": hint }));
                let command = json!({ "name": name, "description": description, "input": input });
                self.commands.push(command);
            }
        }
        self.model = self.models.first().map(|model| model.value.clone());
        Ok(())
    }

    /// The members `modes` and `configOptions` of a new session.
    pub(super) fn offered(&self) -> (Value, Value) {
        let mode =
            |(id, name, description)| json!({ "id": id, "name": name, "description": description });
        let mut modes = MODES.map(mode).to_vec();
        modes.retain(|mode| mode["id"] != "auto" || self.has_auto_mode);
        let modes = json!({ "currentModeId": self.mode, "availableModes": modes });
        (modes, self.options())
    }

    pub(super) fn options(&self) -> Value {
        let Some(model) = &self.model else {
            return json!([]);
        };
        let options: Vec<_> = self.models.iter().map(|model| &model.option).collect();
        json!([{ "id": MODEL, "name": "Model", "category": "model", "type": "select", "currentValue": model, "options": options }])
    }

    pub(super) fn commands(&self) -> Option<Value> {
        let commands = &self.commands;
        (!commands.is_empty())
            .then(|| json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands }))
    }

    pub(super) fn has_model(&self, value: &str) -> bool {
        self.models.iter().any(|model| model.value == value)
    }

    /// Sets the mode. Returns the update if it has changed. A mode with a long id is ignored.
    pub(super) fn set_mode(&mut self, mode: &str) -> Option<Value> {
        if self.mode == mode || mode.len() > MAX_NAME {
            return None;
        }
        mode.clone_into(&mut self.mode);
        Some(json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }))
    }

    /// Compares the model of a turn with the selected one. Returns the update if another value is selected.
    pub(super) fn model_used(&mut self, resolved: &str) -> Option<Value> {
        let is_used = |model: &&Model| model.resolved.as_deref() == Some(resolved);
        let is_selected = |model: &&Model| Some(&model.value) == self.model.as_ref();
        let selected = self.models.iter().find(is_selected)?;
        if is_used(&selected) {
            return None;
        }
        self.model = Some(self.models.iter().find(is_used)?.value.clone());
        Some(json!({ "sessionUpdate": "config_option_update", "configOptions": self.options() }))
    }
}

pub(super) fn selected_option(params: &RawValue) -> Option<(String, String)> {
    let params = Object::parse("params", params).ok()?;
    Some((
        params.text("configId")?.into_owned(),
        params.text("value")?.into_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(answer: &str) -> Result<Settings, LineError> {
        let raw = RawValue::from_string(answer.to_owned()).unwrap();
        let mut settings = Settings::default();
        settings
            .initialized(&Object::parse("initialize", &raw)?)
            .map(|()| settings)
    }

    const ANSWER: &str = r#"{"commands":[{"name":"compact","description":"Compacts","argumentHint":"[text]"},{"name":"x"}],
        "models":[{"value":"default","resolvedModel":"opus-1","displayName":"Default"},
        {"value":"sonnet","resolvedModel":"sonnet-1","displayName":"Sonnet","description":"fast","supportsAutoMode":true}]}"#;

    #[test]
    fn initialize_offers_modes_models_and_commands() {
        let settings = settings(ANSWER).unwrap();
        let (modes, options) = settings.offered();
        assert_eq!(modes["currentModeId"], "default");
        let ids: Vec<_> = modes["availableModes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mode| &mode["id"])
            .collect();
        assert_eq!(
            ids,
            [
                "auto",
                "default",
                "acceptEdits",
                "plan",
                "dontAsk",
                "bypassPermissions"
            ]
        );
        assert_eq!(
            (
                &options[0]["currentValue"],
                &options[0]["options"][1]["name"]
            ),
            (&json!("default"), &json!("Sonnet"))
        );
        let commands = settings.commands().unwrap();
        assert_eq!(
            commands["availableCommands"],
            json!([
                { "name": "compact", "description": "Compacts", "input": { "hint": "[text]" } },
                { "name": "x", "description": "", "input": null },
            ])
        );
    }

    #[test]
    fn mode_and_model_are_reported_only_when_they_change() {
        let mut settings = settings(ANSWER).unwrap();
        assert_eq!(settings.set_mode("default"), None);
        assert_eq!(settings.set_mode("plan").unwrap()["currentModeId"], "plan");
        assert_eq!(settings.model_used("opus-1"), None);
        let update = settings.model_used("sonnet-1").unwrap();
        assert_eq!(update["configOptions"][0]["currentValue"], "sonnet");
        assert_eq!(settings.model_used("unknown"), None);
    }

    #[test]
    fn size_of_models_commands_and_modes_is_bounded() {
        let long = "x".repeat(bounds::LISTED / 3);
        let models = [
            json!({ "value": "m", "description": long }),
            json!({ "value": long }),
            json!({ "value": "n" }),
        ];
        let commands = [&*long, &*long, "small"].map(|name| json!({ "name": name }));
        let mut settings =
            settings(&json!({ "models": models, "commands": commands }).to_string()).unwrap();
        let values: Vec<_> = settings.models.iter().map(|model| &*model.value).collect();
        assert_eq!(values, ["m", "n"]);
        let names: Vec<_> = settings
            .commands
            .iter()
            .map(|command| command["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, [&*long, "small"]);
        assert_eq!(settings.set_mode(&long), None);
        assert_eq!(settings.mode, "default");
    }

    #[test]
    fn agent_without_models_offers_no_option() {
        let settings = settings("{}").unwrap();
        assert_eq!((settings.options(), settings.commands()), (json!([]), None));
        let error = self::settings(r#"{"models":[{}]}"#).unwrap_err();
        assert_eq!(
            error,
            LineError::Member {
                object: "models",
                member: "value"
            }
        );
    }
}
