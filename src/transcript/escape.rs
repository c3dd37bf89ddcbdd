//! Escaping of text for Markdown.

/// Escapes text into one line without Markdown or HTML syntax.
pub(super) fn inline(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in one_line(text).chars() {
        if matches!(
            character,
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '&'
        ) {
            line.push('\\');
        }
        line.push(character);
    }
    line
}

/// Escapes text into one line inside an HTML element.
pub(super) fn element(text: &str) -> String {
    one_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A code span on one line.
pub(super) fn code(text: &str) -> String {
    let text = one_line(text);
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') || text.is_empty() {
        " "
    } else {
        ""
    };
    format!("{fence}{pad}{text}{pad}{fence}")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A code block whose fence is longer than any fence inside.
pub(super) fn fenced(language: &str, text: &str) -> String {
    let fence = "`".repeat((longest_run(text, '`') + 1).max(3));
    format!(
        "{fence}{language}\n{}\n{fence}",
        text.trim_end_matches('\n')
    )
}

/// The agent's Markdown, with an open code block closed. Otherwise a turn that stopped inside a code block
/// would include the following turns.
pub(super) fn close_code_fence(text: &str) -> String {
    let mut open: Option<&str> = None;
    for line in text.lines() {
        let line = line.trim_start();
        let fence = &line[..line.len() - line.trim_start_matches(['`', '~']).len()];
        let plain = line.trim_end().len() == fence.len();
        open = match open {
            Some(begun) if plain && fence.starts_with(begun) => None,
            None if fence.len() >= 3
                && fence.bytes().all(|b| Some(&b) == fence.as_bytes().first()) =>
            {
                Some(fence)
            }
            as_before => as_before,
        };
    }
    match open {
        Some(fence) => format!("{}\n{fence}", text.trim_end_matches('\n')),
        None => text.to_owned(),
    }
}

fn longest_run(text: &str, of: char) -> usize {
    text.split(|character| character != of)
        .map(str::len)
        .max()
        .unwrap_or(0)
}

pub(super) fn blockquote(text: &str) -> String {
    prefix_lines(text, "> ")
}

/// Indents text as part of the preceding list item.
pub(super) fn indent(text: &str) -> String {
    prefix_lines(text, "  ")
}

fn prefix_lines(text: &str, prefix: &str) -> String {
    let prefixed = |line: &str| {
        let prefix = if line.is_empty() {
            prefix.trim_end()
        } else {
            prefix
        };
        format!("{prefix}{line}\n")
    };
    text.lines().map(prefixed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_stays_text() {
        assert_eq!(inline("a*b_\n# <b>`[x](y)"), r"a\*b\_ \# \<b\>\`\[x\](y)");
        assert_eq!(element("a\n<b> & c"), "a &lt;b&gt; &amp; c");
        assert_eq!(code("a b"), "`a b`");
        assert_eq!(code("``x`"), "``` ``x` ```");
        assert_eq!(fenced("diff", "a\n````\n"), "`````diff\na\n````\n`````");
        assert_eq!(fenced("", "a"), "```\na\n```");
        assert_eq!(
            close_code_fence("a\n```rust\nlet a"),
            "a\n```rust\nlet a\n```"
        );
        for whole in [
            "a",
            "```\na\n```",
            "````\n```\n````\n",
            "~~~\n```\n~~~",
            "`` a",
            "",
        ] {
            assert_eq!(close_code_fence(whole), whole);
        }
        assert_eq!(blockquote("a\n\nb"), "> a\n>\n> b\n");
        assert_eq!(indent("a\n\nb"), "  a\n\n  b\n");
    }
}
