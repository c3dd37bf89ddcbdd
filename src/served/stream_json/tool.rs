//! Tool calls of the agent as calls of tools of the CLI, with their results.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::writer::Writer;
use crate::acp::RawObject;
use crate::served::message::{object, raw};

/// The maximum number of tool calls without a result. The state of further calls is not kept.
const MAX_TOOLS: usize = 1024;

/// The tool calls without a result.
#[derive(Debug, Default)]
pub(super) struct Tools {
    open: HashMap<String, Tool>,
    plans: u64,
}

/// A tool call without a result.
#[derive(Debug, Clone)]
struct Tool {
    name: String,
    title: String,
    lane: Option<String>,
    /// The whole call was written.
    is_complete: bool,
}

/// The name of the tool that the agent names itself, or that has the kind of the call.
fn name_of(call: &RawObject<'_>) -> String {
    let own = call
        .object("_meta")
        .and_then(|meta| meta.object("claudeCode")?.text("toolName"));
    if let Some(own) = own.filter(|name| !name.is_empty()) {
        return own.into_owned();
    }
    let has = |member| {
        call.object("rawInput")
            .is_some_and(|input| input.get(member).is_some())
    };
    let title = call.text("title").filter(|title| !title.is_empty());
    match call.text("kind").as_deref() {
        Some("execute") => "Bash",
        Some("read") => "Read",
        Some("edit") if has("old_string") => "Edit",
        Some("edit") => "Write",
        Some("search") => "Grep",
        Some("fetch") => "WebFetch",
        _ => return title.map_or_else(|| "Tool".to_owned(), std::borrow::Cow::into_owned),
    }
    .to_owned()
}

/// The input of a call: an object. `None` if the agent does not report it.
fn input_of(call: &RawObject<'_>) -> Option<Box<RawValue>> {
    let input = call.get("rawInput").filter(|input| input.get() != "null")?;
    let is_object = input.get().starts_with('{');
    Some(if is_object {
        input.to_owned()
    } else {
        object(&[("input", input.to_owned())])
    })
}

impl Tools {
    /// The id of the next plan.
    pub(super) fn next_plan(&mut self) -> String {
        self.plans += 1;
        format!("plan_{}", self.plans)
    }

    /// The name and the input of a call for a permission request.
    pub(super) fn asked(&self, call: &RawObject<'_>) -> (String, Box<RawValue>) {
        let id = call.text("toolCallId").unwrap_or_default();
        let name = self
            .open
            .get(&*id)
            .map_or_else(|| name_of(call), |tool| tool.name.clone());
        (name, input_of(call).unwrap_or_else(|| raw(&json!({}))))
    }

    /// Writes a tool call or its change.
    pub(super) fn update(
        &mut self,
        lane: Option<&str>,
        update: &RawObject<'_>,
        writer: &mut Writer,
        out: &mut Vec<Bytes>,
    ) {
        let Some(id) = update.text("toolCallId") else {
            return;
        };
        let is_new = !self.open.contains_key(&*id);
        let mut tool = self.open.get(&*id).cloned().unwrap_or_else(|| Tool {
            name: name_of(update),
            title: update.text("title").unwrap_or_default().into_owned(),
            lane: lane.map(str::to_owned),
            is_complete: false,
        });
        let status = update.text("status");
        let ended = matches!(status.as_deref(), Some("completed" | "failed"));
        let input = input_of(update);
        if !tool.is_complete && (input.is_some() || ended) {
            let input = input.unwrap_or_else(|| tool.shown_input());
            let call = object(&[
                ("type", raw("tool_use")),
                ("id", raw(&id)),
                ("name", raw(&tool.name)),
                ("input", input),
            ]);
            writer.block(tool.lane.as_deref(), call, out);
            tool.is_complete = true;
        } else if is_new {
            writer.tool_begun(lane, &id, &tool.name, out);
        }
        if ended {
            self.open.remove(&*id);
            let is_error = status.as_deref() == Some("failed");
            let result = object(&[
                ("tool_use_id", raw(&id)),
                ("type", raw("tool_result")),
                ("content", result_of(update)),
                ("is_error", raw(&is_error)),
            ]);
            writer.user(tool.lane.as_deref(), raw(&[result]), out);
        } else if !is_new || self.open.len() < MAX_TOOLS {
            self.open.insert(id.into_owned(), tool);
        }
    }
}

impl Tool {
    /// The input of a call whose input the agent does not report.
    fn shown_input(&self) -> Box<RawValue> {
        raw(&if self.name == "Bash" {
            json!({ "command": self.title })
        } else {
            json!({})
        })
    }
}

/// The content of a result: as the tool returned it, or as the agent shows it.
fn result_of(update: &RawObject<'_>) -> Box<RawValue> {
    let output = update
        .get("rawOutput")
        .filter(|output| output.get() != "null");
    let is_content = |output: &&RawValue| {
        let blocks: Option<Vec<Value>> = serde_json::from_str(output.get()).ok();
        output.get().starts_with('"')
            || blocks.is_some_and(|blocks| blocks.iter().all(|block| block["type"].is_string()))
    };
    if let Some(output) = output.filter(is_content) {
        return output.to_owned();
    }
    let shown: Vec<Value> = update
        .get("content")
        .and_then(|content| serde_json::from_str(content.get()).ok())
        .unwrap_or_default();
    let texts: Vec<&str> = shown
        .iter()
        .filter_map(|part| part["content"]["text"].as_str())
        .collect();
    match (texts.is_empty(), output) {
        (true, Some(output)) => raw(output.get()),
        _ => raw(&texts.join("\n")),
    }
}
