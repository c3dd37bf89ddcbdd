//! The steps of a turn as a chat completion, streamed or whole.

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::surface::chat::{Member, Members, TurnWriter, done};
use events::api::CancelCause;
use events::event::write_json;
use sessions::conversation::Notice;
use sessions::projection::{self, End, Request, Role, Step};
use sessions::transcript::decode;
use wire::acp::{RawObject, RequestKind, stop_reason};

/// The text that a completion which is not streamed may have. The rest is cut.
const MAX_WHOLE_BYTES: usize = 16 << 20;
/// The longest text of one frame. The reader of a common frontend fails at lines of 128 KiB.
const MAX_TEXT_BYTES: usize = 32 << 10;

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

#[derive(Debug)]
pub(super) struct CompletionWriter {
    options: Options,
    /// In seconds since 1970.
    created: i64,
    content: Part,
    reasoning: Part,
    complete: bool,
}

/// The content or the reasoning of the message.
#[derive(Debug, Default)]
struct Part {
    has_begun: bool,
    /// The text of a completion that is not streamed.
    text: String,
}

/// The tokens of a turn: 0 unless the agent reports them.
#[expect(clippy::struct_field_names, reason = "the protocol names the members")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl From<projection::Usage> for Usage {
    fn from(usage: projection::Usage) -> Self {
        Self {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.total(),
        }
    }
}

#[derive(Serialize)]
struct Frame<'a, C> {
    id: &'a str,
    object: &'a str,
    created: i64,
    model: &'a str,
    choices: C,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u8,
    delta: Members<'a>,
    finish_reason: Option<&'static str>,
}

