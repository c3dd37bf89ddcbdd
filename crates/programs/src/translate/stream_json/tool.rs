//! The tools of the CLI as tool calls of ACP: kind, title, locations and content.

use std::path::Path;

use serde_json::{Value, json};

use super::bounds::{self, MAX_SUBJECT, MAX_TASK_WORD, MAX_TASKS};
use crate::translate::message::{Budget, cut};

/// The tool that the CLI calls to ask the user for the end of its plan mode.
pub(super) const EXIT_PLAN_MODE: &str = "ExitPlanMode";

#[derive(Debug, Default, PartialEq)]
pub(super) struct ToolInfo {
    pub(super) title: String,
    pub(super) kind: &'static str,
    pub(super) content: Vec<Value>,
    pub(super) locations: Vec<Value>,
}

impl ToolInfo {
    fn new(title: impl Into<String>, kind: &'static str) -> Self {
        Self {
            title: title.into(),
            kind,
            ..Self::default()
        }
    }

    fn with_text(mut self, text: Option<&str>) -> Self {
        self.content.extend(text.map(text_content));
        self
    }

    fn at(mut self, path: Option<&str>) -> Self {
        self.locations
            .extend(path.map(|path| json!({ "path": path })));
        self
    }

    fn with_diffs(mut self, path: Option<&str>, edits: &[Value]) -> Self {
        self.content = diffs(path, edits);
        self.at(path)
    }
}

pub(super) fn starts_subagent(name: &str) -> bool {
    matches!(name, "Task" | "Agent")
}

/// The name of the tool in `_meta`, as the ACP adapter of the CLI reports it.
pub(super) fn tool_meta(name: &str) -> Value {
    json!({ "claudeCode": { "toolName": name } })
}

/// Describes a call. `input` is null if it is not complete.
pub(super) fn describe(name: &str, input: &Value, cwd: &Path) -> ToolInfo {
    let text = |member: &str| input[member].as_str().filter(|text| !text.is_empty());
    let path = text("file_path").or_else(|| text("notebook_path"));
    let shown = |path: &str| {
        let inside = Path::new(path).strip_prefix(cwd).ok();
        let inside = inside.filter(|path| !path.as_os_str().is_empty());
        inside.map_or_else(|| path.to_owned(), |path| path.display().to_string())
    };
    let titled =
        |verb: &str| path.map_or_else(|| verb.to_owned(), |path| format!("{verb} {}", shown(path)));
    match name {
        "Task" | "Agent" => {
            ToolInfo::new(text("description").unwrap_or("Task"), "think").with_text(text("prompt"))
        }
        "Bash" => ToolInfo::new(text("command").unwrap_or("Terminal"), "execute")
            .with_text(text("description")),
        "BashOutput" | "KillShell" | "TaskOutput" | "TaskStop" => ToolInfo::new(name, "execute"),
        "Read" => read(input, path, &path.map_or_else(|| "File".to_owned(), shown)),
        "Write" => {
            let mut info = ToolInfo::new(titled("Write"), "edit").at(path);
            info.content
                .extend(path.map(|path| diff(path, None, text("content"))));
            info
        }
        "Edit" => {
            ToolInfo::new(titled("Edit"), "edit").with_diffs(path, std::slice::from_ref(input))
        }
        "MultiEdit" => {
            let edits = input["edits"].as_array().map_or(&[][..], Vec::as_slice);
            ToolInfo::new(titled("Edit"), "edit").with_diffs(path, edits)
        }
        "NotebookEdit" => ToolInfo::new(titled("Edit"), "edit").at(path),
        "Glob" => {
            let words = [text("path"), text("pattern")].into_iter().flatten();
            let title = words.fold("Find".to_owned(), |title, word| format!("{title} `{word}`"));
            ToolInfo::new(title, "search").at(text("path"))
        }
        "Grep" => ToolInfo::new(grep(input), "search"),
        "LS" => ToolInfo::new(
            text("path").map_or_else(|| "List".into(), |path| format!("List {path}")),
            "search",
        ),
        "WebFetch" => {
            let title =
                text("url").map_or_else(|| "Fetch".to_owned(), |url| format!("Fetch {url}"));
            ToolInfo::new(title, "fetch").with_text(text("prompt"))
        }
        "WebSearch" | "web_search" => {
            let title = text("query")
                .map_or_else(|| "Web search".to_owned(), |query| format!("\"{query}\""));
            ToolInfo::new(title, "fetch")
        }
        EXIT_PLAN_MODE => ToolInfo::new("Ready to code?", "switch_mode").with_text(text("plan")),
        _ => ToolInfo::new(name, "other"),
    }
}

