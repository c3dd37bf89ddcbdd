//! The option of an agent for its model.

use serde_json::Value;
use serde_json::value::RawValue;

/// The option with the category `model` among the options of a session.
#[derive(Debug)]
pub(crate) struct ModelOption {
    pub(crate) id: String,
    pub(crate) current: Option<String>,
    /// The values that the agent offers.
    pub(crate) values: Vec<String>,
}

impl ModelOption {
    /// `None` if the agent has no such option.
    pub(crate) fn of(options: Option<&RawValue>) -> Option<Self> {
        let options: Vec<Value> = serde_json::from_str(options?.get()).ok()?;
        let option = options
            .into_iter()
            .find(|option| option["category"] == "model")?;
        let id = option["id"]
            .as_str()
            .or_else(|| option["configId"].as_str())?
            .to_owned();
        let current = option["currentValue"].as_str().map(ToOwned::to_owned);
        let entries = option["options"].as_array()?;
        // A group has options of its own.
        let in_group = |entry: &'_ Value| entry["options"].as_array().cloned().unwrap_or_default();
        let all = entries
            .iter()
            .flat_map(|entry| in_group(entry).into_iter().chain([entry.clone()]));
        let values = all
            .filter_map(|entry| entry["value"].as_str().map(ToOwned::to_owned))
            .collect();
        Some(Self {
            id,
            current,
            values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_in_groups() {
        let raw = r#"[{"id":"mode","category":"mode","options":[]},{"id":"m","category":"model","currentValue":"a",
            "options":[{"value":"a","name":"A"},{"group":"g","name":"G","options":[{"value":"b"},{"value":"c"}]}]}]"#;
        let option =
            ModelOption::of(Some(serde_json::from_str(raw).expect("JSON"))).expect("an option");
        assert_eq!(
            (option.id.as_str(), option.current.as_deref()),
            ("m", Some("a"))
        );
        assert_eq!(option.values, ["a", "b", "c"]);
        assert!(ModelOption::of(None).is_none());
    }
}
