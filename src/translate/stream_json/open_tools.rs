//! The tool calls without a result.

use serde_json::Value;

use super::bounds;
use super::tool::starts_subagent;
use crate::translate::budget::Budget;

/// The maximum number of calls. The oldest call is forgotten: its result has no name, but it passes.
const MAX_TOOLS: usize = 1024;

/// The calls, the oldest first.
#[derive(Debug)]
pub(super) struct OpenTools {
    all: Vec<OpenTool>,
    budget: Budget,
}

/// A tool call without a result.
#[derive(Debug)]
pub(super) struct OpenTool {
    id: String,
    name: String,
    /// The members of the input that later lines need. Null: none, or forgotten.
    input: Value,
    /// The tool call of the subagent that made the call.
    parent: Option<String>,
}

impl OpenTool {
    /// Keeps only the members of the input that later lines need.
    pub(super) fn new(id: &str, name: &str, input: &Value, parent: Option<&str>) -> Self {
        let members = needed_members(name).iter();
        let members = members.filter_map(|member| {
            let value = input
                .get(*member)
                .filter(|value| value.is_string() || value.is_number())?;
            Some(((*member).to_owned(), value.clone()))
        });
        let members: serde_json::Map<String, Value> = members.collect();
        let input = if members.is_empty() {
            Value::Null
        } else {
            Value::Object(members)
        };
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            input,
            parent: parent.map(str::to_owned),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn input(&self) -> &Value {
        &self.input
    }

    pub(super) fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    fn input_bytes(&self) -> usize {
        let texts = self
            .input
            .as_object()
            .into_iter()
            .flat_map(|members| members.values());
        texts.filter_map(Value::as_str).map(str::len).sum()
    }

    fn bytes(&self) -> usize {
        self.id.len() + self.name.len() + self.parent().map_or(0, str::len) + self.input_bytes()
    }
}

/// The members that the result of the tool, or the first line of its subagent, needs.
fn needed_members(name: &str) -> &'static [&'static str] {
    match name {
        "Write" => &["file_path", "content"],
        "TaskCreate" => &["subject"],
        "TaskUpdate" => &["taskId", "subject", "status"],
        _ if starts_subagent(name) => &["description"],
        _ => &[],
    }
}

impl Default for OpenTools {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            budget: Budget::new(bounds::TOOLS),
        }
    }
}

impl OpenTools {
    pub(super) fn get(&self, id: &str) -> Option<&OpenTool> {
        self.all.iter().find(|tool| tool.id == id)
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<OpenTool> {
        let at = self.all.iter().position(|tool| tool.id == id)?;
        Some(self.remove_at(at))
    }

    fn remove_at(&mut self, at: usize) -> OpenTool {
        let tool = self.all.remove(at);
        self.budget.release(tool.bytes());
        tool
    }

    /// Adds or replaces a call. Without space, the oldest inputs are forgotten first, and then the oldest calls. An input
    /// that is larger than the bound is not kept, and neither is a call with such an id.
    pub(super) fn insert(&mut self, mut tool: OpenTool) {
        self.remove(&tool.id);
        if !self.budget.fits_alone(tool.bytes()) {
            tool.input = Value::Null;
        }
        let bytes = tool.bytes();
        if !self.budget.fits_alone(bytes) {
            return;
        }
        if self.all.len() >= MAX_TOOLS {
            self.remove_at(0);
        }
        for older in &mut self.all {
            if self.budget.fits(bytes) {
                break;
            }
            self.budget.release(older.input_bytes());
            older.input = Value::Null;
        }
        while !self.budget.reserve(bytes) {
            self.remove_at(0);
        }
        self.all.push(tool);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(id: &str, bytes: usize) -> OpenTool {
        let input =
            json!({ "file_path": "/a", "content": "x".repeat(bytes), "other": "y".repeat(bytes) });
        OpenTool::new(id, "Write", &input, Some("task"))
    }

    fn retained(tools: &OpenTools) -> usize {
        let bytes = tools.all.iter().map(OpenTool::bytes).sum();
        assert_eq!(tools.budget.used(), bytes);
        bytes
    }

    #[test]
    fn only_members_that_the_result_needs_are_kept() {
        let kept = |name: &str, input: &Value| OpenTool::new("t", name, input, None).input;
        let input = json!({ "file_path": "/a", "content": "c", "x": "y", "description": "d", "subject": [1] });
        assert_eq!(
            kept("Write", &input),
            json!({ "file_path": "/a", "content": "c" })
        );
        assert_eq!(kept("Task", &input), json!({ "description": "d" }));
        assert_eq!(kept("Bash", &input), Value::Null);
        assert_eq!(
            kept("TaskCreate", &input),
            Value::Null,
            "a list is no subject"
        );
        assert_eq!(
            kept("TaskUpdate", &json!({ "taskId": 1, "status": "s" })),
            json!({ "taskId": 1, "status": "s" })
        );
    }

    #[test]
    fn oldest_inputs_are_forgotten_before_their_calls() {
        let mut tools = OpenTools::default();
        for id in 0..8 {
            tools.insert(write(&id.to_string(), bounds::TOOLS / 4));
            assert!(retained(&tools) <= bounds::TOOLS);
        }
        assert_eq!(tools.all.len(), 8);
        let oldest = tools.get("0").unwrap();
        assert_eq!(
            (oldest.name(), oldest.parent(), oldest.input()),
            ("Write", Some("task"), &Value::Null)
        );
        assert!(tools.get("7").unwrap().input()["content"].is_string());
        for id in 0..8 {
            tools.remove(&id.to_string()).unwrap();
        }
        assert_eq!(retained(&tools), 0);
    }

    #[test]
    fn one_input_above_the_bound_is_not_kept_and_displaces_nothing() {
        let mut tools = OpenTools::default();
        tools.insert(write("small", 10));
        tools.insert(write("large", bounds::TOOLS));
        assert_eq!(
            tools.get("large").map(|tool| (tool.name(), tool.input())),
            Some(("Write", &Value::Null))
        );
        assert!(tools.get("small").unwrap().input()["content"].is_string());
        tools.insert(OpenTool::new(
            &"i".repeat(bounds::TOOLS + 1),
            "Bash",
            &Value::Null,
            None,
        ));
        assert_eq!(tools.all.len(), 2);
        assert!(retained(&tools) < 100);
    }

    #[test]
    fn long_ids_displace_the_oldest_calls() {
        let mut tools = OpenTools::default();
        for id in 0..9 {
            let id = id.to_string().repeat(bounds::TOOLS / 4);
            tools.insert(OpenTool::new(&id, "", &Value::Null, None));
            assert!(retained(&tools) <= bounds::TOOLS);
        }
        assert_eq!(tools.all.len(), 4);
        assert!(tools.all[0].id.starts_with('5'));
    }

    #[test]
    fn call_is_replaced_and_the_number_of_calls_is_bounded() {
        let mut tools = OpenTools::default();
        for bytes in [100, 10] {
            tools.insert(write("same", bytes));
        }
        assert_eq!((tools.all.len(), retained(&tools)), (1, 4 + 5 + 4 + 2 + 10));
        for id in 0..MAX_TOOLS {
            tools.insert(OpenTool::new(&id.to_string(), "Bash", &Value::Null, None));
        }
        assert_eq!(tools.all.len(), MAX_TOOLS);
        assert!(tools.get("same").is_none() && tools.get("0").is_some());
    }
}
