//! The steps of a turn as a chat completion, streamed or whole.

use bytes::BytesMut;
use serde_json::json;
use serde_json::value::RawValue;

use super::completion::{
    Field, Head, Usage, body, delta, error, own_delta, text_delta, usage_frame,
};
use crate::acp::{RawObject, stop_reason};
use crate::conversation::Notice;
use crate::projection::{Asked, End, Request, Role, Step, ToolCall, input_text};
use crate::surface::chat::{Interrupted, TurnWriter, done};
use crate::transcript::decode;
use crate::types::CancelCause;

/// The text that a completion which is not streamed may have. The rest is cut.
const MAX_WHOLE_BYTES: usize = 16 << 20;

/// The parts of a completion that are not in the events of the turn.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) streamed: bool,
    pub(super) includes_usage: bool,
    /// The page where a person answers requests of the agent.
    pub(super) link: String,
    pub(super) notices: Vec<Notice>,
}

/// Writes a completion.
#[derive(Debug)]
pub(super) struct CompletionWriter {
    head: Head,
    options: Options,
    /// The texts of a completion that is not streamed.
    content: String,
    reasoning: String,
    /// The last role, and whether the message has a text.
    has_content: bool,
    has_reasoning: bool,
    complete: bool,
}

impl TurnWriter for CompletionWriter {
    fn media_type(&self) -> &'static str {
        if self.options.streamed {
            "text/event-stream"
        } else {
            "application/json"
        }
    }

    /// A comment, or white space before the JSON. It keeps clients from a time-out, after which they repeat the request.
    fn keep_alive(&self) -> &'static [u8] {
        if self.options.streamed { b":\n" } else { b" " }
    }

    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>) {
        match step {
            Step::Begun { at } => {
                self.head.created = at.as_millis() / 1000;
                if self.options.streamed {
                    delta(
                        out,
                        &self.head,
                        &json!({ "role": "assistant", "content": "" }),
                        None,
                    );
                }
                for notice in std::mem::take(&mut self.options.notices) {
                    self.line(out, notice.text());
                }
            }
            Step::BlockBegun(block) if block.subagent.is_none() => {
                let begun = match block.role {
                    Role::Message => &mut self.has_content,
                    Role::Thought => &mut self.has_reasoning,
                };
                // Texts of several blocks would run together.
                if std::mem::replace(begun, true) {
                    self.own(out, field(block.role), "\n\n");
                }
            }
            Step::Text(block, text) if block.subagent.is_none() => {
                self.text(out, field(block.role), text);
            }
            Step::Content {
                role: Role::Message,
                content,
            } => self.content(out, content),
            Step::Requested(request) => self.requested(out, request),
            Step::Ended(end) => self.end(out, end),
            _ => {}
        }
    }

    fn interrupted(&mut self, out: &mut BytesMut, Interrupted { code, message }: &Interrupted) {
        self.fail(out, code, message);
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl CompletionWriter {
    pub(super) fn new(options: Options) -> Self {
        let (id, model) = (options.id.clone(), options.model.clone());
        let head = Head {
            id,
            object: "chat.completion.chunk",
            created: 0,
            model,
        };
        let (content, reasoning) = (String::new(), String::new());
        let (has_content, has_reasoning, complete) = (false, false, false);
        Self {
            head,
            options,
            content,
            reasoning,
            has_content,
            has_reasoning,
            complete,
        }
    }

    fn text(&mut self, out: &mut BytesMut, field: Field, text: &RawValue) {
        if self.options.streamed {
            text_delta(out, &self.head, field, text);
        } else if let Some(text) = decode(text.get()) {
            self.push(field, &text);
        }
    }

    /// A text of the gateway.
    fn own(&mut self, out: &mut BytesMut, field: Field, text: &str) {
        if self.options.streamed {
            own_delta(out, &self.head, field, text);
        } else {
            self.push(field, text);
        }
    }

    fn push(&mut self, field: Field, text: &str) {
        let whole = match field {
            Field::Content => &mut self.content,
            Field::Reasoning => &mut self.reasoning,
        };
        let room = MAX_WHOLE_BYTES.saturating_sub(whole.len()).min(text.len());
        whole.push_str(&text[..text.floor_char_boundary(room)]);
    }

    /// A line of reasoning that the gateway adds.
    fn line(&mut self, out: &mut BytesMut, text: &str) {
        let before = if std::mem::replace(&mut self.has_reasoning, true) {
            "\n\n"
        } else {
            ""
        };
        self.own(out, Field::Reasoning, &format!("{before}{text}"));
    }

    /// Content that is not text: a link.
    fn content(&mut self, out: &mut BytesMut, content: &RawValue) {
        let Some(block) = RawObject::parse(content) else {
            return;
        };
        let text = match block.text("type").as_deref() {
            Some("resource_link") => {
                let Some(uri) = block.text("uri") else { return };
                format!(
                    "[{}]({uri})",
                    block.text("name").unwrap_or_else(|| uri.clone())
                )
            }
            Some(kind @ ("image" | "audio")) => format!("[{kind}]({})", self.options.link),
            _ => return,
        };
        self.notice(out, &text);
    }

    /// A paragraph of the answer that the gateway adds.
    fn notice(&mut self, out: &mut BytesMut, text: &str) {
        let before = if std::mem::replace(&mut self.has_content, true) {
            "\n\n"
        } else {
            ""
        };
        self.own(out, Field::Content, &format!("{before}{text}"));
    }

    fn requested(&mut self, out: &mut BytesMut, request: &Request<'_>) {
        let link = &self.options.link;
        let text = match request.asked {
            Asked::Permission => {
                let title = request.call.and_then(ToolCall::title_text);
                let title = title.or_else(|| request.call.map(input_text));
                format!(
                    "The agent asks for permission: {}. Answer at {link}",
                    title.as_deref().unwrap_or("a tool call")
                )
            }
            Asked::Elicitation => format!("The agent asks a question. Answer at {link}"),
            Asked::Other => return,
        };
        self.line(out, &text);
    }

    fn end(&mut self, out: &mut BytesMut, end: &End<'_>) {
        match end {
            End::Completed {
                stop_reason,
                cancel_cause,
                usage,
            } => {
                // The protocol has no stop reason for it, and many clients do not show reasoning.
                if *stop_reason == stop_reason::CANCELLED {
                    let cause = cancel_cause.map_or("by the agent", CancelCause::words);
                    self.notice(out, &format!("[Cancelled: {cause}]"));
                }
                let reason = match *stop_reason {
                    "max_tokens" | "max_turn_requests" => "length",
                    "refusal" => "content_filter",
                    _ => "stop",
                };
                // Some clients fail without the member.
                let usage = usage.and_then(Usage::of).unwrap_or_default();
                self.complete = true;
                if !self.options.streamed {
                    let texts = (&*self.content, &*self.reasoning);
                    return body(out, &self.head, texts, reason, usage);
                }
                delta(out, &self.head, &json!({}), Some(reason));
                if self.options.includes_usage {
                    usage_frame(out, &self.head, usage);
                }
                done(out);
            }
            End::Failed { code, detail } => self.fail(out, code, detail),
        }
    }

    fn fail(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        self.complete = true;
        if self.options.streamed {
            error(out, code, message);
            return done(out);
        }
        // The status 200 is sent. All clients show the text. Some of them replace it with an empty error if there is a member
        // `error`.
        self.notice(out, &format!("[Error: {message}]"));
        let texts = (&*self.content, &*self.reasoning);
        body(out, &self.head, texts, "length", Usage::default());
    }
}

const fn field(role: Role) -> Field {
    match role {
        Role::Message => Field::Content,
        Role::Thought => Field::Reasoning,
    }
}