fn read(input: &Value, path: Option<&str>, shown: &str) -> ToolInfo {
    let offset = input["offset"].as_u64();
    let range = match (offset, input["limit"].as_u64()) {
        (_, Some(limit)) if limit > 0 => {
            let first = offset.unwrap_or(1);
            format!(" ({first} - {})", first.saturating_add(limit) - 1)
        }
        (Some(offset), _) => format!(" (from line {offset})"),
        _ => String::new(),
    };
    let location = path.map(|path| json!({ "path": path, "line": offset.unwrap_or(1) }));
    ToolInfo {
        locations: Vec::from_iter(location),
        ..ToolInfo::new(format!("Read {shown}{range}"), "read")
    }
}

fn grep(input: &Value) -> String {
    let mut command = "grep".to_owned();
    for flag in ["-i", "-n"] {
        if input[flag] == true {
            command += &format!(" {flag}");
        }
    }
    for flag in ["-A", "-B", "-C"] {
        if let Some(lines) = input[flag].as_u64() {
            command += &format!(" {flag} {lines}");
        }
    }
    if let Some(glob) = input["glob"].as_str() {
        command += &format!(" --include=\"{glob}\"");
    }
    if let Some(pattern) = input["pattern"].as_str() {
        command += &format!(" \"{pattern}\"");
    }
    if let Some(path) = input["path"].as_str() {
        command += &format!(" {path}");
    }
    command
}

fn diffs(path: Option<&str>, edits: &[Value]) -> Vec<Value> {
    let Some(path) = path else { return Vec::new() };
    let edit = |edit: &Value| {
        let old = edit["old_string"].as_str();
        let new = edit["new_string"].as_str();
        (old.is_some() || new.is_some()).then(|| diff(path, old.filter(|old| !old.is_empty()), new))
    };
    edits.iter().filter_map(edit).collect()
}

fn diff(path: &str, old: Option<&str>, new: Option<&str>) -> Value {
    json!({ "type": "diff", "path": path, "oldText": old, "newText": new.unwrap_or_default() })
}

