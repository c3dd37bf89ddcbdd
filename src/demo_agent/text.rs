//! Truncates, splits, quotes and parses text.

use agent_client_protocol_schema::v1::Error;

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
    let cut = cut
        .rfind(char::is_whitespace)
        .filter(|at| *at > end / 2)
        .map_or(cut, |at| &cut[..at]);
    format!("{}…", cut.trim_end())
}

/// The text as one line with collapsed white space.
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
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
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
    let longest = text
        .split(|letter| letter != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end())
}

/// A number within a range from a command's input.
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

#[cfg(test)]
mod tests {
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
