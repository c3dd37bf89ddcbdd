//! The messages of a client with what it names and asks for, and messages as content blocks of ACP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::surface::http::{ApiError, Result, trace_context};
use base::types::{AgentName, PromptId, SessionId};
use events::api::ProblemCode;
use sessions::conversation::{Digest, NewMessages, Notice, UserMessage};
use wire::acp::{PromptCapabilities, TraceContext};

/// In a request: the policy for a changed history. In a response: what the gateway did.
pub(super) const HISTORY: HeaderName = HeaderName::from_static("x-acp-history");

/// A client sends the same key with each repetition of a request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The policy for a changed history. An agent cannot return to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HistoryPolicy {
    #[default]
    New,
    Append,
    Reject,
}

impl HistoryPolicy {
    fn from_headers(headers: &HeaderMap) -> Result<Self> {
        match headers.get(HISTORY).map(http::HeaderValue::as_bytes) {
            None | Some(b"new") => Ok(Self::New),
            Some(b"append") => Ok(Self::Append),
            Some(b"reject") => Ok(Self::Reject),
            Some(_) => {
                let detail = "the header X-Acp-History must be new, append or reject";
                Err(ApiError::invalid("", detail))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) agent: AgentName,
    /// The model that the agent should use, by the value of its option.
    pub(crate) model: Option<String>,
    pub(crate) protocol: &'static str,
    pub(crate) conversation: Option<String>,
    /// Conversations that are found by their history belong to this person or program of the client.
    pub(crate) user: Option<String>,
    /// The session that the client names. Its turns may come from other clients, so the history is not compared.
    pub(crate) session: Option<SessionId>,
    /// The session with the last answer in the history, if the answer has an id of the gateway.
    pub(crate) answered_in: Option<SessionId>,
    /// The messages that are new in this session.
    pub(crate) new_messages: NewMessages,
    pub(crate) messages: Vec<Message>,
    pub(crate) system: Option<String>,
    pub(crate) policy: HistoryPolicy,
    /// The client asks for another answer if it sends the message of a turn again.
    pub(crate) asks_again: bool,
    /// The client says that it repeats a request that failed.
    pub(crate) is_retry: bool,
    /// The client's id of the request. A request with the same id returns the existing turn.
    pub(crate) id: Option<String>,
    /// The turn after which the client sends its message, if it names one.
    pub(crate) follows: Option<PromptId>,
    /// The client must answer open questions before it sends a message.
    pub(crate) answers_first: bool,
    pub(crate) trace: Option<TraceContext>,
}

impl ChatRequest {
    /// A request with these messages. The headers have the policy, the id of the request and the trace context.
    pub(crate) fn new(
        agent: AgentName,
        protocol: &'static str,
        messages: Vec<Message>,
        headers: &HeaderMap,
    ) -> Result<Self> {
        let id = headers.get(IDEMPOTENCY_KEY).and_then(|id| id.to_str().ok());
        Ok(Self {
            agent,
            model: None,
            protocol,
            conversation: None,
            user: None,
            session: None,
            answered_in: None,
            new_messages: NewMessages::Last,
            messages,
            system: None,
            policy: HistoryPolicy::from_headers(headers)?,
            asks_again: false,
            is_retry: false,
            id: id.map(ToOwned::to_owned),
            follows: None,
            answers_first: false,
            trace: trace_context(headers),
        })
    }
}

/// The option with the category `model` among the options of a session.
#[derive(Debug)]
pub(crate) struct ModelOption {
    pub(crate) id: String,
    pub(crate) current: Option<String>,
    pub(crate) values: Vec<String>,
}

impl ModelOption {
    /// `None` if the agent has no such option.
    pub(crate) fn of(options: Option<&RawValue>) -> Option<Self> {
        let options: Vec<Value> = serde_json::from_str(options?.get()).ok()?;
        let mut options = options.into_iter();
        let option = options.find(|option| option["category"] == "model")?;
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let mut values = Vec::new();
        for entry in option["options"].as_array()? {
            // A group has options of its own.
            let in_group = entry["options"].as_array().into_iter().flatten();
            let all = in_group.chain([entry]);
            values.extend(all.filter_map(|entry| text(&entry["value"])));
        }
        Some(Self {
            id: text(&option["id"]).or_else(|| text(&option["configId"]))?,
            current: text(&option["currentValue"]),
            values,
        })
    }
}

/// The transcript that a new session receives. A longer one has no beginning.
const MAX_TRANSCRIPT_BYTES: usize = 256 << 10;

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) id: Option<String>,
    pub(crate) text: String,
    pub(crate) blocks: Vec<Value>,
    /// The place of the content in the body of the request, as a JSON pointer.
    pub(super) pointer: String,
    /// The index of the first part of a user's message that is no content block, and the reason.
    pub(super) unreadable: Option<(usize, &'static str)>,
}

pub(crate) type Converted = Result<Option<Value>, &'static str>;

impl Message {
    pub(crate) fn new(role: impl Into<String>, blocks: Vec<Value>) -> Self {
        let texts = blocks.iter().filter_map(|block| block["text"].as_str());
        let text = texts.collect::<Vec<_>>().join("\n");
        Self {
            role: role.into(),
            id: None,
            text,
            blocks,
            pointer: String::new(),
            unreadable: None,
        }
    }

