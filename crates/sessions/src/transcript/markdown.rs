//! Export of a transcript as Markdown.

use std::borrow::Borrow;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::content::{array, text, text_of};
use super::diff::Diff;
use base::types::text::strip_controls;
use events::api::{
    PromptStatus, Resolution, Role, Session, Settled, Turn, TurnItem, TurnItemBody, TurnMessage,
    TurnNotice, TurnRequest, TurnSessionMessage, TurnSubagent, TurnToolCall,
};
use wire::acp::{RawObject, selected_option, stop_reason};

pub fn markdown(session: &Session, turns: &[Turn]) -> String {
    let mut page = Page::default();
    let id = session.session_id.to_string();
    page.block(&format!(
        "# {}",
        inline(session.title.as_deref().unwrap_or(&id))
    ));
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
    // The page must not control a terminal that prints it.
    strip_controls(&page.0).into_owned()
}

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
        let by = suffix(", ", turn.by.as_deref().map(inline));
        self.block(&format!(
            "## Turn {}\n\n*{}{by}*",
            turn.prompt_id, turn.created_at
        ));
        let prompt = turn
            .prompt
            .as_deref()
            .map(|raw| blocks(&array(raw)))
            .unwrap_or_default();
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
        let child = item.subagent.as_deref().map(|child| children.name(child));
        match &item.body {
            TurnItemBody::Message(message) => self.message(message, child, prompt),
            TurnItemBody::ToolCall(tool) => self.tool_call(tool, child),
            TurnItemBody::AgentTerminal(terminal) => self.terminal(&terminal.terminal),
            TurnItemBody::Subagent(subagent) => self.child(&subagent.child),
            TurnItemBody::SessionMessage(message) => self.session_message(message, children),
            TurnItemBody::Request(request) => self.block(&request_line(request)),
            TurnItemBody::Notice(TurnNotice { notice }) => {
                let title = member(notice, "title").unwrap_or_default();
                let description = suffix(": ", member(notice, "description"));
                self.block(&blockquote(&format!("**{title}**{description}")));
            }
            TurnItemBody::Compaction(compaction) => {
                self.details(
                    "The agent compacted its context",
                    &blocks(&compaction.summary),
                );
            }
            TurnItemBody::ContextLost(_) => {
                self.block("*The agent lost the context of the conversation and starts anew.*");
            }
            // Unknown updates are only in the JSON form.
            TurnItemBody::Other(_) => {}
        }
    }

    fn message(&mut self, message: &TurnMessage, child: Option<&str>, prompt: &str) {
        let text = blocks(&message.content);
        // A message of a child session is separate from the agent's messages to the user.
        if let Some(child) = child {
            let verb = match message.role {
                Role::Agent => "says",
                Role::Thought => "thinks",
                Role::User => "is asked",
            };
            return self.details(&format!("Subagent {} {verb}", element(child)), &text);
        }
        match message.role {
            Role::Agent => self.block(&close_code_fence(&text)),
            Role::Thought => self.details("Thought", &text),
            // Some agents repeat each prompt as a user message.
            Role::User if text == prompt => {}
            Role::User => self.block(&blockquote(&text)),
        }
    }

    fn child(&mut self, child: &RawValue) {
        let title = member(child, "title")
            .or_else(|| member(child, "sessionId"))
            .unwrap_or_default();
        let description = suffix(": ", member(child, "description").map(|text| inline(&text)));
        let state =
            RawObject::parse(child).and_then(|child| text(&child.object("state")?, "state"));
        let state = suffix(" ", state.map(|state| format!("({})", inline(&state))));
        self.block(&format!(
            "- **subagent** {}{description}{state}",
            inline(&title)
        ));
    }

    fn session_message(&mut self, message: &TurnSessionMessage, children: &Children) {
        let side = |key| {
            let id = member(&message.message, key)?;
            Some(element(
                children.0.get(&id).map_or("the agent", String::as_str),
            ))
        };
        let from = suffix(" from ", side("senderSessionId"));
        let to = suffix(" to ", side("recipientSessionId"));
        self.details(&format!("Message{from}{to}"), &blocks(&message.content));
    }

    fn tool_call(&mut self, tool: &TurnToolCall, child: Option<&str>) {
        let Some(call) = &RawObject::parse(&tool.tool_call) else {
            return;
        };
        let kind = text(call, "kind").unwrap_or_else(|| "other".to_owned());
        let title = text(call, "title")
            .or_else(|| text(call, "toolCallId"))
            .unwrap_or_default();
        let status = match tool.settled {
            Some(Settled::Cancelled) => "cancelled".to_owned(),
            Some(Settled::Unfinished) => "unfinished".to_owned(),
            None => text(call, "status").unwrap_or_else(|| "pending".to_owned()),
        };
        let by = suffix(", by ", child.map(inline));
        self.block(&format!(
            "- **{}** {} ({}){by}",
            inline(&kind),
            inline(&title),
            inline(&status)
        ));
        for part in call.get("content").map(array).unwrap_or_default() {
            if let Some(shown) = RawObject::parse(part).and_then(|part| tool_content(&part)) {
                self.block(&indent(&shown));
            }
        }
        for command in tool
            .commands
            .iter()
            .filter(|command| !command.output.is_empty())
        {
            self.block(&indent(&fenced("", &command.output.replace('\r', ""))));
        }
    }

    fn terminal(&mut self, terminal: &RawValue) {
        let command = member(terminal, "command").or_else(|| member(terminal, "terminalId"));
        self.block(&format!(
            "- **terminal** {}",
            code(&command.unwrap_or_default())
        ));
        let data = RawObject::parse(terminal)
            .and_then(|terminal| text(&terminal.object("output")?, "data"));
        let bytes = data
            .and_then(|data| STANDARD.decode(data).ok())
            .unwrap_or_default();
        let output = String::from_utf8_lossy(&bytes).replace('\r', "");
        if !output.is_empty() {
            self.block(&indent(&fenced("", &output)));
        }
    }

    /// A collapsed section. Its text cannot close the element.
    fn details(&mut self, summary: &str, text: &str) {
        if !text.is_empty() {
            let text = close_code_fence(&text.trim_end().replace("</", "&lt;/"));
            self.block(&format!(
                "<details><summary>{summary}</summary>\n\n{text}\n\n</details>"
            ));
        }
    }

    fn turn_end(&mut self, turn: &Turn) {
        let omitted = if turn.truncated {
            " Parts are omitted."
        } else {
            ""
        };
        let end = match turn.status {
            PromptStatus::Queued => "Queued.".to_owned(),
            PromptStatus::Running => "Running.".to_owned(),
            PromptStatus::Completed => {
                format!(
                    "Stopped: {}{}.",
                    inline(turn.stop_reason.as_deref().unwrap_or("unknown")),
                    cancel_words(turn)
                )
            }
            PromptStatus::Failed => {
                let member = |key| member(turn.error.as_deref()?, key);
                let code = member("code").unwrap_or_default();
                let detail = member("detail")
                    .or_else(|| member("title"))
                    .unwrap_or_default();
                format!(
                    "Failed ({}): {}{}",
                    inline(&code),
                    inline(&detail),
                    cancel_words(turn)
                )
            }
        };
        self.block(&format!("*{end}{omitted}*"));
    }
}

