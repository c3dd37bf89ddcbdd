//! The lines of a client.

use serde_json::json;
use serde_json::value::RawValue;

use crate::acp::RawObject;
use crate::jsonrpc::{TooDeep, check_depth};
use crate::served::input::MAX_DEPTH;
use crate::served::message::{object, raw};

/// Why a line is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidLine {
    #[error("the line is not a JSON object")]
    NotAnObject,
    #[error(transparent)]
    Depth(#[from] TooDeep),
    #[error("the line has no valid member `{0}`")]
    Member(&'static str),
    #[error("the type {0:?} is not known")]
    Type(String),
}

/// A control request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    Initialize,
    Interrupt,
    SetMode(String),
    SetModel(String),
    Unsupported(String),
}

impl Control {
    pub(super) fn parse(request: &RawObject<'_>) -> Result<Self, InvalidLine> {
        let text = |name| request.text(name).map(std::borrow::Cow::into_owned);
        Ok(
            match &*request
                .text("subtype")
                .ok_or(InvalidLine::Member("subtype"))?
            {
                "initialize" => Self::Initialize,
                "interrupt" => Self::Interrupt,
                "set_permission_mode" => {
                    Self::SetMode(text("mode").ok_or(InvalidLine::Member("mode"))?)
                }
                // Without a model, the client selects the default one.
                "set_model" => {
                    Self::SetModel(text("model").unwrap_or_else(|| "default".to_owned()))
                }
                other => Self::Unsupported(other.chars().take(64).collect()),
            },
        )
    }
}

/// A line of the client.
#[derive(Debug)]
pub(super) enum ClientLine {
    /// A prompt, as the content of `session/prompt`.
    Prompt(Box<RawValue>),
    Control(Box<RawValue>, Control),
    /// The answer to a control request, or its error.
    Answer(Box<RawValue>, Result<Box<RawValue>, String>),
    Ignored,
}

impl ClientLine {
    pub(super) fn parse(line: &[u8]) -> Result<Self, InvalidLine> {
        check_depth(line, MAX_DEPTH)?;
        let value: &RawValue =
            serde_json::from_slice(line).map_err(|_| InvalidLine::NotAnObject)?;
        let line = RawObject::parse(value).ok_or(InvalidLine::NotAnObject)?;
        let required = |name| line.get(name).ok_or(InvalidLine::Member(name));
        match &*line.text("type").ok_or(InvalidLine::Member("type"))? {
            "user" => {
                let message = line
                    .object("message")
                    .ok_or(InvalidLine::Member("message"))?;
                Ok(Self::Prompt(prompt(
                    message
                        .get("content")
                        .ok_or(InvalidLine::Member("content"))?,
                )?))
            }
            "control_request" => {
                let request = line
                    .object("request")
                    .ok_or(InvalidLine::Member("request"))?;
                Ok(Self::Control(
                    required("request_id")?.to_owned(),
                    Control::parse(&request)?,
                ))
            }
            "control_response" => {
                let answer = line
                    .object("response")
                    .ok_or(InvalidLine::Member("response"))?;
                let id = answer
                    .get("request_id")
                    .ok_or(InvalidLine::Member("request_id"))?
                    .to_owned();
                let outcome = if answer.text("subtype").as_deref() == Some("success") {
                    Ok(answer.get("response").unwrap_or(RawValue::NULL).to_owned())
                } else {
                    Err(answer.text("error").unwrap_or_default().into_owned())
                };
                Ok(Self::Answer(id, outcome))
            }
            "keep_alive" | "control_cancel_request" | "update_environment_variables" => {
                Ok(Self::Ignored)
            }
            other => Err(InvalidLine::Type(other.chars().take(64).collect())),
        }
    }
}

