//! Content blocks that the gateway creates for files attached to a prompt (ACP, Content).

use serde::Serialize;
use serde_json::value::RawValue;

use super::to_raw;

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

/// A file with its content.
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
    let blocks = array
        .get()
        .strip_suffix(']')
        .filter(|blocks| blocks.starts_with('['))?;
    let more: Vec<&str> = more.iter().map(|block| block.get()).collect();
    let comma = if blocks[1..].trim().is_empty() || more.is_empty() {
        ""
    } else {
        ","
    };
    Some(
        RawValue::from_string(format!("{blocks}{comma}{}]", more.join(",")))
            .expect("both parts are JSON"),
    )
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1;

    use super::*;

    #[test]
    fn file_blocks_match_the_schema() {
        let (uri, mime_type) = ("file:///w/a", Some("text/plain"));
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
        insta::assert_snapshot!(array.get(), @r#"[{"type":"text","text":"\ud800"} ,{"type":"resource_link","uri":"file:///w/a","name":"a","mimeType":"text/plain","size":3},{"type":"resource","resource":{"uri":"file:///w/a","text":"a\"b","mimeType":"text/plain"}},{"type":"resource","resource":{"uri":"file:///w/a","blob":"AA=="}},{"type":"image","data":"AA==","mimeType":"image/png","uri":"file:///w/a"},{"type":"audio","data":"AA==","mimeType":"audio/wav"}]"#);
        let typed: Vec<v1::ContentBlock> =
            serde_json::from_str(&array.get().replace(r"\ud800", "text")).unwrap();
        assert_eq!(typed.len(), 6);
        assert!(matches!(typed[3], v1::ContentBlock::Resource(_)));
    }

    #[test]
    fn append_blocks_handles_empty_arrays() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(append_blocks(&raw("[ ]"), &[]).unwrap().get(), "[ ]");
        assert_eq!(
            append_blocks(&raw("[ ]"), &[raw("1")]).unwrap().get(),
            "[ 1]"
        );
        assert_eq!(append_blocks(&raw("[1]"), &[]).unwrap().get(), "[1]");
        assert!(append_blocks(&raw("{}"), &[]).is_none());
    }
}
