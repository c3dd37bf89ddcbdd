//! Compares the output of a block with the page, without ids, times, ports and keys, which differ for each run.

use std::path::Path;

/// The text with fixed values in place of those that differ.
pub(super) fn normal(text: &str, home: &Path) -> String {
    let text = text
        .replace('\r', "")
        // The tests name an empty file, so that none of the machine is read.
        .replace("config      /dev/null", "config      no file")
        .replace(&*home.to_string_lossy(), "~");
    let mut out = String::new();
    for line in text.lines() {
        let line = line.trim_end();
        match line.strip_prefix("retry: ") {
            Some(_) => out.push_str("retry: <n>"),
            None => words(&without_seq(line), &mut out),
        }
        out.push('\n');
    }
    out.trim().to_owned()
}

/// The line without the numbers of its events.
fn without_seq(line: &str) -> String {
    let mut parts = line.split("\"seq\":");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("\"seq\":<n>");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}

fn words(line: &str, out: &mut String) {
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|c| part_of_word(c) != part_of_word(first))
            .unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        let shown = if part_of_word(first) {
            value(word)
        } else {
            word.to_owned()
        };
        out.push_str(&shown);
        rest = tail;
    }
}

/// A word of the output, or the name of its kind.
fn value(word: &str) -> String {
    let (word, after) = match word.strip_suffix(['.', ':']) {
        Some(short) => (short, &word[short.len()..]),
        None => (word, ""),
    };
    let fixed = if is_uuid(word) {
        "<uuid>"
    } else if word.len() == 24 && word.ends_with('Z') && word.as_bytes()[10] == b'T' {
        "<time>"
    } else if word.len() == 48 && word.starts_with("acpg_") {
        "<key>"
    } else if [12, 64].contains(&word.len()) && is_hex(word) {
        "<hex>"
    } else if let Some(port) = word.strip_prefix("127.0.0.1:") {
        if port.parse::<u16>().is_ok() {
            "127.0.0.1:<port>"
        } else {
            word
        }
    } else if let Some((name, _)) = word.split_once(".before-") {
        return format!("{name}.before-<id>{after}");
    } else if is_event_id(word) {
        "<id>"
    } else {
        word
    };
    format!("{fixed}{after}")
}

fn is_uuid(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.into_iter().all(is_hex)
}

fn is_hex(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `<epoch>-<seq>` or `<epoch>-g<position>`. Epochs have six characters. Numbers differ too: an agent's first updates
/// arrive before or after the first prompt.
fn is_event_id(word: &str) -> bool {
    let Some((epoch, number)) = word.split_once('-') else {
        return false;
    };
    let digits = number.strip_prefix('g').unwrap_or(number);
    let counts = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let plain = epoch
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    counts && plain && epoch.len() == 6
}

/// Whether the output matches the documented one. A line `...` of the page matches any lines; `...` within a line
/// matches any text.
pub(super) fn matches(printed: &str, expected: &str) -> bool {
    let printed: Vec<&str> = printed.lines().collect();
    let expected: Vec<&str> = expected.lines().collect();
    lines(&printed, &expected)
}

fn lines(printed: &[&str], expected: &[&str]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((&"...", rest)) => (0..=printed.len()).any(|skip| lines(&printed[skip..], rest)),
        Some((line, rest)) => match printed.split_first() {
            Some((first, others)) => like(first, line) && lines(others, rest),
            None => false,
        },
    }
}

fn like(text: &str, pattern: &str) -> bool {
    let Some((head, tail)) = pattern.split_once("...") else {
        return text == pattern;
    };
    let Some(mut rest) = text.strip_prefix(head) else {
        return false;
    };
    let parts: Vec<&str> = tail.split("...").collect();
    let (last, middle) = parts.split_last().expect("a split has a part");
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn values_that_differ_for_each_run_are_equal() {
    let home = Path::new("/tmp/a");
    let text = "id: rtsknv-42\nretry: 1304\n{\"id\":\"0199b1de-6a07-7d00-8f4e-3f6f2f0c5b11\",\"t\":\"2026-11-21T22:15:03.123Z\"}\r\n\
                http://127.0.0.1:4711/#key=acpg_ZjM5bbRpvQuZa001UlfU-QChJnaATxZ5elw-fr2pLB8 /tmp/a/x log.sqlite.before-0199\n\
                rtsknv-g7 demo-1 utf-8 {\"seq\":42}";
    let expected = "id: <id>\nretry: <n>\n{\"id\":\"<uuid>\",\"t\":\"<time>\"}\n\
                    http://127.0.0.1:<port>/#key=<key> ~/x log.sqlite.before-<id>\n<id> demo-1 utf-8 {\"seq\":<n>}";
    assert_eq!(normal(text, home), expected);
}

#[test]
fn dots_stand_for_any_text() {
    assert!(
        matches("a\nb\nc", "a\n...\nc")
            && matches("a\nc", "a\n...\nc")
            && matches("a b c", "a ... c")
    );
    assert!(
        matches("a b c d", "... b ... d")
            && !matches("a\nb", "a")
            && !matches("", "a")
            && !matches("a", "")
    );
}