    /// A message with this content: a text, or parts. `pointer`: its place in the body of the request.
    pub(crate) fn parsed(
        role: &str,
        content: Option<&Value>,
        pointer: String,
        block: fn(&Value) -> Converted,
    ) -> Self {
        let mut blocks = Vec::new();
        let mut unreadable = None;
        match content {
            Some(Value::String(text)) if !text.is_empty() => blocks.push(text_block(text)),
            Some(Value::Array(parts)) => {
                for (at, part) in parts.iter().enumerate() {
                    match block(part) {
                        Ok(converted) => blocks.extend(converted),
                        Err(reason) if role == "user" => {
                            let kind = part["type"].as_str().unwrap_or("part");
                            blocks.push(text_block(&format!("[{kind}: {reason}]")));
                            unreadable = unreadable.or(Some((at, reason)));
                        }
                        Err(_) => {}
                    }
                }
            }
            _ => {}
        }
        Self {
            pointer,
            unreadable,
            ..Self::new(role, blocks)
        }
    }

    pub(crate) fn is_user(&self) -> bool {
        self.role == "user"
    }

    pub(super) fn is_instruction(&self) -> bool {
        matches!(&*self.role, "system" | "developer")
    }

    /// Whether it is a message of the conversation, and neither an instruction nor a part of the display.
    pub(crate) fn is_spoken(&self) -> bool {
        !self.is_instruction() && !matches!(&*self.role, "activity" | "reasoning" | "data")
    }

    pub(crate) fn digest(&self) -> UserMessage {
        let attachments = self.blocks.iter().filter(|block| block["type"] != "text");
        let attachments: Vec<String> = attachments.map(Value::to_string).collect();
        UserMessage {
            content: Digest::of(&self.text, attachments.iter().map(String::as_str)),
            id: Digest::of_id(self.id.as_deref()),
        }
    }
}

pub(crate) fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub(crate) fn text_part(part: &Value) -> Converted {
    let text = part["text"].as_str().ok_or("expected `text`")?;
    Ok((!text.is_empty()).then(|| text_block(text)))
}

/// A file by its URL: the data of a `data:` URL, or a link.
pub(crate) fn file_block(url: &Value, media_type: Option<&str>, name: Option<&str>) -> Converted {
    let url = url.as_str().ok_or("expected the URL of a file")?;
    if url.starts_with("data:") {
        media_block(url, media_type, name)
    } else {
        Ok(Some(resource_link(url, name)))
    }
}

pub(crate) fn resource_link(url: &str, name: Option<&str>) -> Value {
    let last = url
        .split(['?', '#'])
        .next()
        .and_then(|path| path.rsplit('/').find(|part| !part.is_empty()));
    json!({ "type": "resource_link", "uri": url, "name": name.or(last).unwrap_or(url) })
}

/// A file in a `data:` URL or in base64. Images and audio have their own blocks. A text becomes a resource.
pub(crate) fn media_block(data: &str, media_type: Option<&str>, name: Option<&str>) -> Converted {
    let mut declared = None;
    let mut data = data;
    if let Some(rest) = data.strip_prefix("data:") {
        let (head, content) = rest.split_once(',').ok_or("a `data:` URL needs a comma")?;
        let head = head.strip_suffix(";base64");
        let head = head.ok_or("a `data:` URL must be in base64")?;
        declared = head.split(';').next();
        data = content;
    }
    let media_type = media_type
        .or(declared)
        .filter(|text| !text.is_empty())
        .unwrap_or("application/octet-stream");
    let bytes = STANDARD.decode(data);
    let bytes = bytes.map_err(|_| "the data is not base64")?;
    for kind in ["image", "audio"] {
        if media_type.split('/').next() == Some(kind) {
            let block = json!({ "type": kind, "mimeType": media_type, "data": data });
            return Ok(Some(block));
        }
    }
    let uri = format!("attachment:///{}", name.unwrap_or("file"));
    let mut resource = json!({ "uri": uri, "mimeType": media_type });
    if media_type.starts_with("text/") || media_type == "application/json" {
        let text = String::from_utf8(bytes).map_err(|_| "the text is not UTF-8")?;
        resource["text"] = text.into();
    } else {
        resource["blob"] = data.into();
    }
    Ok(Some(json!({ "type": "resource", "resource": resource })))
}

/// The blocks of an earlier message for an agent that accepts this content, and whether all of them are as the client sent them.
/// Of others, the agent gets a link or the type: one message that the agent cannot read must not end a conversation.
fn carried(blocks: &[Value], takes: PromptCapabilities) -> (Vec<Value>, bool) {
    let mut is_whole = true;
    let carried = blocks.iter().map(|block| {
        let accepted = match block["type"].as_str() {
            Some("image") => takes.image,
            Some("audio") => takes.audio,
            Some("resource") => takes.embedded_context,
            _ => true,
        };
        is_whole &= accepted;
        if accepted {
            block.clone()
        } else {
            text_block(&named(block))
        }
    });
    (carried.collect(), is_whole)
}

fn named(block: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match block["type"].as_str() {
        Some("resource_link") => format!("[{}]({})", text(&block["name"]), text(&block["uri"])),
        Some("resource") => format!("[file: {}]", text(&block["resource"]["uri"])),
        Some(kind) => format!("[{kind}: {}]", text(&block["mimeType"])),
        None => String::new(),
    }
}

pub(super) struct PromptContent<'a> {
    pub(super) system: Option<&'a str>,
    /// The messages that the agent does not know. It receives them as text.
    pub(super) earlier: &'a [Message],
    pub(super) joined: &'a [&'a Message],
    pub(super) last: &'a Message,
}

