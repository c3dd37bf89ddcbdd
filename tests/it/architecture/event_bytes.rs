//! Only `event` knows the bytes of events. Other modules read events through `EventRef` and build them with its
//! builders.

use std::path::Path;

use super::tokens::{Kind, tokens, without_tests};

/// A line and its violation.
pub(crate) type Violation = (usize, String);

/// The modules that forward the bytes of an event without change.
const FORWARDERS: [&str; 3] = [
    "src/stream",
    "crates/sessions/src/session/export.rs",
    "crates/sessions/src/webhooks/delivery.rs",
];
/// Methods that return the bytes of an event.
const RAW: [&str; 2] = ["raw_json", "raw_frame"];
/// The methods of the bytes of a run that do not read them.
const UNREAD: [&str; 7] = [
    "capacity",
    "clone",
    "into",
    "is_empty",
    "len",
    "shrink_to_fit",
    "slice",
];
/// Text without quotes that begins a line of a frame or a member of a head.
const FORMAT: [&str; 7] = [
    "id: ",
    "event: ",
    "data: ",
    "{id:",
    ",seq:",
    ",sessionId:",
    ",time:",
];

/// A fast search for the same texts. Few files contain one, and only these are parsed.
fn may_violate(source: &str) -> bool {
    let unquoted = source.replace(['\\', '"'], "");
    let has_format = FORMAT.iter().any(|part| {
        if part.ends_with(' ') {
            source.contains(&format!("\"{part}"))
        } else {
            unquoted.contains(part)
        }
    });
    has_format || source.contains(".frames") || RAW.iter().any(|name| source.contains(name))
}

/// Every place in one file that reads or writes the bytes of an event. Tests may do both.
pub(crate) fn violations(file: &Path, source: &str) -> Vec<Violation> {
    let is_test =
        |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs" || part == "contract.rs";
    if file.starts_with("crates/events/src/event") || file.iter().any(is_test) {
        return Vec::new();
    }
    if !may_violate(source) {
        return Vec::new();
    }
    let forwards = FORWARDERS.iter().any(|folder| file.starts_with(folder));
    let tokens = without_tests(&tokens(source));
    let word = |at: usize| match tokens.get(at).map(|token| &token.kind) {
        Some(Kind::Word(word)) => word.as_str(),
        _ => "",
    };
    let is = |at: usize, punct: char| {
        tokens
            .get(at)
            .is_some_and(|token| token.kind == Kind::Punct(punct))
    };
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let broken = match &token.kind {
            Kind::Text(text)
                if FORMAT
                    .iter()
                    .any(|part| text.replace(['\\', '"'], "").starts_with(part)) =>
            {
                Some(format!(
                    "`{text}` belongs to the format of events, which only `event` writes"
                ))
            }
            Kind::Word(name) if RAW.contains(&name.as_str()) && !forwards => Some(format!(
                "only streams, exports and webhooks forward events with `{name}`"
            )),
            Kind::Word(name) if name == "frames" && at > 0 && is(at - 1, '.') => {
                let reads = is(at + 1, '[') || is(at + 1, '.') && !UNREAD.contains(&word(at + 2));
                reads.then(|| "only `event` reads the bytes of a run".to_owned())
            }
            _ => None,
        };
        found.extend(broken.map(|broken| (token.line, broken)));
    }
    found
}

#[cfg(test)]
fn judged(file: &str, source: &str) -> Vec<String> {
    violations(Path::new(file), source)
        .into_iter()
        .map(|(line, what)| format!("{line}: {what}"))
        .collect()
}

#[test]
fn reads_and_writes_of_event_bytes_are_found() {
    let source = "fn f(e: EventRef) { e.raw_json();\n run.frames[0]; run.frames.len(); \n run.frames.starts_with(b\"x\");\n\
        let line = \"data: {}\"; let head = b\"{\\\"id\\\":\"; }\n#[cfg(test)] mod tests { fn g() { e.raw_frame(); let id = \"id: \"; } }";
    assert_eq!(
        judged("crates/sessions/src/session/turn.rs", source),
        [
            "1: only streams, exports and webhooks forward events with `raw_json`",
            "2: only `event` reads the bytes of a run",
            "3: only `event` reads the bytes of a run",
            "4: `data: {}` belongs to the format of events, which only `event` writes",
            "4: `{\\\"id\\\":` belongs to the format of events, which only `event` writes",
        ]
    );
    assert_eq!(
        judged("src/stream/feed.rs", "fn f() { e.raw_json(); }"),
        Vec::<String>::new()
    );
    assert_eq!(
        judged("crates/events/src/event/frame.rs", source),
        Vec::<String>::new()
    );
    assert_eq!(
        judged("crates/log/src/store/tests.rs", source),
        Vec::<String>::new()
    );
}