fn cancel_words(turn: &Turn) -> String {
    let own_end = turn.status == PromptStatus::Completed
        && turn.stop_reason.as_deref() != Some(stop_reason::CANCELLED);
    if own_end {
        return String::new();
    }
    turn.cancel_cause
        .map(|cause| format!(" ({})", inline(cause.words())))
        .unwrap_or_default()
}

struct Children(HashMap<String, String>);

impl Children {
    fn of(items: &[TurnItem]) -> Self {
        let named = items.iter().filter_map(|item| {
            let TurnItemBody::Subagent(TurnSubagent { child }) = &item.body else {
                return None;
            };
            let id = member(child, "sessionId")?;
            Some((id.clone(), member(child, "title").unwrap_or(id)))
        });
        Self(named.collect())
    }

    fn name<'a>(&'a self, id: &'a str) -> &'a str {
        self.0.get(id).map_or(id, String::as_str)
    }
}

fn suffix(separator: &str, text: Option<String>) -> String {
    text.map(|text| format!("{separator}{text}"))
        .unwrap_or_default()
}

fn member(object: &RawValue, key: &str) -> Option<String> {
    text(&RawObject::parse(object)?, key)
}

fn tool_content(part: &RawObject<'_>) -> Option<String> {
    match part.text("type")?.as_ref() {
        "content" => part.get("content").map(|raw| fenced("", &block(raw))),
        "diff" => Diff::of(part).map(|diff| diff_text(&diff)),
        "terminal" => text(part, "terminalId").map(|id| format!("Terminal {}", code(&id))),
        _ => None,
    }
}

fn diff_text(diff: &Diff) -> String {
    let mut shown = Vec::new();
    for file in &diff.files {
        let operation = file.operation.as_deref().map(inline);
        let operation = operation.map(|text| text + " ").unwrap_or_default();
        let from = suffix(" from ", file.old_path.as_deref().map(code));
        shown.push(format!("{operation}{}{from}", code(&file.path)));
    }
    shown.extend(diff.lines.as_ref().map(|lines| fenced("diff", lines)));
    shown.join("\n\n")
}

fn request_line(request: &TurnRequest) -> String {
    let answer = match request.resolution {
        None => "pending".to_owned(),
        Some(resolution) => {
            let chosen = request
                .result
                .as_deref()
                .and_then(|result| chosen_option(request, result));
            let chosen = chosen
                .map(|name| format!("{}, ", inline(&name)))
                .unwrap_or_default();
            let by = suffix(" by ", request.by.as_deref().map(inline));
            format!("{chosen}{}{by}", resolution_text(resolution))
        }
    };
    match request.options {
        Some(_) => format!("- *Permission: {answer}*"),
        None => format!("- *Request {}: {answer}*", code(&request.method)),
    }
}