impl PromptContent<'_> {
    /// The content blocks for an agent that accepts this content, at most `max_bytes`, and what they lack. Files of joined
    /// messages may also be too large for the prompt together.
    pub(super) fn blocks(
        &self,
        takes: PromptCapabilities,
        max_bytes: usize,
    ) -> Result<(Box<RawValue>, Vec<Notice>)> {
        let mut room = MAX_TRANSCRIPT_BYTES;
        loop {
            for takes in [takes, PromptCapabilities::default()] {
                let mut lacks = Vec::new();
                let mut blocks = Vec::new();
                let system = self.system.filter(|text| !text.trim().is_empty());
                blocks.extend(system.map(text_block));
                if let Some((text, is_whole)) = transcript(self.earlier, room) {
                    blocks.push(text_block(&text));
                    if !is_whole {
                        lacks.push(Notice::Shortened);
                    }
                }
                let mut is_whole = true;
                for message in self.joined {
                    let (carried, is_carried) = carried(&message.blocks, takes);
                    is_whole &= is_carried && message.unreadable.is_none();
                    blocks.extend(carried);
                }
                if !is_whole {
                    lacks.push(Notice::Omitted);
                }
                blocks.extend_from_slice(&self.last.blocks);
                let blocks = to_raw_value(&blocks).map_err(ApiError::internal)?;
                if blocks.get().len() <= max_bytes {
                    return Ok((blocks, lacks));
                }
            }
            if room == 0 || self.earlier.is_empty() {
                break;
            }
            room /= 2;
        }
        let detail = if self.joined.is_empty() {
            format!("the new message exceeds {max_bytes} bytes")
        } else {
            format!("the new messages exceed {max_bytes} bytes together")
        };
        Err(ApiError::new(ProblemCode::TooLarge, detail))
    }
}

pub(super) fn transcribed(messages: &[Message]) -> impl Iterator<Item = &Message> {
    messages
        .iter()
        .filter(|message| matches!(&*message.role, "user" | "assistant"))
        .filter(|message| !message.blocks.is_empty())
}

