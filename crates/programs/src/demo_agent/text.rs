//! Truncates, splits, quotes and parses text.

use agent_client_protocol_schema::v1::Error;
use serde_json::Value;

/// Chunks as a model streams them: a few words each, never within a character, without loss.
pub(super) fn pieces(text: &str) -> Vec<String> {
    const WORDS: usize = 3;
    let words: Vec<&str> = text.split_inclusive([' ', '\n']).collect();
    words.chunks(WORDS).map(<[&str]>::concat).collect()
}

/// At most `max` characters, truncated after a word if possible.
pub(super) fn excerpt(text: &str, max: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(max) else {
        return text.to_owned();
    };
    let cut = &text[..end];
    let word_end = cut.rfind(char::is_whitespace).filter(|at| *at > end / 2);
    format!("{}…", cut[..word_end.unwrap_or(end)].trim_end())
}

pub(super) fn one_line(text: &str, max: usize) -> String {
    // Reads only the shown part, so that a prompt of megabytes is cheap.
    let words: Vec<&str> = text.split_whitespace().take(max).collect();
    excerpt(&words.join(" "), max)
}

/// The user's words escaped for markdown.
pub(super) fn quoted(text: &str, max: usize) -> String {
    let mut quoted = String::from("“");
    for letter in one_line(text, max).chars() {
        if letter.is_ascii_punctuation()
            && !matches!(letter, '.' | ',' | '?' | ':' | ';' | '\'' | '"' | '/')
        {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted.push('”');
    quoted
}

/// The words of a command line. Both kinds of quotes keep white space. Nothing else is special.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quote = None;
    for letter in line.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            None if letter.is_whitespace() => words.extend(word.take()),
            None if matches!(letter, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// A fenced block in markdown whose content cannot close it.
pub(super) fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max();
    let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end())
}

pub(super) fn number(input: &str, default: u32, max: u32) -> u32 {
    input.parse().unwrap_or(default).clamp(1, max)
}

/// The client's error for a rejected request, as text in markdown.
pub(super) fn error_text(error: &Error) -> String {
    format!(
        "{} ({})",
        quoted(&error.message, 200),
        i32::from(error.code)
    )
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) attachments: Vec<String>,
}

/// The maximum number of attachments that an answer names. The rest is counted.
const MAX_NAMED_ATTACHMENTS: usize = 8;

impl Prompt {
    pub(super) fn new(blocks: &[Value]) -> Self {
        let texts = blocks.iter().filter_map(|block| block["text"].as_str());
        Self {
            text: texts.collect::<Vec<_>>().join("\n"),
            attachments: blocks.iter().filter_map(attachment).collect(),
        }
    }

    pub(super) fn command(&self) -> Option<(&str, &str)> {
        let line = self.text.trim().strip_prefix('/')?;
        let (name, input) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_name = !name.is_empty() && name.bytes().all(is_plain);
        is_name.then_some((name, input.trim()))
    }

    /// A sentence about the attachments. Empty if there are none.
    pub(super) fn acknowledgement(&self) -> String {
        let count = self.attachments.len();
        let named = self.attachments[..count.min(MAX_NAMED_ATTACHMENTS)].join(", ");
        let more = match count.saturating_sub(MAX_NAMED_ATTACHMENTS) {
            _ if named.is_empty() => return String::new(),
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("With your message came {named}{more}; a real agent would look inside.\n\n")
    }
}

fn attachment(block: &Value) -> Option<String> {
    let member = |pointer| {
        block
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let shown = |pointer, max| quoted(member(pointer), max);
    let decoded_size = |base64| size(member(base64).trim_end_matches('=').len() * 3 / 4);
    Some(match block["type"].as_str()? {
        kind @ ("image" | "audio") => {
            let kind = if kind == "image" {
                "an image"
            } else {
                "a recording"
            };
            format!(
                "{kind} ({}, {})",
                shown("/mimeType", 40),
                decoded_size("/data")
            )
        }
        "resource_link" => format!("a link to {}", shown("/name", 60)),
        "resource" => {
            let uri = shown("/resource/uri", 60);
            match block["resource"]["text"].as_str() {
                Some(text) => format!("the text of {uri} ({})", size(text.len())),
                None => format!("the file {uri} ({})", decoded_size("/resource/blob")),
            }
        }
        _ => return None,
    })
}

fn size(bytes: usize) -> String {
    if bytes < 1024 {
        format!("{bytes} bytes")
    } else {
        format!("{} KiB", bytes.div_ceil(1024))
    }
}

#[cfg(test)]
mod text_tests {
    use super::*;

    #[test]
    fn pieces_lose_nothing() {
        for text in [
            "",
            " ",
            "one",
            "one two three four five",
            "# A\n\n- ü 😀 c\n",
            "\n\n\n\n",
        ] {
            assert_eq!(pieces(text).concat(), text);
            assert!(pieces(text).iter().all(|piece| !piece.is_empty()));
        }
        assert_eq!(pieces("a b c d"), ["a b c ", "d"]);
    }

    #[test]
    fn arguments_split_at_unquoted_white_space() {
        assert_eq!(
            words("  sh -c 'echo \"a b\"; ls'  x\"y z\"\t''"),
            ["sh", "-c", "echo \"a b\"; ls", "xy z", ""]
        );
        assert!(words(" \n").is_empty());
    }

    #[test]
    fn fence_is_longer_than_fences_in_its_content() {
        assert_eq!(fenced("sh", "ls\n"), "```sh\nls\n```");
        assert_eq!(fenced("", "a ```` b"), "`````\na ```` b\n`````");
    }

    #[test]
    fn quoted_text_is_one_escaped_line() {
        assert_eq!(quoted("<b>\n`x`", 20), "“\\<b\\> \\`x\\`”");
        assert_eq!(quoted("hello wide world", 12), "“hello wide…”");
        assert_eq!(excerpt("😀😀😀", 2), "😀😀…");
    }
}

#[cfg(test)]
mod prompt_tests {
    use super::*;

    fn prompt(text: &str) -> Prompt {
        Prompt::new(&[serde_json::json!({ "type": "text", "text": text })])
    }

    #[test]
    fn command_is_a_slash_and_a_word() {
        assert_eq!(prompt(" /long 12 ").command(), Some(("long", "12")));
        assert_eq!(prompt("/help").command(), Some(("help", "")));
        for text in ["help", "", "/", "/usr/bin/env", "say /help"] {
            assert_eq!(prompt(text).command(), None, "{text:?}");
        }
    }

    #[test]
    fn attachments_are_named_with_their_size() {
        let blocks: Vec<Value> = serde_json::from_str(
            r#"[{"type":"text","text":"see"},{"type":"image","data":"aGVsbG8=","mimeType":"image/png"},
                {"type":"resource","resource":{"uri":"file:///a","text":"abc"}}]"#,
        )
        .unwrap();
        assert_eq!(
            Prompt::new(&blocks).attachments,
            [
                "an image (“image/png”, 5 bytes)",
                "the text of “file:///a” (3 bytes)"
            ]
        );
    }
}
