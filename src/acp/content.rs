//! Validates the content blocks of a prompt against the capabilities of the agent.

use serde_json::value::RawValue;

use super::capabilities::PromptCapabilities;
use super::raw_object::RawObject;

/// The reason why a prompt is invalid. `index` counts its blocks from 0.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("the prompt must be an array with at least one content block")]
    NotBlocks,
    /// The schema of v1 has no block with this type.
    #[error("block {index}: unknown type")]
    Unknown { index: usize, kind: String },
    #[error("block {index}: a block of type {kind} requires `{member}`")]
    Malformed {
        index: usize,
        kind: &'static str,
        member: &'static str,
    },
    /// The agent does not advertise support for this type of block.
    #[error("block {index}: the agent does not support the type {kind}")]
    Unsupported { index: usize, kind: &'static str },
}

impl ContentError {
    /// Returns the location of the error as a JSON pointer relative to the prompt.
    pub fn pointer(&self) -> String {
        match self {
            Self::NotBlocks => String::new(),
            Self::Unknown { index, .. } | Self::Unsupported { index, .. } => {
                format!("/{index}/type")
            }
            Self::Malformed { index, member, .. } => format!("/{index}/{member}"),
        }
    }
}

/// Validates a prompt against the capabilities of the agent, and returns its blocks. The values themselves are not decoded.
pub fn validate_prompt(
    blocks: &RawValue,
    capabilities: PromptCapabilities,
) -> Result<Vec<RawObject<'_>>, ContentError> {
    let blocks: Vec<&RawValue> =
        serde_json::from_str(blocks.get()).map_err(|_| ContentError::NotBlocks)?;
    if blocks.is_empty() {
        return Err(ContentError::NotBlocks);
    }
    blocks
        .into_iter()
        .enumerate()
        .map(|(index, raw)| validate_block(index, raw, capabilities))
        .collect()
}

fn validate_block(
    index: usize,
    raw: &RawValue,
    accepted: PromptCapabilities,
) -> Result<RawObject<'_>, ContentError> {
    let block = RawObject::parse(raw);
    let kind = block
        .as_ref()
        .and_then(|block| block.text("type"))
        .unwrap_or_default();
    let schema = BLOCK_SCHEMAS.iter().find(|(known, ..)| *known == kind);
    let (Some(block), Some(&(kind, members, is_supported))) = (block, schema) else {
        return Err(ContentError::Unknown {
            index,
            kind: kind.into_owned(),
        });
    };
    if !is_supported(accepted) {
        return Err(ContentError::Unsupported { index, kind });
    }
    let starts = |member: &str, with: char| {
        block
            .get(member)
            .is_some_and(|raw| raw.get().starts_with(with))
    };
    match members.iter().find(|(member, with)| !starts(member, *with)) {
        Some((member, _)) => Err(ContentError::Malformed {
            index,
            kind,
            member,
        }),
        None => Ok(block),
    }
}

/// A type of block, its required members with the first byte of their values (a string or an object), and the
/// check whether the agent supports it.
type BlockSchema = (
    &'static str,
    &'static [(&'static str, char)],
    fn(PromptCapabilities) -> bool,
);

const BLOCK_SCHEMAS: [BlockSchema; 5] = [
    ("text", &[("text", '"')], |_| true),
    ("resource_link", &[("uri", '"'), ("name", '"')], |_| true),
    ("image", &[("data", '"'), ("mimeType", '"')], |accepted| {
        accepted.image
    }),
    ("audio", &[("data", '"'), ("mimeType", '"')], |accepted| {
        accepted.audio
    }),
    ("resource", &[("resource", '{')], |accepted| {
        accepted.embedded_context
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blocks: &str, capabilities: PromptCapabilities) -> Result<(), ContentError> {
        validate_prompt(serde_json::from_str(blocks).unwrap(), capabilities).map(drop)
    }

    const NONE: PromptCapabilities = PromptCapabilities {
        image: false,
        audio: false,
        embedded_context: false,
    };
    const ALL: PromptCapabilities = PromptCapabilities {
        image: true,
        audio: true,
        embedded_context: true,
    };

    #[test]
    fn text_and_links_always_pass_and_the_rest_by_capability() {
        let base = r#"[{"type":"text","text":"\ud83d"},{"type":"resource_link","uri":"file:///a","name":"a"}]"#;
        assert_eq!(check(base, NONE), Ok(()));
        for (block, kind) in [
            (
                r#"[{"type":"image","data":"","mimeType":"image/png"}]"#,
                "image",
            ),
            (
                r#"[{"type":"audio","data":"","mimeType":"audio/wav"}]"#,
                "audio",
            ),
            (
                r#"[{"type":"resource","resource":{"uri":"a:b","text":""}}]"#,
                "resource",
            ),
        ] {
            assert_eq!(check(block, ALL), Ok(()), "{kind}");
            assert_eq!(
                check(block, NONE),
                Err(ContentError::Unsupported { index: 0, kind })
            );
        }
    }

    #[test]
    fn malformed_blocks_are_rejected_with_a_pointer() {
        for (blocks, pointer) in [
            ("[]", ""),
            ("{}", ""),
            ("null", ""),
            ("[1]", "/0/type"),
            (
                r#"[{"type":"text","text":"a"},{"type":"video"}]"#,
                "/1/type",
            ),
            (r#"[{"text":"a"}]"#, "/0/type"),
            (r#"[{"type":"text"}]"#, "/0/text"),
            (r#"[{"type":"text","text":1}]"#, "/0/text"),
            (r#"[{"type":"text","type":"image","text":"a"}]"#, "/0/type"),
            (r#"[{"type":"resource_link","uri":"a:b"}]"#, "/0/name"),
        ] {
            assert_eq!(
                check(blocks, ALL).unwrap_err().pointer(),
                pointer,
                "{blocks}"
            );
        }
    }
}
