//! Characters that change the display of other text, or that nobody sees: control characters, bidi controls and
//! invisible format characters.
//!
//! This is the only check of names and texts that clients, keys and members define. [`check_name`] and [`check_text`]
//! reject the characters, and [`strip_controls`] and [`one_line`] remove them from text of agents and clients before a
//! person reads it. The content of prompts, messages and files is passed unchanged.

use std::borrow::Cow;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "character {position} is U+{:04X}: control characters, bidi controls, invisible format characters{} are not allowed",
    u32::from(*character),
    if *in_lines { "" } else { " and line breaks" }
)]
pub struct UnsafeCharacter {
    character: char,
    /// The position in the text, counted in characters from 1.
    position: usize,
    /// Whether the text may have several lines.
    in_lines: bool,
}

/// Checks a title or name: one line without control characters, bidi controls and invisible format characters.
pub fn check_name(name: &str) -> Result<(), UnsafeCharacter> {
    check(name, false)
}

/// Checks a text of any number of lines, such as a description: as [`check_name`], but with line ends and tabs.
pub fn check_text(text: &str) -> Result<(), UnsafeCharacter> {
    check(text, true)
}

fn check(text: &str, in_lines: bool) -> Result<(), UnsafeCharacter> {
    let mut previous = None;
    for (index, character) in text.chars().enumerate() {
        let is_permitted_line_end = in_lines && matches!(character, '\n' | '\r' | '\t');
        if is_unsafe(character, previous) && !is_permitted_line_end {
            return Err(UnsafeCharacter {
                character,
                position: index + 1,
                in_lines,
            });
        }
        previous = Some(character);
    }
    Ok(())
}

/// Removes escape sequences as a whole, and all other characters that [`check_name`] rejects. Line feeds and tabs
/// remain.
///
/// A control string (such as a window title) without an end reaches to the end of its line.
pub fn strip_controls(text: &str) -> Cow<'_, str> {
    if !text.contains(|character| is_stripped(character, None)) {
        return Cow::Borrowed(text);
    }
    let mut stripped = String::with_capacity(text.len());
    let mut state = State::Text;
    for character in text.chars() {
        state = state.next(character);
        if state == State::Text && !is_stripped(character, stripped.chars().next_back()) {
            stripped.push(character);
        } else if state == State::Final {
            state = State::Text;
        }
    }
    Cow::Owned(stripped)
}

/// The text as one line that [`check_name`] accepts.
pub fn one_line(text: &str) -> String {
    strip_controls(text).replace(['\n', '\t'], " ")
}

/// Control characters, characters that separate lines or change the order of text, and format characters that nobody
/// sees.
///
/// `previous` is the character before. Emoji and many scripts need the joiners U+200C and U+200D, which are therefore
/// permitted after a character that is not ASCII.
fn is_unsafe(character: char, previous: Option<char>) -> bool {
    match character {
        '\u{200c}' | '\u{200d}' => {
            previous.is_none_or(|previous| previous.is_ascii() || is_joiner(previous))
        }
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e007f}' => true,
        _ => character.is_control(),
    }
}

fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}')
}

fn is_stripped(character: char, previous: Option<char>) -> bool {
    is_unsafe(character, previous) && !matches!(character, '\n' | '\t')
}

/// The position in an escape sequence (ECMA-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Outside of a sequence. The character is text.
    Text,
    /// The character is the last one of a sequence.
    Final,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate character, as in the selection of a character set.
    EscapeIntermediate,
    /// In a control sequence (CSI), which selects colors and moves the cursor.
    ControlSequence,
    /// In a control string (OSC, DCS, SOS, PM, APC), such as a window title or a link.
    ControlString,
}

