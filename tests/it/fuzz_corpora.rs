//! Replays the corpora of the fuzzers: `fuzz/corpus/` contains inputs for the targets in `fuzz/src/`, and
//! `scripts/fuzz` finds new ones.

use std::path::PathBuf;

use proptest::prelude::*;

use self::targets::TARGETS;
use crate::support::places::project;

#[expect(unreachable_pub, reason = "for the fuzzer it is a crate of its own")]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

/// Runs a target over everything that is saved for it, and names the input that it fails on.
fn replay(target: &str) {
    let (name, body) = TARGETS
        .iter()
        .find(|(name, _)| *name == target)
        .expect("there is such a target");
    let folder = project().join("fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).expect("the folder of saved inputs");
    let saved: Vec<PathBuf> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    assert!(
        saved.len() > 20,
        "{}: only {} inputs",
        folder.display(),
        saved.len()
    );
    for path in saved {
        let input = std::fs::read(&path).expect("an input can be read");
        assert!(
            std::panic::catch_unwind(|| body(&input)).is_ok(),
            "{name} fails on {}",
            path.display()
        );
    }
}

#[test]
fn fuzz_target_framer_passes_for_saved_inputs() {
    replay("framer");
}

#[test]
fn fuzz_target_envelope_passes_for_saved_inputs() {
    replay("envelope");
}

#[test]
fn fuzz_target_sse_passes_for_saved_inputs() {
    replay("sse");
}

#[test]
fn fuzz_target_ids_passes_for_saved_inputs() {
    replay("ids");
}

#[test]
fn fuzz_target_cursors_passes_for_saved_inputs() {
    replay("cursors");
}

#[test]
fn fuzz_target_paths_passes_for_saved_inputs() {
    replay("paths");
}

#[test]
fn fuzz_target_pack_passes_for_saved_inputs() {
    replay("pack");
}

/// Every folder has a target and every target a folder, so that the tests replay every saved input.
#[test]
fn every_fuzz_target_has_saved_inputs_and_no_other_folder_exists() {
    let folder = project().join("fuzz/corpus");
    let mut saved: Vec<String> = std::fs::read_dir(&folder)
        .expect("the folder of saved inputs")
        .map(|entry| {
            entry
                .expect("it can be listed")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    saved.sort();
    let mut targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    targets.sort_unstable();
    assert_eq!(saved, targets);
}

/// Inputs of pieces that mean something to a target, in any order.
fn pieces(head: usize, words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        6 => prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..4),
        2 => Just(vec![0xff]),
    ];
    (
        prop::collection::vec(any::<u8>(), head),
        prop::collection::vec(word, 0..24),
    )
        .prop_map(|(head, words)| [head, words.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_are_the_same_however_they_are_cut(input in pieces(6, &["\n", "\r", "\r\n", "{}", "{\"method\":\"m\"}", "é", "x"])) {
        targets::framer(&input);
    }

    #[test]
    fn messages_are_classified_by_their_bytes(input in pieces(0, &[
        "{", "}", "[", "]", ",", ":", " ", "\n", "\"id\"", "\"method\"", "\"params\"", "\"result\"", "\"error\"", "1", "null",
        "\"sessionId\"", "\"session\\u0049d\"", "\"update\"", "\"sessionUpdate\"", "\"\\ud800\"", "1e400", "{\"id\":1,\"method\":\"m\",\"params\":{",
        "\"sessionId\":\"s\"", "}}", "\"a\":1",
    ])) {
        targets::envelope(&input);
    }

    #[test]
    fn event_source_parses_framed_events(input in pieces(22, &[
        "{", "}", "\"a\":", "[1,\n2]", "\r", "\n", "\n\n", "data: x", "id: 9", ":", "retry: 1", "\u{feff}", "\u{2028}", "\"\\u0000\"", "\0",
        "{\"a\":\r\n1}", "é☃",
    ])) {
        targets::sse(&input);
    }

    #[test]
    fn ids_have_one_spelling(input in pieces(0, &[
        "k3", "-", "-g", "0", "1", "42", "18446744073709551615", "4294967295", "p", "r", "t", "01938c5e", "7a3b", "0123456789ab", "A", "_", "٣",
    ])) {
        targets::ids(&input);
    }

    #[test]
    fn cursors_ranges_and_tags_are_read_as_the_standards_say(input in pieces(2, &[
        "after=", "types=", "limit=", "named=", "follow=", "ticket=", "&", "k3-7", "k3-g7", "tail", "j1-9", "true", "false", "500", "%2B", "%6b",
        "\u{0}", "\u{1}", "\u{2}", "\u{3}", "\u{4}", "\u{5}", "\u{6}", "\u{7}", "bytes=", "0-3", "-5", "5-", "99999999999999999999", "\"a\"", "W/",
        ", ", "*", "wait=5", "text/event-stream", ";q=0.5", ";q=99",
    ])) {
        targets::cursors(&input);
    }
}

#[test]
fn the_parser_of_event_streams_is_the_standards() {
    use targets::whatwg::{Event, Parser};
    let event = |kind: &str, data: &str, id: &str| Event {
        kind: kind.into(),
        data: data.into(),
        id: id.into(),
    };
    for (stream, expected) in [
        ("data: a\ndata: b\n\n", vec![event("message", "a\nb", "")]),
        (
            ": c\n\ndata: 1\nid: 1\n\ndata:2\nid\n\ndata:  3\n\n",
            vec![
                event("message", "1", "1"),
                event("message", "2", ""),
                event("message", " 3", ""),
            ],
        ),
        (
            "data\n\ndata\ndata\n\ndata:",
            vec![event("message", "", ""), event("message", "\n", "")],
        ),
        (
            "data:test\n\ndata: test\n\n",
            vec![event("message", "test", ""), event("message", "test", "")],
        ),
        (
            "\u{feff}data: x\r\revent: e\rdata: y\r\n\r\n",
            vec![event("message", "x", ""), event("e", "y", "")],
        ),
        (
            "id: 7\n\ndata: x\n\nid: 8\0\ndata: y\n\n",
            vec![event("message", "x", "7"), event("message", "y", "7")],
        ),
        (
            "event: gone\n\ndata: x\nnonsense: 1\nDATA: 2\n\n",
            vec![event("message", "x", "")],
        ),
        (
            " data: x\n\ndata: \u{feff}y\n\n",
            vec![event("message", "\u{feff}y", "")],
        ),
    ] {
        for size in 1..=stream.len() {
            let mut parser = Parser::default();
            let events: Vec<Event> = stream
                .as_bytes()
                .chunks(size)
                .flat_map(|chunk| parser.push(chunk))
                .collect();
            assert_eq!(events, expected, "{stream:?} by {size}");
        }
    }
    let mut parser = Parser::default();
    parser.push(b"retry: 5x\nretry: \nretry: 10\nretry: +7\n:a\n:\n");
    assert_eq!(
        (parser.retry, parser.comments, parser.last_event_id.as_str()),
        (Some(10), 2, "")
    );
}
