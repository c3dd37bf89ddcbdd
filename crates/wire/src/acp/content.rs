//! Validates the content blocks of a prompt against the capabilities of the agent.

use serde::Serialize;
use serde_json::value::RawValue;

use super::capabilities::PromptCapabilities;
use super::raw_object::RawObject;
use super::to_raw;

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
    let blocks = blocks.into_iter().enumerate();
    let blocks = blocks.map(|(index, raw)| validate_block(index, raw, capabilities));
    blocks.collect()
}

fn validate_block(
    index: usize,
    raw: &RawValue,
    accepted: PromptCapabilities,
) -> Result<RawObject<'_>, ContentError> {
    let block = RawObject::parse(raw);
    let kind = block.as_ref().and_then(|block| block.text("type"));
    let kind = kind.unwrap_or_default();
    let schema = BLOCK_SCHEMAS.iter().find(|(known, ..)| *known == kind);
    let (Some(block), Some(&(kind, members, is_supported))) = (block, schema) else {
        let kind = kind.into_owned();
        return Err(ContentError::Unknown { index, kind });
    };
    if !is_supported(accepted) {
        return Err(ContentError::Unsupported { index, kind });
    }
    let mut members = members.iter();
    match members.find(|(member, start)| block.starting(member, *start).is_none()) {
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

const DATA: [(&str, char); 2] = [("data", '"'), ("mimeType", '"')];

const BLOCK_SCHEMAS: [BlockSchema; 5] = [
    ("text", &[("text", '"')], |_| true),
    ("resource_link", &[("uri", '"'), ("name", '"')], |_| true),
    ("image", &DATA, |accepted| accepted.image),
    ("audio", &DATA, |accepted| accepted.audio),
    ("resource", &[("resource", '{')], |accepted| {
        accepted.embedded_context
    }),
];

/// A content block for a file.
#[derive(Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum FileBlock<'a> {
    ResourceLink {
        uri: &'a str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<&'a str>,
        size: u64,
    },
    Resource {
        resource: FileContent<'a>,
    },
    Image {
        /// Base64.
        data: String,
        mime_type: &'a str,
        uri: &'a str,
    },
    Audio {
        /// Base64.
        data: String,
        mime_type: &'a str,
    },
}

#[derive(Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum FileContent<'a> {
    Text {
        uri: &'a str,
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<&'a str>,
    },
    Blob {
        uri: &'a str,
        /// Base64.
        blob: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<&'a str>,
    },
}

impl FileBlock<'_> {
    pub fn to_raw(&self) -> Box<RawValue> {
        to_raw(self)
    }
}

/// Appends content blocks to an array and keeps the bytes of the existing blocks. `None` if the value is not
/// an array.
pub fn append_blocks(array: &RawValue, more: &[Box<RawValue>]) -> Option<Box<RawValue>> {
    let mut blocks: Vec<&RawValue> = serde_json::from_str(array.get()).ok()?;
    blocks.extend(more.iter().map(|block| &**block));
    Some(to_raw(&blocks))
}

#[cfg(test)]
mod content_tests {
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

#[cfg(test)]
mod attachment_tests {
    use agent_client_protocol_schema::v1;

    use super::*;

    #[test]
    fn file_blocks_match_the_schema() {
        let uri = "file:///w/a";
        let mime_type = Some("text/plain");
        let blocks = [
            FileBlock::ResourceLink {
                uri,
                name: "a",
                mime_type,
                size: 3,
            },
            FileBlock::Resource {
                resource: FileContent::Text {
                    uri,
                    text: "a\"b",
                    mime_type,
                },
            },
            FileBlock::Resource {
                resource: FileContent::Blob {
                    uri,
                    blob: "AA==".into(),
                    mime_type: None,
                },
            },
            FileBlock::Image {
                data: "AA==".into(),
                mime_type: "image/png",
                uri,
            },
            FileBlock::Audio {
                data: "AA==".into(),
                mime_type: "audio/wav",
            },
        ];
        let blocks: Vec<Box<RawValue>> = blocks.iter().map(FileBlock::to_raw).collect();
        let array =
            RawValue::from_string(r#"[{"type":"text","text":"\ud800"} ]"#.to_owned()).unwrap();
        let array = append_blocks(&array, &blocks).unwrap();
        insta::assert_snapshot!(array.get(), @r#"[{"type":"text","text":"\ud800"},{"type":"resource_link","uri":"file:///w/a","name":"a","mimeType":"text/plain","size":3},{"type":"resource","resource":{"uri":"file:///w/a","text":"a\"b","mimeType":"text/plain"}},{"type":"resource","resource":{"uri":"file:///w/a","blob":"AA=="}},{"type":"image","data":"AA==","mimeType":"image/png","uri":"file:///w/a"},{"type":"audio","data":"AA==","mimeType":"audio/wav"}]"#);
        let typed: Vec<v1::ContentBlock> =
            serde_json::from_str(&array.get().replace(r"\ud800", "text")).unwrap();
        assert_eq!(typed.len(), 6);
        assert!(matches!(typed[3], v1::ContentBlock::Resource(_)));
    }

    #[test]
    fn append_blocks_handles_empty_arrays() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(append_blocks(&raw("[ ]"), &[]).unwrap().get(), "[]");
        assert_eq!(
            append_blocks(&raw("[ ]"), &[raw("1")]).unwrap().get(),
            "[1]"
        );
        assert_eq!(append_blocks(&raw("[1]"), &[]).unwrap().get(), "[1]");
        assert!(append_blocks(&raw("{}"), &[]).is_none());
    }
}
