//! Conversions from v1 to v2. The scenes and the history use the form of v1.

use serde_json::{Value, json};

/// Converts an update. v2 has other updates for plans and tool calls, and other diffs.
pub(super) fn update(mut update: Value) -> Value {
    match update["sessionUpdate"].as_str() {
        Some("tool_call" | "tool_call_update") => {
            update["sessionUpdate"] = json!("tool_call_update");
            convert_diffs(&mut update);
            update
        }
        Some("plan") => {
            // Plans of v1 have no id.
            let plan = json!({ "type": "items", "planId": "plan", "entries": update["entries"] });
            json!({ "sessionUpdate": "plan_update", "plan": plan })
        }
        _ => update,
    }
}

fn convert_diffs(call: &mut Value) {
    let content = call.get_mut("content").and_then(Value::as_array_mut);
    for part in content.into_iter().flatten() {
        if part["type"] == "diff" {
            *part = diff(part);
        }
    }
}

fn diff(diff: &Value) -> Value {
    let path = diff["path"].as_str().unwrap_or_default();
    let old = diff["oldText"].as_str();
    let new = diff["newText"].as_str().unwrap_or_default();
    let operation = if old.is_some() { "modify" } else { "add" };
    json!({
        "type": "diff",
        "changes": [{ "operation": operation, "path": path }],
        "patch": { "format": "git_patch", "text": patch(path, old, new) },
    })
}

/// A patch in the format of `git`, with one hunk for the whole file.
fn patch(path: &str, old: Option<&str>, new: &str) -> String {
    let name = path.trim_start_matches('/');
    let (head, from) = match old {
        Some(_) => ("", format!("a/{name}")),
        None => ("new file mode 100644\n", "/dev/null".to_owned()),
    };
    let old = old.unwrap_or_default();
    let range = |text: &str| match text.lines().count() {
        0 => "0,0".to_owned(),
        lines => format!("1,{lines}"),
    };
    let mut written = format!(
        "diff --git a/{name} b/{name}\n{head}--- {from}\n+++ b/{name}\n@@ -{} +{} @@\n",
        range(old),
        range(new)
    );
    for (sign, text) in [('-', old), ('+', new)] {
        for line in text.split_inclusive('\n') {
            written.push(sign);
            written.push_str(line);
            if !line.ends_with('\n') {
                written.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    written
}

/// Converts a history for its replay. v2 replays each message as a whole.
pub(super) fn replay(history: &[Value]) -> Vec<Value> {
    let mut replayed: Vec<Value> = Vec::new();
    for update in history {
        let kind = update["sessionUpdate"].as_str();
        let Some(kind) = kind.and_then(|kind| kind.strip_suffix("_chunk")) else {
            replayed.push(self::update(update.clone()));
            continue;
        };
        if let Some(last) = replayed.last_mut()
            && last["sessionUpdate"] == kind
            && last["messageId"] == update["messageId"]
            && let Some(content) = last["content"].as_array_mut()
        {
            content.push(update["content"].clone());
        } else {
            let content = &update["content"];
            replayed.push(
                json!({ "sessionUpdate": kind, "messageId": update["messageId"], "content": [content] }),
            );
        }
    }
    replayed
}

/// The params of a permission request for a tool call. A tool call with a command is about the command.
pub(super) fn permission_params(mut call: Value, cwd: &str, options: &Value) -> Value {
    convert_diffs(&mut call);
    let id = &call["toolCallId"];
    let subject = match call.pointer("/rawInput/command").and_then(Value::as_str) {
        Some(command) => {
            let command = command_line(command, call.pointer("/rawInput/args"));
            json!({ "type": "command", "command": command, "cwd": cwd, "toolCallId": id })
        }
        None => json!({ "type": "tool_call", "toolCall": call }),
    };
    json!({ "title": call["title"], "subject": subject, "options": options })
}

/// A command with its arguments, quoted for a shell. A subject has no member for arguments.
fn command_line(command: &str, args: Option<&Value>) -> String {
    let args = args.and_then(Value::as_array).into_iter().flatten();
    let words = args.filter_map(Value::as_str).map(|word| {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "@%+=:,./_-".contains(char);
        if !word.is_empty() && word.chars().all(is_plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    let words = std::iter::once(command.to_owned()).chain(words);
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn commands(mut commands: Vec<Value>) -> Vec<Value> {
    for command in &mut commands {
        command["type"] = json!("command");
        if let Some(input) = command.get_mut("input") {
            input["type"] = json!("text");
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_contain_the_arguments_of_their_command() {
        let call = json!({ "toolCallId": "c", "title": "Run rm", "rawInput": { "command": "rm", "args": ["-rf", "/x", "it's", ""] } });
        let params = permission_params(call, "/w", &json!([]));
        assert_eq!(params["subject"]["command"], r"rm -rf /x 'it'\''s' ''");
        let call = json!({ "toolCallId": "c", "rawInput": { "command": "cargo build" } });
        let params = permission_params(call, "/w", &json!([]));
        assert_eq!(params["subject"]["command"], "cargo build");
    }

    #[test]
    fn patches_name_added_files_and_missing_line_ends() {
        let text = patch("/w/a", None, "one\ntwo");
        assert!(
            text.contains("new file mode")
                && text.contains("--- /dev/null\n+++ b/w/a\n@@ -0,0 +1,2 @@\n")
        );
        assert!(
            text.ends_with("+one\n+two\n\\ No newline at end of file\n"),
            "{text}"
        );
    }
}
