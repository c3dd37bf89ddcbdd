//! The tools of the CLI as tool calls of ACP: kind, title, locations and content.

use std::path::Path;

use serde_json::{Value, json};

/// The tool that the CLI calls to ask the user for the end of its plan mode.
pub(super) const EXIT_PLAN_MODE: &str = "ExitPlanMode";

/// A tool call for people.
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

    fn at(mut self, location: Option<Value>) -> Self {
        self.locations.extend(location);
        self
    }
}

/// Whether the tool starts a subagent.
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
        let inside = Path::new(path)
            .strip_prefix(cwd)
            .ok()
            .filter(|path| !path.as_os_str().is_empty());
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
        "Write" => ToolInfo {
            content: path
                .map(|path| diff(path, None, text("content")))
                .into_iter()
                .collect(),
            ..ToolInfo::new(titled("Write"), "edit").at(path.map(|path| json!({ "path": path })))
        },
        "Edit" => ToolInfo {
            content: edits(path, std::slice::from_ref(input)),
            ..ToolInfo::new(titled("Edit"), "edit").at(path.map(|path| json!({ "path": path })))
        },
        "MultiEdit" => ToolInfo {
            content: edits(path, input["edits"].as_array().map_or(&[], Vec::as_slice)),
            ..ToolInfo::new(titled("Edit"), "edit").at(path.map(|path| json!({ "path": path })))
        },
        "NotebookEdit" => {
            ToolInfo::new(titled("Edit"), "edit").at(path.map(|path| json!({ "path": path })))
        }
        "Glob" => {
            let words = [text("path"), text("pattern")].into_iter().flatten();
            let title = words.fold("Find".to_owned(), |title, word| format!("{title} `{word}`"));
            ToolInfo::new(title, "search").at(text("path").map(|path| json!({ "path": path })))
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
    ToolInfo::new(format!("Read {shown}{range}"), "read").at(location)
}

fn grep(input: &Value) -> String {
    let mut words = vec!["grep".to_owned()];
    words.extend(
        ["-i", "-n"]
            .into_iter()
            .filter(|flag| input[*flag] == true)
            .map(str::to_owned),
    );
    let counts = ["-A", "-B", "-C"].into_iter();
    words.extend(counts.filter_map(|flag| Some(format!("{flag} {}", input[flag].as_u64()?))));
    words.extend(
        input["glob"]
            .as_str()
            .map(|glob| format!("--include=\"{glob}\"")),
    );
    words.extend(
        input["pattern"]
            .as_str()
            .map(|pattern| format!("\"{pattern}\"")),
    );
    words.extend(input["path"].as_str().map(str::to_owned));
    words.join(" ")
}

fn edits(path: Option<&str>, edits: &[Value]) -> Vec<Value> {
    let Some(path) = path else { return Vec::new() };
    let edit = |edit: &Value| {
        let (old, new) = (edit["old_string"].as_str(), edit["new_string"].as_str());
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
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        Value::Array(blocks) => blocks.clone(),
        Value::Object(_) => vec![content.clone()],
        _ => Vec::new(),
    };
    if blocks.is_empty()
        || (!is_error
            && matches!(
                name,
                "Write" | "Edit" | "MultiEdit" | "NotebookEdit" | EXIT_PLAN_MODE
            ))
    {
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
    let longest = longest
        .map(|line| line.len() - line.trim_start_matches('`').len())
        .max()
        .unwrap_or(2);
    let fence = "`".repeat(longest + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// An image block of the model API as ACP content.
pub(super) fn image(block: &Value) -> Option<Value> {
    let source = &block["source"];
    let (data, mime) = (source["data"].as_str()?, source["media_type"].as_str()?);
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

#[cfg(test)]
mod tests;
