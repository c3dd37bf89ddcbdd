//! The items of a turn: its input, the output of its responses, and the answers between them.

use std::collections::HashMap;

use bytes::BytesMut;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::response_encoder::{Form, Head, ResponseId, ResponseWriter};
use crate::surface::chat::{TurnWriter, steps_of};
use crate::surface::http::Result;
use base::types::PromptId;
use sessions::projection::Step;
use sessions::session::{PromptRange, SessionHandle};
use sessions::transcript::decode;
use wire::acp::{RawObject, RequestKind};

#[derive(Debug)]
pub(super) struct TurnItems {
    /// With the number of the response that each item is the input of. `None` for output.
    items: Vec<(Value, Option<u32>)>,
}

impl TurnItems {
    /// `agent`: the agent of the session.
    pub(super) async fn read(
        session: &SessionHandle,
        prompt: PromptId,
        range: PromptRange,
        agent: &str,
    ) -> Result<Self> {
        let blocks = session.query().prompt_blocks(prompt).await?;
        let mut items = vec![(message(session, prompt, blocks.as_deref()), Some(1))];
        let head = |number| Head {
            id: ResponseId {
                session: session.id(),
                prompt,
                number,
            },
            agent: agent.to_owned(),
            created: 0,
            notices: Vec::new(),
        };
        let mut number = 1;
        let mut writer = ResponseWriter::new(head(number), Form::Items);
        // Nothing is written.
        let mut out = BytesMut::new();
        let each = |step: Step<'_>| {
            writer.step(&mut out, &step);
            match step {
                Step::Requested(request) if request.kind == RequestKind::Permission => {
                    number += 1;
                    let next = ResponseWriter::new(head(number), Form::Items);
                    let next = next.after_requests(number - 1);
                    let output = std::mem::replace(&mut writer, next).into_output();
                    items.extend(output.into_iter().map(|item| (item, None)));
                }
                Step::Resolved {
                    id,
                    kind: RequestKind::Permission,
                    allowed,
                    ..
                } => {
                    let question = head(number).id.question(id);
                    let answer = json!({
                        "id": format!("mcpa_{question}"), "type": "mcp_approval_response",
                        "approval_request_id": format!("mcpr_{question}"), "approve": allowed,
                    });
                    items.push((answer, Some(number)));
                }
                _ => {}
            }
        };
        steps_of(session, prompt, range, each).await?;
        let output = writer.into_output().into_iter();
        items.extend(output.map(|item| (item, None)));
        Ok(Self { items })
    }

    pub(super) fn input(self, number: u32) -> Vec<Value> {
        let items = self.items.into_iter();
        let input = items.filter(|(_, input_of)| *input_of == Some(number));
        input.map(|(item, _)| item).collect()
    }

    /// All items. A call that two responses have is at its first place, with its last state.
    pub(super) fn all(self) -> Vec<Value> {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut all: Vec<Value> = Vec::new();
        for (item, _) in self.items {
            let id = item["id"].as_str().unwrap_or_default().to_owned();
            if let Some(at) = places.get(&id) {
                all[*at] = item;
            } else {
                places.insert(id, all.len());
                all.push(item);
            }
        }
        all
    }
}

/// The message of the user. Without content if the log no longer has it.
fn message(session: &SessionHandle, prompt: PromptId, blocks: Option<&RawValue>) -> Value {
    let blocks = blocks.and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
    let content: Vec<Value> = blocks.into_iter().flatten().filter_map(part).collect();
    json!({
        "id": format!("msg_{}_{prompt}_0", session.id()), "type": "message", "role": "user",
        "status": "completed", "content": content,
    })
}

fn part(block: &RawValue) -> Option<Value> {
    let block = RawObject::parse(block)?;
    let text = |key| block.get(key).and_then(|raw| decode(raw.get()));
    Some(match text("type")?.as_str() {
        "text" => json!({ "type": "input_text", "text": text("text")? }),
        "image" => {
            let url = format!("data:{};base64,{}", text("mimeType")?, text("data")?);
            json!({ "type": "input_image", "image_url": url, "detail": "auto" })
        }
        "resource_link" => {
            json!({ "type": "input_file", "file_url": text("uri")?, "filename": text("name") })
        }
        "resource" => {
            let resource = block.object("resource")?;
            json!({ "type": "input_file", "filename": resource.text("uri")? })
        }
        _ => return None,
    })
}
