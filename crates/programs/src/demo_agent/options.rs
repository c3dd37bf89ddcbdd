//! The configuration options of a session. Its mode is one of them, as in v2; v1 shows the mode separately.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use agent_client_protocol_schema::v1::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::{BOOLEAN_OPTIONS, Client};

pub(super) const MODE: &str = "mode";

/// The options with their default values, in the form of v1.
static OPTIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("options.json"))
        .expect("the file is JSON: each test reads it")
});

/// The values that differ from the defaults, by the id of the option.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Options(BTreeMap<String, Value>);

impl Options {
    pub(super) fn selected(&self, option: &str) -> &str {
        self.value(option).as_str().unwrap_or_default()
    }

    pub(super) fn is_on(&self, option: &str) -> bool {
        self.value(option) == true
    }

    pub(super) fn selected_name(&self, option: &str) -> &str {
        let mut values = values(option).iter();
        let selected = values.find(|value| value["value"] == *self.value(option));
        selected
            .and_then(|value| value["name"].as_str())
            .unwrap_or_default()
    }

    pub(super) fn set(&mut self, option: &str, value: &Value) -> Result<(), Error> {
        let Some(known) = definition(option) else {
            return Err(Error::invalid_params().data("configId is not an option of the session"));
        };
        let valid = match known["type"].as_str() {
            Some("boolean") => value.is_boolean(),
            _ => values(option)
                .iter()
                .any(|choice| choice["value"] == *value),
        };
        if !valid {
            return Err(Error::invalid_params().data("the option has no such value"));
        }
        self.0.insert(option.to_owned(), value.clone());
        Ok(())
    }

    /// The complete list for a client. Boolean options are only for clients that support them.
    pub(super) fn list(&self, client: &Client) -> Value {
        let mut options = OPTIONS.clone();
        options.retain(|option| match option["id"].as_str() {
            Some(MODE) => client.is_v2(),
            _ => option["type"] != "boolean" || client.offers(BOOLEAN_OPTIONS),
        });
        for option in &mut options {
            let members = option.as_object_mut();
            let id = members
                .and_then(|members| members.remove("id"))
                .unwrap_or_default();
            option["currentValue"] = self.value(id.as_str().unwrap_or_default()).clone();
            option[client.version.config_option_id_key()] = id;
        }
        options.into()
    }

    pub(super) fn modes(&self) -> Value {
        let modes = values(MODE).iter().map(
            |mode| json!({ "id": mode["value"], "name": mode["name"], "description": mode["description"] }),
        );
        json!({ "currentModeId": self.value(MODE), "availableModes": modes.collect::<Vec<_>>() })
    }

    pub(super) fn update(&self, option: &str, client: &Client) -> Value {
        if option == MODE && !client.is_v2() {
            return json!({ "sessionUpdate": "current_mode_update", "currentModeId": self.value(MODE) });
        }
        json!({ "sessionUpdate": "config_option_update", "configOptions": self.list(client) })
    }

    fn value(&self, option: &str) -> &Value {
        let default = || definition(option).map_or(&Value::Null, |known| &known["currentValue"]);
        self.0.get(option).unwrap_or_else(default)
    }
}

fn definition(option: &str) -> Option<&'static Value> {
    OPTIONS.iter().find(|known| known["id"] == option)
}

fn values(option: &str) -> &'static [Value] {
    definition(option)
        .and_then(|known| known["options"].as_array())
        .map_or(&[], Vec::as_slice)
}