/// The content of a user message as the content of a prompt.
fn prompt(content: &RawValue) -> Result<Box<RawValue>, InvalidLine> {
    if content.get().starts_with('"') {
        return Ok(raw(&[text(content)]));
    }
    let blocks: Vec<&RawValue> =
        serde_json::from_str(content.get()).map_err(|_| InvalidLine::Member("content"))?;
    let blocks: Vec<_> = blocks.into_iter().map(block).collect::<Result<_, _>>()?;
    Ok(raw(&blocks))
}

fn text(text: &RawValue) -> Box<RawValue> {
    object(&[("type", raw("text")), ("text", text.to_owned())])
}

fn block(block: &RawValue) -> Result<Box<RawValue>, InvalidLine> {
    const CONTENT: InvalidLine = InvalidLine::Member("content");
    let block = RawObject::parse(block).ok_or(CONTENT)?;
    let block_type = block.text("type").ok_or(CONTENT)?;
    if block_type == "text" {
        return block.get("text").map(text).ok_or(CONTENT);
    }
    let source = block.object("source").ok_or(CONTENT)?;
    let member = |name| source.text(name).ok_or(CONTENT);
    Ok(raw(&match (&*block_type, &*member("type")?) {
        ("image", "base64") => {
            json!({ "type": "image", "data": member("data")?, "mimeType": member("media_type")? })
        }
        ("document", "base64") => {
            let resource = json!({ "uri": "attachment:document", "blob": member("data")?, "mimeType": member("media_type")? });
            json!({ "type": "resource", "resource": resource })
        }
        ("image" | "document", "url") => {
            let url = member("url")?;
            json!({ "type": "resource_link", "uri": url, "name": url })
        }
        _ => return Err(CONTENT),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(content: &str) -> Result<String, InvalidLine> {
        let line = format!(r#"{{"type":"user","message":{{"role":"user","content":{content}}}}}"#);
        match ClientLine::parse(line.as_bytes())? {
            ClientLine::Prompt(blocks) => Ok(blocks.get().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn texts_keep_their_bytes_and_other_blocks_become_blocks_of_acp() {
        assert_eq!(
            content(r#""a\ud83d""#).unwrap(),
            r#"[{"type":"text","text":"a\ud83d"}]"#
        );
        let blocks = content(
            r#"[{"type":"text","text":"t"},
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},
            {"type":"image","source":{"type":"url","url":"https://e/i"}},
            {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"BB=="}}]"#,
        );
        let blocks: serde_json::Value = serde_json::from_str(&blocks.unwrap()).unwrap();
        assert_eq!(
            blocks,
            json!([
                { "type": "text", "text": "t" },
                { "type": "image", "data": "AA==", "mimeType": "image/png" },
                { "type": "resource_link", "uri": "https://e/i", "name": "https://e/i" },
                { "type": "resource", "resource":
                    { "uri": "attachment:document", "blob": "BB==", "mimeType": "application/pdf" } },
            ])
        );
    }

    #[test]
    fn invalid_lines_name_what_is_missing() {
        let deep = "[".repeat(200);
        for (line, error) in [
            ("7", InvalidLine::NotAnObject),
            ("hello", InvalidLine::NotAnObject),
            (&deep, InvalidLine::Depth(TooDeep { max: MAX_DEPTH })),
            ("{}", InvalidLine::Member("type")),
            (r#"{"type":"user"}"#, InvalidLine::Member("message")),
            (
                r#"{"type":"user","message":{"content":[{"type":"audio"}]}}"#,
                InvalidLine::Member("content"),
            ),
            (
                r#"{"type":"control_request","request":{"subtype":"interrupt"}}"#,
                InvalidLine::Member("request_id"),
            ),
            (
                r#"{"type":"control_request","request_id":"1","request":{}}"#,
                InvalidLine::Member("subtype"),
            ),
            (r#"{"type":"noise"}"#, InvalidLine::Type("noise".to_owned())),
        ] {
            assert_eq!(
                ClientLine::parse(line.as_bytes()).unwrap_err(),
                error,
                "{line}"
            );
        }
    }
}
