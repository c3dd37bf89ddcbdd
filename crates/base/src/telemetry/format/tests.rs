use std::io;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::Value;
use tracing::subscriber::with_default;

use crate::telemetry::{Format, subscriber};
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

/// Logs one event that has the value in each kind of field, and in its span. Returns the log.
fn logged(format: Format, value: &str) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = subscriber("info", format, move || writer.clone()).unwrap();
    with_default(subscriber, || {
        let _request =
            tracing::error_span!("request", id = value, shown = %value, debug = ?value).entered();
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
    });
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

/// The colors that the terminal format itself writes.
fn without_colors(text: &str) -> String {
    let mut plain = text.to_owned();
    for color in ["0", "1", "2", "3", "31", "32", "33", "34", "35"] {
        plain = plain.replace(&format!("\u{1b}[{color}m"), "");
    }
    plain
}

fn assert_one_record(value: &str) {
    let text = without_colors(&logged(Format::Terminal, value));
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
        "text", "optional", "display", "debug", "error", "source", "message",
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
    assert_eq!(
        record["spans"].as_array().map(Vec::len),
        Some(1),
        "{json:?}"
    );
}

#[test]
fn value_cannot_add_a_record_or_move_the_cursor() {
    let hostile = "ok\n2026 ERROR \u{1b}[2Jforged \u{202e}txt.exe\u{2028}next \u{9b}31m tab\tü \"}\n{\"level\":\"INFO\"}\\";
    let text = logged(Format::Terminal, hostile);
    assert!(
        text.contains("display=ok\\n2026 ERROR forged txt.exenext  tab\\tü"),
        "{text}"
    );
    assert!(
        text.contains("text=\"ok\\n2026 ERROR forged txt.exenext  tab\\tü \\\"}\\n"),
        "{text}"
    );
    let json: Value = serde_json::from_str(&logged(Format::Json, hostile)).unwrap();
    let plain = "ok\n2026 ERROR forged txt.exenext  tab\tü \"}\n{\"level\":\"INFO\"}\\";
    assert_eq!(
        (&json["text"], &json["display"]),
        (&plain.into(), &plain.into())
    );
    assert_eq!(json["spans"][0]["id"], plain);
    assert_one_record(hostile);
}

#[test]
fn long_value_is_truncated() {
    let json: Value = serde_json::from_str(&logged(Format::Json, &"é".repeat(100_000))).unwrap();
    assert_eq!(json["text"], format!("{}…", "é".repeat(4096)));
    let text = logged(Format::Terminal, &"x".repeat(100_000));
    assert!(text.len() < 11 * (8 << 10), "{}", text.len());
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