impl TurnWriter for CompletionWriter {
    fn is_streamed(&self) -> bool {
        self.options.streamed
    }

    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>) {
        match step {
            Step::Begun { at } => {
                self.created = at.as_millis() / 1000;
                if self.options.streamed {
                    let begun = [("role", "assistant".into()), ("content", "".into())];
                    self.delta(out, &begun, None);
                }
                for notice in std::mem::take(&mut self.options.notices) {
                    self.paragraph(out, Role::Thought, notice.text());
                }
            }
            // Texts of several blocks would run together.
            Step::BlockBegun(block) if block.subagent.is_none() => {
                self.paragraph(out, block.role, "");
            }
            Step::Text(block, text) if block.subagent.is_none() => {
                self.text(out, block.role, text);
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

    fn interrupted(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        self.fail(out, code, message);
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl CompletionWriter {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            created: 0,
            content: Part::default(),
            reasoning: Part::default(),
            complete: false,
        }
    }

    fn part(&mut self, role: Role) -> &mut Part {
        match role {
            Role::Message => &mut self.content,
            Role::Thought => &mut self.reasoning,
        }
    }

    fn frame(&self, out: &mut BytesMut, choices: impl Serialize, usage: Option<Usage>) {
        let frame = Frame {
            id: &self.options.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.options.model,
            choices,
            usage,
        };
        write_json(out, &frame);
    }

    fn delta(
        &self,
        out: &mut BytesMut,
        members: &[(&str, Member<'_>)],
        finish_reason: Option<&'static str>,
    ) {
        let choice = Choice {
            index: 0,
            delta: Members(members),
            finish_reason,
        };
        self.frame(out, [choice], None);
    }

    /// A text of the agent: a string in JSON, copied as it is unless it is too long for one frame.
    fn text(&mut self, out: &mut BytesMut, role: Role, text: &RawValue) {
        if self.options.streamed && text.get().len() <= MAX_TEXT_BYTES {
            return self.delta(out, &[(member(role), text.into())], None);
        }
        let text = decode(text.get()).unwrap_or_default();
        let mut rest = &*text;
        while !rest.is_empty() {
            let end = rest.ceil_char_boundary(MAX_TEXT_BYTES.min(rest.len()));
            let (part, after) = rest.split_at(end);
            self.own(out, role, part);
            rest = after;
        }
    }

    fn own(&mut self, out: &mut BytesMut, role: Role, text: &str) {
        if self.options.streamed {
            return self.delta(out, &[(member(role), text.into())], None);
        }
        let whole = &mut self.part(role).text;
        let room = MAX_WHOLE_BYTES.saturating_sub(whole.len()).min(text.len());
        whole.push_str(&text[..text.floor_char_boundary(room)]);
    }

    /// A paragraph that the gateway adds.
    fn paragraph(&mut self, out: &mut BytesMut, role: Role, text: &str) {
        let has_begun = std::mem::replace(&mut self.part(role).has_begun, true);
        let before = if has_begun { "\n\n" } else { "" };
        let text = format!("{before}{text}");
        if !text.is_empty() {
            self.own(out, role, &text);
        }
    }

    /// Content that is not text: a link.
    fn content(&mut self, out: &mut BytesMut, content: &RawValue) {
        let Some(block) = RawObject::parse(content) else {
            return;
        };
        let text = match block.text("type").as_deref() {
            Some("resource_link") => {
                let Some(uri) = block.text("uri") else { return };
                let name = block.text("name");
                format!("[{}]({uri})", name.as_deref().unwrap_or(&uri))
            }
            Some(kind @ ("image" | "audio")) => format!("[{kind}]({})", self.options.link),
            _ => return,
        };
        self.paragraph(out, Role::Message, &text);
    }

    fn requested(&mut self, out: &mut BytesMut, request: &Request<'_>) {
        let link = &self.options.link;
        let text = match request.kind {
            RequestKind::Permission => {
                let title = request.call.map(|call| {
                    let title = call.title_text();
                    title.unwrap_or_else(|| call.input_text().into_owned())
                });
                let title = title.as_deref().unwrap_or("a tool call");
                format!("The agent asks for permission: {title}. Answer at {link}")
            }
            RequestKind::Elicitation => format!("The agent asks a question. Answer at {link}"),
            _ => return,
        };
        self.paragraph(out, Role::Thought, &text);
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
                    self.paragraph(out, Role::Message, &format!("[Cancelled: {cause}]"));
                }
                let reason = match *stop_reason {
                    "max_tokens" | "max_turn_requests" => "length",
                    "refusal" => "content_filter",
                    _ => "stop",
                };
                // Some clients fail without the member.
                let usage = projection::Usage::of(*usage).unwrap_or_default().into();
                self.complete = true;
                if !self.options.streamed {
                    return self.body(out, reason, usage);
                }
                self.delta(out, &[], Some(reason));
                if self.options.includes_usage {
                    self.frame(out, [(); 0], Some(usage));
                }
                done(out);
            }
            End::Failed { code, detail } => self.fail(out, code, detail),
        }
    }

    fn fail(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        self.complete = true;
        if self.options.streamed {
            let error =
                json!({ "message": message, "type": "server_error", "code": code, "param": null });
            write_json(out, &json!({ "error": error }));
            return done(out);
        }
        // The status 200 is sent. All clients show the text. Some of them replace it with an empty error if there is a member
        // `error`.
        self.paragraph(out, Role::Message, &format!("[Error: {message}]"));
        self.body(out, "length", Usage::default());
    }

    /// The body of a completion that is not streamed.
    fn body(&self, out: &mut BytesMut, finish_reason: &str, usage: Usage) {
        let content = &self.content.text;
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
        if !self.reasoning.text.is_empty() {
            message["reasoning_content"] = self.reasoning.text.as_str().into();
        }
        let Options { id, model, .. } = &self.options;
        let body = json!({
            "id": id, "object": "chat.completion", "created": self.created, "model": model,
            "choices": [{ "index": 0, "message": message, "finish_reason": finish_reason, "logprobs": null }],
            "usage": usage,
        });
        serde_json::to_writer(out.writer(), &body).expect("a buffer in memory grows");
    }
}

/// The member of a delta that has the text.
const fn member(role: Role) -> &'static str {
    match role {
        Role::Message => "content",
        Role::Thought => "reasoning_content",
    }
}
