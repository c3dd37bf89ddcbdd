//! The fenced blocks of a page, each with the mark in front of it.

/// How a block is used, from a comment directly before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Without a comment: a command runs.
    None,
    /// `<!-- file: NAME -->`: the text of a file in the working folder.
    File(String),
    /// `<!-- serve -->`: the command starts a gateway that later blocks use. `<!-- serve: COMMAND -->` runs COMMAND instead.
    Serve(Option<String>),
    /// `<!-- before: COMMAND -->`: the block runs after COMMAND, which prepares the data that the block needs.
    Before(String),
    /// `<!-- not run: REASON -->`.
    NotRun(String),
    /// `<!-- same as: FILE -->`: the text of a file of this repository.
    SameAs(String),
}

#[derive(Debug)]
pub(super) struct Block<'a> {
    pub(super) language: String,
    pub(super) text: &'a str,
    pub(super) mark: Mark,
    /// The line of its fence.
    pub(super) line: usize,
}

fn mark(before: &str) -> Mark {
    let comment = before
        .trim()
        .strip_prefix("<!--")
        .and_then(|rest| rest.strip_suffix("-->"));
    let Some((name, value)) =
        comment.map(|text| text.trim().split_once(':').unwrap_or((text.trim(), "")))
    else {
        return Mark::None;
    };
    let value = value.trim().to_owned();
    match name.trim() {
        "file" => Mark::File(value),
        "serve" => Mark::Serve(Some(value).filter(|value| !value.is_empty())),
        "before" => Mark::Before(value),
        "not run" => Mark::NotRun(value),
        "same as" => Mark::SameAs(value),
        _ => Mark::None,
    }
}

pub(super) fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut line = 0;
    let mut before = "";
    let mut rest = page;
    while let Some((head, tail)) = rest.split_once('\n') {
        line += 1;
        rest = tail;
        if let Some(language) = head.strip_prefix("```") {
            let end = if rest.starts_with("```") {
                0
            } else {
                rest.find("\n```").expect("a fence is closed") + 1
            };
            let text = &rest[..end];
            blocks.push(Block {
                language: language.trim().to_owned(),
                text,
                mark: mark(before),
                line,
            });
            line += text.lines().count() + 1;
            rest = rest[end..].split_once('\n').map_or("", |(_, rest)| rest);
            before = "";
        } else {
            before = head;
        }
    }
    blocks
}

#[test]
fn blocks_have_their_language_mark_and_line() {
    let page = "a\n```sh\necho a\necho b\n```\n\n<!-- serve: x --y -->\n```sh\n```\n<!-- file: a.toml -->\n```toml\na = 1\n```\n";
    let found: Vec<_> = blocks(page)
        .into_iter()
        .map(|block| (block.language, block.text, block.mark, block.line))
        .collect();
    let serve = Mark::Serve(Some("x --y".to_owned()));
    let expected = [
        ("sh".to_owned(), "echo a\necho b\n", Mark::None, 2),
        ("sh".to_owned(), "", serve, 8),
        (
            "toml".to_owned(),
            "a = 1\n",
            Mark::File("a.toml".to_owned()),
            11,
        ),
    ];
    assert_eq!(found, expected);
}
