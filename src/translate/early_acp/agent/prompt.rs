//! Prompts: the params of a prompt in each form.

use serde::Serialize;
use serde_json::value::RawValue;

use super::variation::PromptForm;
use crate::translate::message::to_raw;
use crate::translate::object::{LineError, Object};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a RawValue>,
}

/// The params of a prompt for the agent. `params` are those of `session/prompt`.
pub(super) fn prompt(
    form: PromptForm,
    session_id: &str,
    params: &RawValue,
) -> Result<Box<RawValue>, LineError> {
    let params = Object::parse("params", params)?;
    let blocks = params.required("prompt")?;
    let text = if form == PromptForm::Text {
        Some(text(&params)?)
    } else {
        None
    };
    let prompt = match form {
        PromptForm::Text => text.as_deref(),
        PromptForm::Both | PromptForm::Blocks => Some(blocks),
        PromptForm::Content => None,
    };
    let content = matches!(form, PromptForm::Both | PromptForm::Content).then_some(blocks);
    Ok(to_raw(&Params {
        session_id,
        prompt,
        content,
    }))
}

/// The text of the blocks. It keeps the spelling of the client, also a lone surrogate.
fn text(params: &Object<'_>) -> Result<Box<RawValue>, LineError> {
    let mut literals = Vec::new();
    for block in params.required_array("prompt")? {
        let block = Object::parse("prompt", block)?;
        match &*block.required_text("type")? {
            "text" => literals.push(block.required("text")?.get().to_owned()),
            "resource_link" => {
                let uri = block.required_text("uri")?;
                let name = block
                    .text("name")
                    .filter(|name| !name.is_empty() && *name != uri);
                let link = name.map_or_else(|| uri.to_string(), |name| format!("[@{name}]({uri})"));
                literals.push(to_raw(&link).get().to_owned());
            }
            // The agent advertises no other content.
            _ => {
                return Err(LineError::Member {
                    object: "prompt",
                    member: "type",
                });
            }
        }
    }
    let bodies: Option<Vec<&str>> = literals
        .iter()
        .map(|literal| {
            literal
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'))
        })
        .collect();
    let joined = bodies.map(|bodies| format!("\"{}\"", bodies.join("\\n")));
    joined
        .and_then(|literal| RawValue::from_string(literal).ok())
        .ok_or(LineError::Member {
            object: "prompt",
            member: "text",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(form: PromptForm, blocks: &str) -> Result<String, LineError> {
        let params =
            RawValue::from_string(format!(r#"{{"sessionId":"ours","prompt":{blocks}}}"#)).unwrap();
        prompt(form, "s", &params).map(|params| params.get().to_owned())
    }

    #[test]
    fn blocks_are_one_text_or_members_of_both_spellings() {
        let blocks = concat!(
            r#"[{"type":"text","text":"a\ud83d \"b\""},"#,
            r#"{"type":"resource_link","uri":"file:///x","name":"x"},{"type":"resource_link","uri":"u","name":"u"}]"#
        );
        let text = r#"{"sessionId":"s","prompt":"a\ud83d \"b\"\n[@x](file:///x)\nu"}"#;
        assert_eq!(encoded(PromptForm::Text, blocks).unwrap(), text);
        let of = |members: &str| format!(r#"{{"sessionId":"s",{members}}}"#);
        assert_eq!(
            encoded(PromptForm::Content, blocks).unwrap(),
            of(&format!("\"content\":{blocks}"))
        );
        assert_eq!(
            encoded(PromptForm::Blocks, blocks).unwrap(),
            of(&format!("\"prompt\":{blocks}"))
        );
        assert_eq!(
            encoded(PromptForm::Both, blocks).unwrap(),
            of(&format!("\"prompt\":{blocks},\"content\":{blocks}"))
        );
    }

    #[test]
    fn prompt_without_a_text_is_a_typed_error() {
        let wrong = |member| {
            Err(LineError::Member {
                object: "prompt",
                member,
            })
        };
        assert_eq!(
            encoded(PromptForm::Text, r#"[{"type":"image","data":""}]"#),
            wrong("type")
        );
        assert_eq!(
            encoded(PromptForm::Text, r#"[{"type":"text"}]"#),
            wrong("text")
        );
        assert_eq!(
            encoded(PromptForm::Text, r#"[{"type":"text","text":7}]"#),
            wrong("text")
        );
    }
}