fn resolution_text(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Answered => "answered",
        Resolution::Policy => "answered by the policy",
        Resolution::Cancelled => "cancelled",
        Resolution::Withdrawn => "withdrawn",
        Resolution::Expired => "expired",
        Resolution::Disconnected => "ended, because the client has disconnected",
    }
}

fn chosen_option(request: &TurnRequest, result: &RawValue) -> Option<String> {
    let id = selected_option(result)?.into_owned();
    let mut options = array(request.options.as_deref()?)
        .into_iter()
        .filter_map(RawObject::parse);
    let option = options.find(|option| option.text("optionId").as_deref() == Some(&id));
    option.and_then(|option| text(&option, "name")).or(Some(id))
}

/// Content blocks as text. Other blocks become a placeholder with their type.
fn blocks<B: Borrow<RawValue>>(blocks: &[B]) -> String {
    blocks
        .iter()
        .map(|raw| block(raw.borrow()))
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn block(raw: &RawValue) -> String {
    text_of(raw).unwrap_or_else(|| {
        let resource = || text(&RawObject::parse(raw)?.object("resource")?, "uri");
        let kind = inline(&member(raw, "type").unwrap_or_else(|| "content".to_owned()));
        match member(raw, "uri").or_else(resource) {
            Some(uri) => format!("[{kind}: {}]", code(&uri)),
            None => format!("[{kind}]"),
        }
    })
}

/// Renders the entries as a list, or the URI or text that replaces them. `None`: the plan is empty.
fn plan_text(plan: &RawValue) -> Option<String> {
    let plan = RawObject::parse(plan)?;
    let entries = plan.get("entries").map(array).unwrap_or_default();
    let shown = if let Some(uri) = text(&plan, "uri") {
        code(&uri)
    } else if let Some(content) = text(&plan, "content") {
        blockquote(&content)
    } else {
        entries
            .into_iter()
            .filter_map(RawObject::parse)
            .map(|entry| plan_line(&entry))
            .collect()
    };
    (!shown.is_empty()).then(|| format!("*Plan*\n\n{shown}"))
}

fn plan_line(entry: &RawObject<'_>) -> String {
    let (mark, rest) = match text(entry, "status").as_deref() {
        Some("completed") => ("x", String::new()),
        Some("in_progress") => (" ", " *(in progress)*".to_owned()),
        Some("pending") | None => (" ", String::new()),
        Some(other) => (" ", format!(" *({})*", inline(other))),
    };
    format!(
        "- [{mark}] {}{rest}\n",
        inline(&text(entry, "content").unwrap_or_default())
    )
}

/// Escapes text into one line without Markdown or HTML syntax.
pub(super) fn inline(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in one_line(text).chars() {
        if matches!(
            character,
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '&'
        ) {
            line.push('\\');
        }
        line.push(character);
    }
    line
}

pub(super) fn element(text: &str) -> String {
    one_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

pub(super) fn code(text: &str) -> String {
    let text = one_line(text);
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') || text.is_empty() {
        " "
    } else {
        ""
    };
    format!("{fence}{pad}{text}{pad}{fence}")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A code block whose fence is longer than any fence inside.
pub(super) fn fenced(language: &str, text: &str) -> String {
    let fence = "`".repeat((longest_run(text, '`') + 1).max(3));
    format!(
        "{fence}{language}\n{}\n{fence}",
        text.trim_end_matches('\n')
    )
}

/// The agent's Markdown, with an open code block closed. Otherwise a turn that stopped inside a code block
/// would include the following turns.
pub(super) fn close_code_fence(text: &str) -> String {
    let mut open: Option<&str> = None;
    for line in text.lines() {
        let line = line.trim_start();
        let fence = &line[..line.len() - line.trim_start_matches(['`', '~']).len()];
        let plain = line.trim_end().len() == fence.len();
        open = match open {
            Some(begun) if plain && fence.starts_with(begun) => None,
            None if fence.len() >= 3
                && fence.bytes().all(|b| Some(&b) == fence.as_bytes().first()) =>
            {
                Some(fence)
            }
            as_before => as_before,
        };
    }
    match open {
        Some(fence) => format!("{}\n{fence}", text.trim_end_matches('\n')),
        None => text.to_owned(),
    }
}

fn longest_run(text: &str, of: char) -> usize {
    text.split(|character| character != of)
        .map(str::len)
        .max()
        .unwrap_or(0)
}

pub(super) fn blockquote(text: &str) -> String {
    prefix_lines(text, "> ")
}

pub(super) fn indent(text: &str) -> String {
    prefix_lines(text, "  ")
}

fn prefix_lines(text: &str, prefix: &str) -> String {
    let prefixed = |line: &str| {
        let prefix = if line.is_empty() {
            prefix.trim_end()
        } else {
            prefix
        };
        format!("{prefix}{line}\n")
    };
    text.lines().map(prefixed).collect()
}

#[cfg(test)]
mod tests;
