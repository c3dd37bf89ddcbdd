//! The todo list of the agent as a plan.
//!
//! The tool `TodoWrite` replaces the list. Newer versions of the CLI have one tool for each change of a task.

use serde_json::{Value, json};

use super::bounds::{MAX_SUBJECT, MAX_TASK_WORD, MAX_TASKS};
use crate::translate::budget::cut;

/// The tasks in the order of their creation.
#[derive(Debug, Default)]
pub(super) struct Tasks(Vec<Task>);

#[derive(Debug)]
struct Task {
    id: String,
    subject: String,
    status: String,
}

/// Whether the tool only reads or changes the todo list. Its calls are no tool calls of ACP.
pub(super) fn is_plan_tool(name: &str) -> bool {
    matches!(
        name,
        "TodoWrite" | "TaskCreate" | "TaskUpdate" | "TaskList" | "TaskGet"
    )
}

/// The plan that a call of `TodoWrite` writes.
pub(super) fn todo_plan(name: &str, input: &Value) -> Option<Value> {
    let todos = input["todos"].as_array().filter(|_| name == "TodoWrite")?;
    let entries = todos
        .iter()
        .take(MAX_TASKS)
        .filter_map(|todo| Some(entry(todo["content"].as_str()?, &todo["status"])));
    Some(plan(&entries.collect::<Vec<_>>()))
}

fn entry(content: &str, status: &Value) -> Value {
    json!({ "content": content, "status": status.as_str().unwrap_or("pending"), "priority": "medium" })
}

fn plan(entries: &[Value]) -> Value {
    json!({ "sessionUpdate": "plan", "entries": entries })
}

impl Tasks {
    /// Applies a successful call, and returns the new plan. `result` is the structured result of the CLI, `content`
    /// the text for the model.
    pub(super) fn apply(
        &mut self,
        name: &str,
        input: &Value,
        result: &Value,
        content: &Value,
    ) -> Option<Value> {
        match name {
            "TaskCreate" => {
                let id = task_id(result).or_else(|| task_id(&parsed(content)?))?;
                let subject = cut(input["subject"].as_str()?, MAX_SUBJECT).to_owned();
                if self.0.len() < MAX_TASKS && id.len() <= MAX_TASK_WORD {
                    self.0.push(Task {
                        id,
                        subject,
                        status: "pending".to_owned(),
                    });
                }
            }
            "TaskUpdate" => self.update(input)?,
            _ => return None,
        }
        let entries: Vec<_> = self
            .0
            .iter()
            .map(|task| entry(&task.subject, &json!(task.status)))
            .collect();
        Some(plan(&entries))
    }

    fn update(&mut self, input: &Value) -> Option<()> {
        let id = text_or_number(&input["taskId"])?;
        let at = self.0.iter().position(|task| task.id == id)?;
        let status = input["status"].as_str();
        if status == Some("deleted") {
            self.0.remove(at);
            return Some(());
        }
        let task = &mut self.0[at];
        let subject = input["subject"]
            .as_str()
            .map(|subject| cut(subject, MAX_SUBJECT));
        let status = status.map(|status| cut(status, MAX_TASK_WORD));
        for (member, value) in [(&mut task.subject, subject), (&mut task.status, status)] {
            if let Some(value) = value {
                value.clone_into(member);
            }
        }
        Some(())
    }
}

fn task_id(result: &Value) -> Option<String> {
    text_or_number(&result["task"]["id"])
}

fn text_or_number(id: &Value) -> Option<String> {
    id.as_str()
        .map(str::to_owned)
        .or_else(|| id.as_u64().map(|id| id.to_string()))
}

/// The JSON in the content of a result: a text, or one block of text.
fn parsed(content: &Value) -> Option<Value> {
    let text = content.as_str().or_else(|| content[0]["text"].as_str())?;
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn todo_list_is_a_plan() {
        let input = json!({ "todos": [
            { "content": "a", "status": "completed", "activeForm": "Doing a" }, { "content": "b", "status": "in_progress" },
            { "status": "pending" },
        ] });
        let plan = todo_plan("TodoWrite", &input).unwrap();
        assert_eq!(
            plan["entries"],
            json!([
                { "content": "a", "status": "completed", "priority": "medium" },
                { "content": "b", "status": "in_progress", "priority": "medium" },
            ])
        );
        assert_eq!(todo_plan("Write", &input), None);
    }

    #[test]
    fn tasks_are_created_updated_and_deleted() {
        let mut tasks = Tasks::default();
        let create = |subject: &str| json!({ "subject": subject, "description": "-" });
        tasks
            .apply(
                "TaskCreate",
                &create("a"),
                &json!({ "task": { "id": "1" } }),
                &Value::Null,
            )
            .unwrap();
        let text = json!([{ "type": "text", "text": r#"{"task":{"id":2}}"# }]);
        let plan = tasks
            .apply("TaskCreate", &create("b"), &Value::Null, &text)
            .unwrap();
        assert_eq!(plan["entries"].as_array().unwrap().len(), 2);
        let update = |input: Value, tasks: &mut Tasks| {
            tasks.apply("TaskUpdate", &input, &Value::Null, &Value::Null)
        };
        let plan = update(
            json!({ "taskId": "2", "status": "in_progress", "subject": "B" }),
            &mut tasks,
        )
        .unwrap();
        assert_eq!(
            plan["entries"][1],
            json!({ "content": "B", "status": "in_progress", "priority": "medium" })
        );
        let plan = update(json!({ "taskId": "1", "status": "deleted" }), &mut tasks).unwrap();
        assert_eq!(plan["entries"].as_array().unwrap().len(), 1);
        assert!(update(json!({ "taskId": "9", "status": "completed" }), &mut tasks).is_none());
        assert!(
            tasks
                .apply("TaskList", &json!({}), &Value::Null, &Value::Null)
                .is_none()
        );
        assert!(
            tasks
                .apply("TaskCreate", &create("c"), &Value::Null, &json!("no id"))
                .is_none()
        );
    }

    #[test]
    fn number_of_tasks_is_bounded() {
        let mut tasks = Tasks::default();
        for id in 0..2 * MAX_TASKS {
            tasks.apply(
                "TaskCreate",
                &json!({ "subject": "t" }),
                &json!({ "task": { "id": id } }),
                &Value::Null,
            );
        }
        assert_eq!(tasks.0.len(), MAX_TASKS);
    }

    #[test]
    fn sizes_of_ids_subjects_and_statuses_are_bounded() {
        let (mut tasks, long) = (Tasks::default(), "ä".repeat(MAX_SUBJECT));
        let created = |id: &str| json!({ "task": { "id": id } });
        let subject = json!({ "subject": long });
        tasks
            .apply("TaskCreate", &subject, &created(&long), &Value::Null)
            .unwrap();
        assert!(tasks.0.is_empty());
        tasks
            .apply("TaskCreate", &subject, &created("1"), &Value::Null)
            .unwrap();
        assert_eq!(tasks.0[0].subject, "ä".repeat(MAX_SUBJECT / 2));
        let update = json!({ "taskId": "1", "subject": format!("b{long}"), "status": long });
        let plan = tasks
            .apply("TaskUpdate", &update, &Value::Null, &Value::Null)
            .unwrap();
        assert_eq!(tasks.0[0].subject.len(), MAX_SUBJECT - 1);
        assert_eq!(plan["entries"][0]["status"], "ä".repeat(MAX_TASK_WORD / 2));
    }
}
