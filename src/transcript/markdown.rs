//! Export of a transcript as Markdown.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::content::{array, decode, text, text_of};
use super::diff;
use super::escape::{blockquote, close_code_fence, code, element, fenced, indent, inline};
use super::plan_text::plan_text;
use crate::acp::RawObject;
use crate::api::{
    PromptStatus, Resolution, Role, Session, Settled, Turn, TurnItem, TurnMessage, TurnRequest,
    TurnSessionMessage, TurnToolCall,
};

/// Renders the session and its turns, ordered by prompt id.
pub fn markdown(session: &Session, turns: &[Turn]) -> String {
    let mut page = Page::default();
    let id = session.session_id.to_string();
    page.block(&format!("# {}", inline(session.title.as_deref().unwrap_or(&id))));
    page.block(&format!(
        "- Agent: {}\n- Directory: {}\n- Session: {}\n- Created: {}",
        session.agent,
        code(&session.cwd),
        id,
        session.created_at
    ));
    let mut turns: Vec<&Turn> = turns.iter().collect();
    turns.sort_by_key(|turn| turn.prompt_id);
    for turn in turns {
        page.turn(turn);
    }
    // Remove control characters, so that the page cannot control a terminal that prints it.
    page.0.retain(|character| !character.is_control() || matches!(character, '\n' | '\t'));
    page.0
}

/// Blocks separated by empty lines.
#[derive(Default)]
struct Page(String);

impl Page {
    fn block(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(text.trim_end());
        self.0.push('\n');
    }

    fn turn(&mut self, turn: &Turn) {
        let by = turn.by.as_deref().map(|by| format!(", {}", inline(by))).unwrap_or_default();
        self.block(&format!("## Turn {}\n\n*{}{by}*", turn.prompt_id, turn.created_at));
        let prompt = turn.prompt.as_deref().map(|raw| blocks(&array(raw))).unwrap_or_default();
        if !prompt.is_empty() {
            self.block(&blockquote(&prompt));
        }
        let children = Children::of(&turn.items);
        for item in &turn.items {
            self.item(item, &prompt, &children);
        }
        if let Some(plan) = turn.plan.as_deref().and_then(plan_text) {
            self.block(&plan);
        }
        self.turn_end(turn);
    }

    fn item(&mut self, item: &TurnItem, prompt: &str, children: &Children) {
        match item {
            TurnItem::Message(message) => match message.subagent.as_deref() {
                None => self.message(message, prompt),
                Some(child) => self.child_message(message, &children.name(child)),
            },
            TurnItem::ToolCall(tool) => {
                self.tool_call(tool, tool.subagent.as_deref().map(|child| children.name(child)));
            }
            TurnItem::AgentTerminal(terminal) => {
                if let Some(terminal) = RawObject::parse(&terminal.terminal) {
                    self.terminal(&terminal);
                }
            }
            TurnItem::Subagent(told) => {
                if let Some(child) = RawObject::parse(&told.child) {
                    self.child(&child);
                }
            }
            TurnItem::SessionMessage(message) => self.session_message(message, children),
            TurnItem::Request(request) => self.block(&request_line(request)),
            TurnItem::Notice(notice) => {
                if let Some(notice) = RawObject::parse(&notice.notice) {
                    let description = text(&notice, "description").map(|text| format!(": {text}"));
                    let title = text(&notice, "title").unwrap_or_default();
                    self.block(&blockquote(&format!("**{title}**{}", description.unwrap_or_default())));
                }
            }
            TurnItem::Compaction(compaction) => {
                let summary = blocks(&compaction.summary.iter().map(AsRef::as_ref).collect::<Vec<_>>());
                self.details("The agent compacted its context", &summary);
            }
            TurnItem::ContextLost(_) => {
                self.block("*The agent lost the context of the conversation and starts anew.*");
            }
            // Unknown updates are only in the JSON form.
            TurnItem::Other(_) => {}
        }
    }

