//! The content of a prompt as a user message of the CLI.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::translate::message::to_raw;
use crate::translate::object::{LineError, Object};

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a RawValue,
}

#[derive(Serialize)]
struct UserLine<'a> {
    r#type: &'static str,
    message: Message<'a>,
    parent_tool_use_id: Option<&'static str>,
    session_id: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a [Box<RawValue>],
}

/// The user message for the params of `session/prompt`.
pub(super) fn user_message(params: &RawValue) -> Result<Box<RawValue>, LineError> {
    let params = Object::parse("params", params)?;
    let (mut content, mut embedded) = (Vec::new(), Vec::new());
    for block in params.required_array("prompt")? {
        let block = Object::parse("prompt", block)?;
        match &*block.required_text("type")? {
            "text" => content.push(to_raw(&Text {
                r#type: "text",
                text: block.required("text")?,
            })),
            "image" => content.push(to_raw(&image(&block)?)),
            "resource_link" => {
                let uri = block.required_text("uri")?;
                content.push(text(&link(&uri, block.text("name").as_deref())));
            }
            "resource" => resource(
                &block.required_object("resource")?,
                &mut content,
                &mut embedded,
            )?,
            _ => {
                return Err(LineError::Member {
                    object: "prompt",
                    member: "type",
                });
            }
        }
    }
    // The model reads the context better after the question.
    content.append(&mut embedded);
    let message = Message {
        role: "user",
        content: &content,
    };
    Ok(to_raw(&UserLine {
        r#type: "user",
        message,
        parent_tool_use_id: None,
        session_id: "",
    }))
}

fn text(text: &str) -> Box<RawValue> {
    to_raw(&json!({ "type": "text", "text": text }))
}

fn link(uri: &str, name: Option<&str>) -> String {
    let name = name
        .or_else(|| uri.rsplit('/').next())
        .filter(|name| !name.is_empty())
        .unwrap_or(uri);
    format!("[@{name}]({uri})")
}

fn image(block: &Object<'_>) -> Result<Value, LineError> {
    let remote = block
        .text("uri")
        .filter(|uri| uri.starts_with("https://") || uri.starts_with("http://"));
    let data = block.text("data").filter(|data| !data.is_empty());
    Ok(match (data, remote) {
        (None, Some(url)) => json!({ "type": "image", "source": { "type": "url", "url": url } }),
        _ => base64(
            "image",
            &block.required_text("mimeType")?,
            &block.required_text("data")?,
        ),
    })
}

fn base64(kind: &str, mime: &str, data: &str) -> Value {
    json!({ "type": kind, "source": { "type": "base64", "media_type": mime, "data": data } })
}

/// An embedded resource: a text, an image or a PDF.
fn resource(
    resource: &Object<'_>,
    content: &mut Vec<Box<RawValue>>,
    embedded: &mut Vec<Box<RawValue>>,
) -> Result<(), LineError> {
    let uri = resource.required_text("uri")?;
    if let Some(shown) = resource.text("text") {
        content.push(text(&link(&uri, None)));
        embedded.push(text(&format!(
            "\n<context ref=\"{uri}\">\n{shown}\n</context>"
        )));
        return Ok(());
    }
    let (data, mime) = (
        resource.required_text("blob")?,
        resource.text("mimeType").unwrap_or_default(),
    );
    content.push(match &*mime {
        mime if mime.starts_with("image/") => to_raw(&base64("image", mime, &data)),
        "application/pdf" => to_raw(&base64("document", &mime, &data)),
        _ => text(&link(&uri, None)),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(prompt: &str) -> Result<String, LineError> {
        let params =
            RawValue::from_string(format!(r#"{{"sessionId":"s","prompt":{prompt}}}"#)).unwrap();
        user_message(&params).map(|line| line.get().to_owned())
    }

    fn content(prompt: &str) -> Value {
        let line: Value = serde_json::from_str(&line(prompt).unwrap()).unwrap();
        assert_eq!(
            (&line["type"], &line["message"]["role"]),
            (&json!("user"), &json!("user"))
        );
        line["message"]["content"].clone()
    }

    #[test]
    fn text_passes_unchanged() {
        let line = line(r#"[{"type":"text","text":"a\ud83d\n"}]"#).unwrap();
        assert_eq!(
            line,
            r#"{"type":"user","message":{"role":"user","content":[{"type":"text","text":"a\ud83d\n"}]},"parent_tool_use_id":null,"session_id":""}"#
        );
    }

    #[test]
    fn images_links_and_resources_are_blocks() {
        let blocks = content(
            r#"[{"type":"image","mimeType":"image/png","data":"AA=="},{"type":"image","data":"","mimeType":"x","uri":"https://e/i"},
            {"type":"resource","resource":{"uri":"file:///w/a.txt","text":"in a"}},
            {"type":"resource","resource":{"uri":"file:///w/b.pdf","blob":"BB==","mimeType":"application/pdf"}},
            {"type":"resource","resource":{"uri":"file:///w/c.bin","blob":"CC=="}},
            {"type":"resource_link","uri":"file:///w/d.txt","name":"d"},{"type":"text","text":"last"}]"#,
        );
        let text = |text: &str| json!({ "type": "text", "text": text });
        assert_eq!(
            blocks,
            json!([
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA==" } },
                { "type": "image", "source": { "type": "url", "url": "https://e/i" } },
                text("[@a.txt](file:///w/a.txt)"),
                { "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "BB==" } },
                text("[@c.bin](file:///w/c.bin)"),
                text("[@d](file:///w/d.txt)"),
                text("last"),
                text("\n<context ref=\"file:///w/a.txt\">\nin a\n</context>"),
            ])
        );
    }

    #[test]
    fn missing_members_and_unknown_types_are_typed_errors() {
        for (prompt, object, member) in [
            ("7", "params", "prompt"),
            (r#"[{"type":"text"}]"#, "prompt", "text"),
            (
                r#"[{"type":"image","mimeType":"image/png"}]"#,
                "prompt",
                "data",
            ),
            (
                r#"[{"type":"resource","resource":{"uri":"u"}}]"#,
                "resource",
                "blob",
            ),
            (
                r#"[{"type":"audio","data":"","mimeType":"audio/wav"}]"#,
                "prompt",
                "type",
            ),
        ] {
            assert_eq!(
                line(prompt),
                Err(LineError::Member { object, member }),
                "{prompt}"
            );
        }
    }
}