impl State {
    /// The state after this character.
    fn next(self, character: char) -> Self {
        match (self, character) {
            // ESC and the characters of C1 begin a sequence anywhere, also within another sequence.
            (_, '\u{1b}') => Self::Escape,
            (_, '\u{9b}') | (Self::Escape, '[') | (Self::ControlSequence, ' '..='?') => {
                Self::ControlSequence
            }
            (_, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}')
            | (Self::Escape, ']' | 'P' | 'X' | '^' | '_') => Self::ControlString,
            (Self::Escape | Self::EscapeIntermediate, ' '..='/') => Self::EscapeIntermediate,
            (Self::Escape | Self::EscapeIntermediate, '0'..='~')
            | (Self::ControlSequence, '@'..='~')
            | (Self::ControlString, '\u{7}' | '\u{18}' | '\u{1a}' | '\u{9c}') => Self::Final,
            (Self::ControlString, character) if character != '\n' => Self::ControlString,
            _ => Self::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Text with many parts of escape sequences.
    fn hostile() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            3 => any::<char>().prop_map(String::from),
            3 => prop::sample::select(vec![
                '\u{1b}', '[', ']', 'P', '\\', '\u{7}', '\u{9b}', '\u{9c}', '\u{9d}', '\n', '\t', '\r', '\0',
                '\u{18}', '\u{7f}', '\u{85}', '\u{202e}', '\u{2066}', '\u{2028}', '\u{61c}', '\u{200b}', '\u{200d}',
                '\u{ad}', '\u{e0041}', 'm', '3', ';', 'ü',
            ])
            .prop_map(String::from),
            1 => ".{0,8}",
        ];
        prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    /// Complete sequences of a terminal.
    fn sequence() -> impl Strategy<Value = String> {
        let string = "[^\u{7}\u{18}\u{1a}\u{1b}\u{90}\u{98}\u{9b}-\u{9f}\n]{0,20}";
        prop_oneof![
            "\u{1b}\\[[0-?]{0,8}[ -/]{0,2}[@-~]",
            "\u{9b}[0-?]{0,8}[ -/]{0,2}[@-~]",
            "\u{1b}[ -/]{1,2}[0-~]",
            "\u{1b}[0-OQ-WYZ\\\\`-~]",
            (
                prop::sample::select(vec![
                    "\u{1b}]", "\u{1b}P", "\u{1b}X", "\u{1b}^", "\u{1b}_", "\u{9d}", "\u{90}"
                ]),
                string,
                prop::sample::select(vec!["\u{7}", "\u{1b}\\", "\u{9c}", "\u{18}"])
            )
                .prop_map(|(start, text, end)| format!("{start}{text}{end}")),
            "[\0-\u{6}\u{8}\u{b}-\u{17}\u{7f}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{85}\r]",
        ]
    }

    #[test]
    fn strip_removes_whole_escape_sequences() {
        for (text, stripped) in [
            ("\u{1b}[1;31mred\u{1b}[0m text", "red text"),
            ("\u{1b}[?25l\u{1b}[2J\u{1b}[Hclear", "clear"),
            ("\u{1b}]0;title\u{7}shown", "shown"),
            (
                "\u{1b}]8;;https://x.example\u{1b}\\link\u{1b}]8;;\u{1b}\\",
                "link",
            ),
            ("\u{1b}Pq#0;2\u{1b}\\sixel", "sixel"),
            ("\u{1b}(B\u{1b}=\u{1b}7charset", "charset"),
            ("\u{9b}31mred\u{9d}0;title\u{9c}end", "redend"),
            ("\u{1b}]0;without an end\nnext line", "\nnext line"),
            ("\u{1b}[31", ""),
            ("\u{1b}[3\u{1b}[31mtwice", "twice"),
            ("\u{1b}[3ünfinished", "ünfinished"),
            ("a\0b\r\nc\td\u{7f}e\u{8}\u{85}f", "ab\nc\tdef"),
            ("\u{202e}gpj.exe\u{2066}\u{200f}", "gpj.exe"),
            ("👨\u{200d}👩 שלום", "👨\u{200d}👩 שלום"),
            ("می\u{200c}خواهم", "می\u{200c}خواهم"),
            ("ad\u{200d}m\u{200b}i\u{ad}n\u{feff}\u{e0041}", "admin"),
            ("ü\u{200d}\u{200d}ü", "ü\u{200d}ü"),
        ] {
            assert_eq!(strip_controls(text), stripped, "{text:?}");
        }
    }

    #[test]
    fn name_error_states_the_character_and_its_position() {
        let error = check_name("ab\u{1b}[2J").unwrap_err().to_string();
        assert!(error.starts_with("character 3 is U+001B: "), "{error}");
        for name in [
            "a\nb",
            "a\tb",
            "\0",
            "\u{7f}",
            "\u{9b}",
            "\u{85}",
            "\u{2028}",
            "\u{202e}",
            "\u{200e}",
            "a\u{200b}b",
            "a\u{ad}b",
            "a\u{2060}b",
            "\u{feff}a",
            "a\u{e0062}",
            "a\u{200d}b",
            "\u{200c}",
        ] {
            assert!(check_name(name).is_err(), "{name:?}");
            let is_text = name.contains(['\n', '\t']);
            assert_eq!(check_text(name).is_ok(), is_text, "{name:?}");
        }
        assert_eq!(check_text("a\r\n\tb"), Ok(()));
        for name in [
            "",
            "Fix the tests",
            "Ünïcode 日本語 שלום",
            "👨\u{200d}👩\u{200d}👧",
            "a\u{a0}b",
        ] {
            assert_eq!(check_name(name), Ok(()), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn stripped_text_has_no_unsafe_character(text in hostile()) {
            let stripped = strip_controls(&text);
            prop_assert!(check_text(&stripped).is_ok(), "{stripped:?}");
            prop_assert_eq!(strip_controls(&stripped), stripped.as_ref());
            prop_assert!(check_name(&one_line(&text)).is_ok());
        }

        #[test]
        fn strip_keeps_lines_apart(text in hostile()) {
            let lines = strip_controls(&text).matches('\n').count();
            prop_assert_eq!(lines, text.matches('\n').count());
        }

        #[test]
        fn text_between_sequences_is_unchanged(
            parts in prop::collection::vec(("[a-zA-Z0-9 ;\\]\\[\n\tü日]{0,10}", sequence()), 0..8),
        ) {
            let text: String = parts.iter().flat_map(|(text, sequence)| [text.as_str(), sequence]).collect();
            let plain: String = parts.iter().map(|(text, _)| text.as_str()).collect();
            prop_assert_eq!(strip_controls(&text), plain, "{:?}", text);
        }

        #[test]
        fn name_is_accepted_only_if_strip_changes_nothing(name in hostile()) {
            let unchanged = !name.contains(['\n', '\t']) && strip_controls(&name) == name;
            prop_assert_eq!(check_name(&name).is_ok(), unchanged);
        }
    }
}