fn text_content(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

/// The content of a tool call after its result. `None` keeps the content that the call began with.
pub(super) fn result_content(name: &str, content: &Value, is_error: bool) -> Option<Vec<Value>> {
    let blocks: Vec<Value> = match content {
        Value::String(text) if !text.is_empty() => vec![json!({ "type": "text", "text": text })],
        Value::Array(blocks) if !blocks.is_empty() => blocks.clone(),
        Value::Object(_) => vec![content.clone()],
        _ => return None,
    };
    let keeps = ["Write", "Edit", "MultiEdit", "NotebookEdit", EXIT_PLAN_MODE];
    if !is_error && keeps.contains(&name) {
        return None;
    }
    let wrap: fn(&str) -> String = match (is_error, name) {
        (true, _) => |text| format!("```\n{text}\n```"),
        (false, "Bash") => |text| format!("```console\n{}\n```", text.trim_end()),
        (false, "Read") => fenced,
        (false, _) => str::to_owned,
    };
    let blocks = blocks.iter().map(|block| match image(block) {
        Some(image) => json!({ "type": "content", "content": image }),
        None => text_content(&wrap(&readable(block))),
    });
    Some(blocks.collect())
}

/// A fence that is longer than every fence in the text.
fn fenced(text: &str) -> String {
    let longest = text.lines().filter(|line| line.starts_with("```"));
    let longest = longest.map(|line| line.len() - line.trim_start_matches('`').len());
    let longest = longest.max().unwrap_or(2);
    let fence = "`".repeat(longest + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// An image block of the model API as ACP content.
pub(super) fn image(block: &Value) -> Option<Value> {
    let data = block["source"]["data"].as_str()?;
    let mime = block["source"]["media_type"].as_str()?;
    (block["type"] == "image").then(|| json!({ "type": "image", "data": data, "mimeType": mime }))
}

/// A block of a result as text. Blocks of unknown types are shown as JSON.
fn readable(block: &Value) -> String {
    let text = |member: &str| block[member].as_str().unwrap_or_default();
    match text("type") {
        "text" => text("text").to_owned(),
        "tool_reference" => format!("Tool: {}", text("tool_name")),
        "web_search_result" => format!("{} ({})", text("title"), text("url")),
        "web_fetch_result" => format!("Fetched: {}", text("url")),
        kind if kind.ends_with("_error") => format!("Error: {}", text("error_code")),
        _ => block.to_string(),
    }
}

/// The maximum number of calls. The oldest call is forgotten: its result has no name, but it passes.
const MAX_TOOLS: usize = 1024;

/// The calls, the oldest first.
#[derive(Debug, Default)]
pub(super) struct OpenTools {
    all: Vec<OpenTool>,
    budget: Budget<{ bounds::TOOLS }>,
}

#[derive(Debug)]
pub(super) struct OpenTool {
    id: String,
    pub(super) name: String,
    /// The members of the input that later lines need. Null: none, or forgotten.
    pub(super) input: Value,
    /// The tool call of the subagent that made the call.
    parent: Option<String>,
}

impl OpenTool {
    /// Keeps only the members of the input that later lines need.
    pub(super) fn new(id: &str, name: &str, input: &Value, parent: Option<&str>) -> Self {
        let mut kept = Value::Null;
        for member in needed_members(name) {
            if let value @ (Value::String(_) | Value::Number(_)) = &input[*member] {
                kept[*member] = value.clone();
            }
        }
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            input: kept,
            parent: parent.map(str::to_owned),
        }
    }

    pub(super) fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    fn input_bytes(&self) -> usize {
        let members = self.input.as_object().into_iter().flatten();
        let texts = members.filter_map(|(_, value)| value.as_str());
        texts.map(str::len).sum()
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
        if tool.bytes() > bounds::TOOLS {
            tool.input = Value::Null;
        }
        let bytes = tool.bytes();
        if bytes > bounds::TOOLS {
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
    if name != "TodoWrite" {
        return None;
    }
    let todos = input["todos"].as_array()?.iter().take(MAX_TASKS);
    let entries = todos.filter_map(|todo| Some(entry(todo["content"].as_str()?, &todo["status"])));
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
                    let status = "pending".to_owned();
                    self.0.push(Task {
                        id,
                        subject,
                        status,
                    });
                }
            }
            "TaskUpdate" => self.update(input)?,
            _ => return None,
        }
        let entries = self
            .0
            .iter()
            .map(|task| entry(&task.subject, &json!(task.status)));
        Some(plan(&entries.collect::<Vec<_>>()))
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
        if let Some(subject) = input["subject"].as_str() {
            cut(subject, MAX_SUBJECT).clone_into(&mut task.subject);
        }
        if let Some(status) = status {
            cut(status, MAX_TASK_WORD).clone_into(&mut task.status);
        }
        Some(())
    }
}

fn task_id(result: &Value) -> Option<String> {
    text_or_number(&result["task"]["id"])
}

fn text_or_number(id: &Value) -> Option<String> {
    let text = id.as_str().map(str::to_owned);
    text.or_else(|| id.as_u64().map(|id| id.to_string()))
}

/// The JSON in the content of a result: a text, or one block of text.
fn parsed(content: &Value) -> Option<Value> {
    let text = content.as_str().or_else(|| content[0]["text"].as_str())?;
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod open_tools_tests {
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
            (&*oldest.name, oldest.parent(), &oldest.input),
            ("Write", Some("task"), &Value::Null)
        );
        assert!(tools.get("7").unwrap().input["content"].is_string());
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
            tools.get("large").map(|tool| (&*tool.name, &tool.input)),
            Some(("Write", &Value::Null))
        );
        assert!(tools.get("small").unwrap().input["content"].is_string());
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

#[cfg(test)]
mod plan_tests {
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
        let mut tasks = Tasks::default();
        let long = "ä".repeat(MAX_SUBJECT);
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