    fn message(&mut self, message: &TurnMessage, prompt: &str) {
        let text = blocks(&message.content.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        match message.role {
            Role::Agent => self.block(&close_code_fence(&text)),
            Role::Thought => self.details("Thought", &text),
            // Some agents repeat each prompt as a user message.
            Role::User if text == prompt => {}
            Role::User => self.block(&blockquote(&text)),
        }
    }

    /// Renders a message of a child session, separate from the agent's messages to the user.
    fn child_message(&mut self, message: &TurnMessage, name: &str) {
        let text = blocks(&message.content.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        let what = match message.role {
            Role::Agent => "says",
            Role::Thought => "thinks",
            Role::User => "is asked",
        };
        self.details(&format!("Subagent {} {what}", element(name)), &text);
    }

    fn child(&mut self, child: &RawObject<'_>) {
        let title = text(child, "title").or_else(|| text(child, "sessionId")).unwrap_or_default();
        let description = text(child, "description").map(|words| format!(": {}", inline(&words)));
        let state = child.object("state").and_then(|state| text(&state, "state"));
        let state = state.map(|state| format!(" ({})", inline(&state)));
        let (description, state) = (description.unwrap_or_default(), state.unwrap_or_default());
        self.block(&format!("- **subagent** {}{description}{state}", inline(&title)));
    }

    fn session_message(&mut self, message: &TurnSessionMessage, children: &Children) {
        let words = blocks(&message.content.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        let member = |key| RawObject::parse(&message.message).and_then(|members| text(&members, key));
        let side = |key| member(key).map(|id| children.known(&id).unwrap_or("the agent").to_owned());
        let from = side("senderSessionId").map(|name| format!(" from {}", element(&name)));
        let to = side("recipientSessionId").map(|name| format!(" to {}", element(&name)));
        let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
        self.details(&format!("Message{from}{to}"), &words);
    }

    fn tool_call(&mut self, tool: &TurnToolCall, by: Option<String>) {
        let Some(call) = RawObject::parse(&tool.tool_call) else { return };
        let call = &call;
        let kind = text(call, "kind").unwrap_or_else(|| "other".to_owned());
        let title = text(call, "title").or_else(|| text(call, "toolCallId")).unwrap_or_default();
        let status = match tool.settled {
            Some(Settled::Cancelled) => "cancelled".to_owned(),
            Some(Settled::Unfinished) => "unfinished".to_owned(),
            None => text(call, "status").unwrap_or_else(|| "pending".to_owned()),
        };
        let by = by.map(|name| format!(", by {}", inline(&name))).unwrap_or_default();
        self.block(&format!("- **{}** {} ({}){by}", inline(&kind), inline(&title), inline(&status)));
        for part in call.get("content").map(array).unwrap_or_default() {
            if let Some(part) = RawObject::parse(part) {
                self.tool_content(&part);
            }
        }
        for command in tool.commands.iter().filter(|command| !command.output.is_empty()) {
            self.block(&indent(&fenced("", &command.output.replace('\r', ""))));
        }
    }

    fn terminal(&mut self, terminal: &RawObject<'_>) {
        let command = text(terminal, "command").or_else(|| text(terminal, "terminalId")).unwrap_or_default();
        self.block(&format!("- **terminal** {}", code(&command)));
        let output = terminal.object("output").and_then(|output| output.get("data").map(terminal_text));
        if let Some(output) = output.filter(|output| !output.is_empty()) {
            self.block(&indent(&fenced("", &output)));
        }
    }

    fn tool_content(&mut self, part: &RawObject<'_>) {
        let shown = match part.text("type").as_deref() {
            Some("content") => part.get("content").map(|raw| fenced("", &block(raw))),
            Some("diff") if part.get("changes").is_some() => Some(changes(part)),
            Some("diff") => {
                let path = text(part, "path").unwrap_or_default();
                let (old, new) = (text(part, "oldText").unwrap_or_default(), text(part, "newText"));
                let lines = diff::lines(&old, &new.unwrap_or_default());
                Some(format!("{}\n\n{}", code(&path), fenced("diff", &lines)))
            }
            Some("terminal") => text(part, "terminalId").map(|id| format!("Terminal {}", code(&id))),
            _ => None,
        };
        if let Some(shown) = shown {
            self.block(&indent(&shown));
        }
    }

    /// A collapsed section. Its text cannot close the element.
    fn details(&mut self, summary: &str, text: &str) {
        if !text.is_empty() {
            let text = close_code_fence(&text.trim_end().replace("</", "&lt;/"));
            self.block(&format!("<details><summary>{summary}</summary>\n\n{text}\n\n</details>"));
        }
    }

    fn turn_end(&mut self, turn: &Turn) {
        let left_out = if turn.truncated { " Parts are omitted." } else { "" };
        let end = match turn.status {
            PromptStatus::Queued => "Queued.".to_owned(),
            PromptStatus::Running => "Running.".to_owned(),
            PromptStatus::Completed => {
                format!("Stopped: {}.", inline(turn.stop_reason.as_deref().unwrap_or("unknown")))
            }
            PromptStatus::Failed => {
                let problem = turn.error.as_deref().and_then(RawObject::parse);
                let member = |key| problem.as_ref().and_then(|problem| text(problem, key));
                let code = member("code").unwrap_or_default();
                let words = member("detail").or_else(|| member("title")).unwrap_or_default();
                format!("Failed ({}): {}", inline(&code), inline(&words))
            }
        };
        self.block(&format!("*{end}{left_out}*"));
    }
}

/// The names of child sessions in this turn.
struct Children(HashMap<String, String>);

impl Children {
    fn of(items: &[TurnItem]) -> Self {
        let told = items.iter().filter_map(|item| match item {
            TurnItem::Subagent(told) => RawObject::parse(&told.child),
            _ => None,
        });
        Self(
            told.filter_map(|child| {
                let id = text(&child, "sessionId")?;
                let name = text(&child, "title").unwrap_or_else(|| id.clone());
                Some((id, name))
            })
            .collect(),
        )
    }

    fn known(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    fn name(&self, id: &str) -> String {
        self.known(id).unwrap_or(id).to_owned()
    }
}

/// A request and its answer in one line.
fn request_line(request: &TurnRequest) -> String {
    let answer = match (&request.resolution, &request.result) {
        (None, _) => "pending".to_owned(),
        (Some(resolution), result) => {
            let name = result.as_deref().and_then(|result| chosen_option(request, result));
            let by = request.by.as_deref().map(|by| format!(" by {}", inline(by))).unwrap_or_default();
            let name = name.map(|name| format!("{}, ", inline(&name))).unwrap_or_default();
            format!("{name}{}{by}", resolution_text(*resolution))
        }
    };
    let what = if request.options.is_some() {
        "Permission".to_owned()
    } else {
        format!("Request {}", code(&request.method))
    };
    format!("- *{what}: {answer}*")
}

fn resolution_text(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Answered => "answered",
        Resolution::Policy => "answered by the policy",
        Resolution::Cancelled => "cancelled",
        Resolution::Withdrawn => "withdrawn",
        Resolution::Expired => "expired",
    }
}

/// The name of the selected option.
fn chosen_option(request: &TurnRequest, result: &RawValue) -> Option<String> {
    let id = RawObject::parse(result)?.object("outcome")?.text("optionId")?.into_owned();
    let options = array(request.options.as_deref()?);
    let option = options
        .into_iter()
        .filter_map(RawObject::parse)
        .find(|option| option.text("optionId").as_deref() == Some(&id));
    option.and_then(|option| text(&option, "name")).or(Some(id))
}

/// Content blocks as text. Other blocks become a placeholder with their type.
fn blocks(blocks: &[&RawValue]) -> String {
    blocks.iter().map(|raw| block(raw)).collect::<Vec<_>>().join("\n\n")
}

fn block(raw: &RawValue) -> String {
    text_of(raw).unwrap_or_else(|| {
        let object = RawObject::parse(raw);
        let member = |key| object.as_ref().and_then(|object| text(object, key));
        let resource = object.as_ref().and_then(|object| object.object("resource"));
        let uri = member("uri").or_else(|| resource.as_ref().and_then(|resource| text(resource, "uri")));
        let kind = inline(&member("type").unwrap_or_else(|| "content".to_owned()));
        match uri {
            Some(uri) => format!("[{kind}: {}]", code(&uri)),
            None => format!("[{kind}]"),
        }
    })
}

/// A diff of ACP v2: the changes of files, and the patch if there is one.
fn changes(diff: &RawObject<'_>) -> String {
    let mut shown: Vec<String> = Vec::new();
    for change in diff.get("changes").map(array).unwrap_or_default().into_iter().filter_map(RawObject::parse)
    {
        let (operation, path) = (text(&change, "operation").unwrap_or_default(), text(&change, "path"));
        let from = text(&change, "oldPath").map(|old| format!(" from {}", code(&old))).unwrap_or_default();
        shown.push(format!("{} {}{from}", inline(&operation), code(&path.unwrap_or_default())));
    }
    if let Some(patch) = diff.object("patch").and_then(|patch| text(&patch, "text")) {
        shown.push(fenced("diff", &patch));
    }
    shown.join("\n\n")
}

/// A terminal's bytes as text, without carriage returns.
fn terminal_text(data: &RawValue) -> String {
    let bytes = decode(data.get()).and_then(|data| STANDARD.decode(data).ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\r', "")
}

#[cfg(test)]
mod tests;
