//! The parser of bodies and params of clients. An object of the API is a JSON object at every level: serde would also
//! accept an array with the members in the order of the code. Errors have no names of Rust types.

mod objects_only;

use std::fmt;

use serde::Deserialize;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

use self::objects_only::ObjectsOnly;
use wire::jsonrpc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JsonError {
    Malformed(String),
    /// `pointer` is the JSON pointer of the wrong or missing member (RFC 6901).
    Invalid {
        pointer: String,
        detail: String,
    },
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, JsonError> {
    jsonrpc::check_depth(bytes, jsonrpc::MAX_DEPTH).map_err(|deep| JsonError::Invalid {
        pointer: String::new(),
        detail: deep.to_string(),
    })?;
    read(bytes)
}

pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, JsonError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(ObjectsOnly(&mut json))
        .map_err(|error| JsonError::of(error.inner(), pointer(error.path())))?;
    json.end()
        .map_err(|error| JsonError::of(&error, String::new()))?;
    Ok(value)
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => write!(f, "the body is not JSON: {text}"),
            Self::Invalid { pointer, detail } if pointer.is_empty() => f.write_str(detail),
            Self::Invalid { pointer, detail } => write!(f, "{pointer}: {detail}"),
        }
    }
}

impl std::error::Error for JsonError {}

impl JsonError {
    fn of(error: &serde_json::Error, pointer: String) -> Self {
        let text = error.to_string();
        match error.classify() {
            Category::Data => {
                let position = format!(" at line {} column {}", error.line(), error.column());
                let text = text.strip_suffix(&position).unwrap_or(&text);
                let detail = without_types(&without_value(text));
                // The path of serde ends at the object that lacks the member.
                let missing = text
                    .strip_prefix("missing field `")
                    .and_then(|rest| rest.strip_suffix('`'));
                let pointer = match missing {
                    Some(member) => format!("{pointer}/{}", escaped(member)),
                    None => pointer,
                };
                Self::Invalid { pointer, detail }
            }
            Category::Syntax | Category::Eof | Category::Io => Self::Malformed(text),
        }
    }
}

/// Removes the quoted value from a message of serde, so that no error contains a prompt or a key from a wrong position.
fn without_value(text: &str) -> String {
    for (before, after) in [
        (" string \"", "\", expected "),
        (" variant `", "`, expected "),
    ] {
        let quoted = text
            .split_once(before)
            .and_then(|(start, rest)| Some((start, rest.rsplit_once(after)?.1)));
        if let Some((start, expected)) = quoted {
            return format!(
                "{start}{}, expected {expected}",
                before.trim_end_matches([' ', '"', '`'])
            );
        }
    }
    text.to_owned()
}

/// The message of serde without names of Rust types. They occur where serde has buffered a value, and in texts about
/// several forms of a value.
fn without_types(text: &str) -> String {
    const FORMS: [(&str, &str); 6] = [
        ("struct ", "an object"),
        ("internally tagged enum ", "an object"),
        ("adjacently tagged enum ", "an object"),
        ("enum ", "another value"),
        ("tuple ", "an array"),
        ("unit ", "null"),
    ];
    if text.contains(" untagged enum ") {
        return "the value has none of the permitted forms".to_owned();
    }
    let Some((start, expected)) = text.split_once("expected ") else {
        return text.to_owned();
    };
    let form = FORMS.iter().find(|form| expected.starts_with(form.0));
    form.map_or_else(
        || text.to_owned(),
        |form| format!("{start}expected {}", form.1),
    )
}

/// A member of a JSON pointer (RFC 6901, section 3).
pub(crate) fn escaped(member: &str) -> String {
    member.replace('~', "~0").replace('/', "~1")
}

fn pointer(path: &Path) -> String {
    path.iter()
        .fold(String::new(), |pointer, segment| match segment {
            Segment::Seq { index } => format!("{pointer}/{index}"),
            Segment::Map { key } => format!("{pointer}/{}", escaped(key)),
            Segment::Enum { .. } | Segment::Unknown => pointer,
        })
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Outer {
        inner: Option<Inner>,
        #[serde(default)]
        list: Vec<Inner>,
        kind: Option<Kind>,
        raw: Option<Box<RawValue>>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        number: u8,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        One,
        Two { inner: Inner },
    }

    fn error(json: &str) -> String {
        parse::<Outer>(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn arrays_are_no_objects_at_any_level() {
        for json in [
            "[]",
            "[null,[],null,null]",
            r#"{"inner":[1]}"#,
            r#"{"list":[{"number":1},[2]]}"#,
            r#"{"kind":{"two":[{"number":1}]}}"#,
            r#"{"kind":{"two":{"inner":[1]}}}"#,
        ] {
            let text = error(json);
            assert!(text.contains("expected an object"), "{json}: {text}");
            assert!(!text.contains("struct") && !text.contains("::"), "{text}");
        }
        assert!(error(r#"{"list":[{"number":1},[2]]}"#).starts_with("/list/1: "));
        assert!(!error(r#"{"kind":[]}"#).contains("Kind"));
        let whole = br#"{"inner":{"number":1},"list":[{"number":2}],"kind":{"two":{"inner":{"number":3}}},"raw":[1,{}]}"#;
        let whole: Outer = parse(whole).unwrap();
        assert_eq!(whole.inner.unwrap().number + whole.list[0].number, 3);
        assert!(matches!(whole.kind, Some(Kind::Two { inner }) if inner.number == 3));
        assert_eq!(whole.raw.unwrap().get(), "[1,{}]");
        let unit: Outer = parse(br#"{"kind":"one"}"#).unwrap();
        assert!(matches!(unit.kind, Some(Kind::One)));
    }

    #[test]
    fn errors_do_not_quote_values() {
        for (text, detail) in [
            (
                r#"invalid type: string "a", expected "b"", expected a map"#,
                "invalid type: string, expected a map",
            ),
            (
                "unknown variant `a`, expected `b` or `c`",
                "unknown variant, expected `b` or `c`",
            ),
            (
                "invalid type: integer `1`, expected a string",
                "invalid type: integer `1`, expected a string",
            ),
            (
                "unknown field `x`, expected `y`",
                "unknown field `x`, expected `y`",
            ),
        ] {
            assert_eq!(without_value(text), detail);
        }
    }
}