/// The messages as text for an agent, their end if they have more than `max` bytes, and whether it is all of them. `None` without
/// messages.
fn transcript(messages: &[Message], max: usize) -> Option<(String, bool)> {
    let parts: Vec<String> = transcribed(messages)
        .map(|message| {
            let name = if message.is_user() {
                "User"
            } else {
                "Assistant"
            };
            let blocks = message.blocks.iter().map(|block| match &block["text"] {
                Value::String(text) => text.clone(),
                _ => named(block),
            });
            let text = blocks.collect::<Vec<_>>().join("\n");
            format!("{name}: {}", text.trim())
        })
        .collect();
    if parts.is_empty() {
        return None;
    }
    let text = parts.join("\n\n");
    let start = text.ceil_char_boundary(text.len().saturating_sub(max));
    let cut = if start > 0 {
        "(The beginning is left out.)\n\n"
    } else {
        ""
    };
    let text = format!(
        "The conversation so far:\n\n{cut}{}\n\nThe next message:",
        &text[start..]
    );
    Some((text, start == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_in_groups() {
        let raw = r#"[{"id":"mode","category":"mode","options":[]},{"id":"m","category":"model","currentValue":"a",
        "options":[{"value":"a","name":"A"},{"group":"g","name":"G","options":[{"value":"b"},{"value":"c"}]}]}]"#;
        let option =
            ModelOption::of(Some(serde_json::from_str(raw).expect("JSON"))).expect("an option");
        assert_eq!(
            (option.id.as_str(), option.current.as_deref()),
            ("m", Some("a"))
        );
        assert_eq!(option.values, ["a", "b", "c"]);
        assert!(ModelOption::of(None).is_none());
    }

    #[test]
    fn media_has_the_block_of_its_type() {
        let kind = |data: &str, media_type| media_block(data, media_type, Some("a.x"));
        let block = |data: &str, media_type| {
            let converted = kind(data, media_type).expect("a file");
            converted.expect("a block")
        };
        assert_eq!(
            kind("data:image/png;base64,AAAA", None),
            Ok(Some(
                json!({ "type": "image", "mimeType": "image/png", "data": "AAAA" })
            ))
        );
        assert_eq!(block("AAAA", Some("audio/wav"))["type"], "audio");
        let text = block("data:text/plain;charset=utf-8;base64,aGk=", None);
        assert_eq!(
            text["resource"],
            json!({ "uri": "attachment:///a.x", "mimeType": "text/plain", "text": "hi" })
        );
        assert_eq!(
            block("aGk=", Some("application/pdf"))["resource"]["blob"],
            "aGk="
        );
        for wrong in [
            "data:text/plain,hi",
            "data:image/png;base64,!",
            "http://x",
            "data:text/plain;base64,/w==",
        ] {
            assert!(kind(wrong, None).is_err(), "{wrong}");
        }
        assert_eq!(resource_link("https://x/a/b.txt?c", None)["name"], "b.txt");
    }

    #[test]
    fn earlier_messages_are_text_before_the_new_one() {
        let message = |role: &str, text: &str| Message::new(role, vec![text_block(text)]);
        let earlier = [
            message("user", "a"),
            message("assistant", "b"),
            message("tool", "c"),
        ];
        let new = message("user", "d");
        let content = PromptContent {
            system: Some("be brief"),
            earlier: &earlier,
            joined: &[],
            last: &new,
        };
        let of = |content: PromptContent<'_>| {
            let blocks = content.blocks(PromptCapabilities::default(), 1 << 20);
            blocks.expect("a small prompt").0
        };
        let blocks = of(content);
        let expected = json!([
            text_block("be brief"),
            text_block("The conversation so far:\n\nUser: a\n\nAssistant: b\n\nThe next message:"),
            text_block("d")
        ]);
        assert_eq!(
            serde_json::from_str::<Value>(blocks.get()).expect("JSON"),
            expected
        );
        let content = PromptContent {
            system: Some(" "),
            earlier: &[],
            joined: &[],
            last: &new,
        };
        let expected = json!([text_block("d")]).to_string();
        assert_eq!(of(content).get(), expected);
    }

    #[test]
    fn long_transcript_has_the_room_that_the_message_leaves() {
        let earlier = [Message::new("user", vec![text_block(&"a".repeat(5000))])];
        let new = Message::new("user", vec![text_block(&"b".repeat(900))]);
        let content = PromptContent {
            system: None,
            earlier: &earlier,
            joined: &[],
            last: &new,
        };
        let takes = PromptCapabilities::default();
        let (whole, lacks) = content.blocks(takes, 8000).expect("there is room");
        assert!(whole.get().len() > 5900 && lacks.is_empty());
        let (cut, lacks) = content.blocks(takes, 3000).expect("there is less");
        assert!(cut.get().contains("(The beginning is left out.)"));
        assert_eq!(lacks, [Notice::Shortened]);
        assert!(content.blocks(takes, 900).is_err());
    }

    #[test]
    fn part_without_a_block_is_named_in_messages_of_the_user() {
        let block = |part: &Value| match part["type"].as_str() {
            Some("text") => text_part(part),
            Some("tool") => Ok(None),
            _ => Err("not known"),
        };
        let content =
            json!([{ "type": "tool" }, { "type": "odd" }, { "type": "text", "text": "a" }]);
        let of = |role| Message::parsed(role, Some(&content), "/x".to_owned(), block);
        let user = of("user");
        assert_eq!(user.unreadable, Some((1, "not known")));
        assert_eq!(user.text, "[odd: not known]\na");
        let assistant = of("assistant");
        assert_eq!((assistant.unreadable, &*assistant.text), (None, "a"));
    }
}
