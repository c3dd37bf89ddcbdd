use std::io;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::Value;
use tracing::field::Empty;
use tracing::subscriber::with_default;

use super::Format;
use crate::telemetry::recent::RecentRecords;
use crate::telemetry::subscriber;
use crate::types::text::check_name;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failure(String);

/// Runs `emit` with a log in this format. Returns the log.
fn logged_by(format: Format, emit: impl FnOnce()) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = subscriber(
        "info",
        format,
        move || writer.clone(),
        RecentRecords::default(),
    )
    .unwrap();
    with_default(subscriber, emit);
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

/// Logs one event that has the value in each kind of field, and in its span.
fn logged(format: Format, value: &str) -> String {
    logged_by(format, || {
        let span = tracing::error_span!("request", id = value, shown = %value, late = Empty);
        span.record("late", value);
        let _request = span.entered();
        let failure = Failure(value.to_owned());
        tracing::error!(
            text = value,
            optional = Some(value),
            display = %value,
            debug = ?value,
            error = %failure,
            source = &failure as &dyn std::error::Error,
            number = 7,
            "failed: {value}"
        );
    })
}

const TARGET: &str = module_path!();
const COLORED: Format = Format::Text { colors: true };
const PLAIN: Format = Format::Text { colors: false };

/// The text without the colors that the format itself writes.
fn without_colors(text: &str) -> String {
    let mut plain = text.to_owned();
    for color in ["0", "1", "2", "3", "31", "32", "33", "34", "35"] {
        plain = plain.replace(&format!("\u{1b}[{color}m"), "");
    }
    plain
}

fn assert_one_record(value: &str) {
    let text = without_colors(&logged(COLORED, value));
    let line = text
        .strip_suffix('\n')
        .unwrap_or_else(|| panic!("{text:?}"));
    assert_eq!(check_name(line), Ok(()), "{text:?}");
    assert!(
        line.contains("number=7") && line.contains("debug=\""),
        "{text:?}"
    );

    let json = logged(Format::Json, value);
    let line = json
        .strip_suffix('\n')
        .unwrap_or_else(|| panic!("{json:?}"));
    assert_eq!(check_name(line), Ok(()), "{json:?}");
    let record: Value = serde_json::from_str(line).unwrap();
    for field in [
        "text", "optional", "display", "debug", "error", "source", "message", "id", "shown", "late",
    ] {
        let value = record[field]
            .as_str()
            .unwrap_or_else(|| panic!("{field}: {json:?}"));
        assert_eq!(
            check_name(&value.replace(['\n', '\t'], " ")),
            Ok(()),
            "{field}: {json:?}"
        );
    }
    assert_eq!(
        (&record["level"], &record["number"]),
        (&"ERROR".into(), &7.into()),
        "{json:?}"
    );
}

#[test]
fn value_cannot_add_a_record_or_move_the_cursor() {
    let hostile = "ok\n2026 ERROR \u{1b}[2Jforged \u{202e}txt.exe\u{2028}next \u{9b}31m tab\tü \"}\n{\"level\":\"INFO\"}\\";
    let text = logged(PLAIN, hostile);
    let escaped = r#"="ok\n2026 ERROR forged txt.exenext  tab\tü \"}\n{\"level\":\"INFO\"}\\""#;
    for field in ["text", "display", "id", "shown", "late"] {
        assert!(text.contains(&format!(" {field}{escaped}")), "{text}");
    }
    assert!(
        text.contains(r"failed: ok\n2026 ERROR forged txt.exenext  tab\tü "),
        "{text}"
    );
    let json: Value = serde_json::from_str(&logged(Format::Json, hostile)).unwrap();
    let plain = "ok\n2026 ERROR forged txt.exenext  tab\tü \"}\n{\"level\":\"INFO\"}\\";
    for field in ["text", "display", "id", "shown", "late"] {
        assert_eq!(json[field], plain, "{field}");
    }
    assert_one_record(hostile);
}

#[test]
fn long_value_is_truncated() {
    let json: Value = serde_json::from_str(&logged(Format::Json, &"é".repeat(100_000))).unwrap();
    assert_eq!(json["text"], format!("{}…", "é".repeat(4096)));
    let text = logged(PLAIN, &"x".repeat(100_000));
    assert!(text.len() < 11 * (8 << 10), "{}", text.len());
}

#[test]
fn record_contains_the_fields_of_its_spans_and_inner_ones_take_precedence() {
    let emit = || {
        let request = tracing::error_span!("request", request_id = "r.1", session = Empty);
        request.record("session", "first");
        request.record("session", "second");
        let _request = request.entered();
        let _turn = tracing::error_span!("prompt", session = "inner", prompt = "p1").entered();
        tracing::warn!(
            prompt = "p2",
            level = "not this one",
            ratio = 0.5,
            "a turn failed"
        );
        let bare = tracing::error_span!(parent: None, "agent", agent = "fake");
        tracing::error!(parent: &bare, "it ended");
    };
    let json = logged_by(Format::Json, emit);
    let records: Vec<_> = json
        .lines()
        .map(|line| line.split_once(",\"level\"").expect(line).1)
        .collect();
    assert_eq!(
        records,
        [
            &*format!(
                r#":"WARN","target":"{TARGET}","message":"a turn failed","prompt":"p2","ratio":0.5,"session":"inner","request_id":"r.1"}}"#
            ),
            &*format!(r#":"ERROR","target":"{TARGET}","message":"it ended","agent":"fake"}}"#),
        ],
    );
    let text = logged_by(PLAIN, emit);
    let lines: Vec<_> = text
        .lines()
        .map(|line| line.split_once(' ').expect(line).1)
        .collect();
    assert_eq!(
        lines,
        [
            &*format!(
                " WARN {TARGET}: a turn failed prompt=p2 level=\"not this one\" ratio=0.5 session=inner request_id=r.1"
            ),
            &*format!("ERROR {TARGET}: it ended agent=fake"),
        ],
    );
    assert!(logged_by(COLORED, emit).contains("\u{1b}[33m WARN\u{1b}[0m"));
}

proptest! {
    /// The log injection of the threat model (attack 17).
    #[test]
    fn log_injection(
        parts in prop::collection::vec(
            prop_oneof![
                any::<char>().prop_map(String::from),
                prop::sample::select(vec![
                    "\n", "\r\n", "\0", "\t", "\u{1b}[2J", "\u{1b}]0;x\u{7}", "\u{1b}", "\u{9b}", "\u{85}", "\u{2028}",
                    "\u{202e}", "\u{2067}", "\u{7f}", "\"", "\\", "\\n", "\\u001b[2J", "\"}\n{\"level\":\"INFO\"}", "={}",
                    "2026-11-23T10:21:07.123456Z ERROR acp_gateway: forged",
                ])
                .prop_map(str::to_owned),
            ],
            0..30,
        ),
    ) {
        assert_one_record(&parts.concat());
    }
}
