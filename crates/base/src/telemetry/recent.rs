//! The latest warnings and errors of the log, in memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::format::Fields;
use crate::shutdown::lock_or_abort;
use crate::types::{Ids, Timestamp};

/// The oldest record is dropped above one of these limits.
const MAX_RECORDS: usize = 200;
const MAX_BYTES: usize = 256 << 10;

/// A record of the level `warn` or `error`, with the same values as its line in the log.
#[derive(Debug, Clone)]
pub struct RecentRecord {
    pub time: Timestamp,
    pub level: &'static str,
    pub target: &'static str,
    pub message: String,
    pub fields: Vec<(&'static str, Value)>,
}

impl RecentRecord {
    /// The approximate size as JSON.
    fn bytes(&self) -> usize {
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| name.len() + value.to_string().len());
        self.target.len() + self.message.len() + fields.sum::<usize>()
    }
}

/// Keeps the latest records of the level `warn` and `error`. Its clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct RecentRecords(Arc<Mutex<Buffer>>);

#[derive(Debug, Default)]
struct Buffer {
    records: VecDeque<RecentRecord>,
    bytes: usize,
}

impl Buffer {
    fn push(&mut self, record: RecentRecord) {
        self.bytes += record.bytes();
        self.records.push_back(record);
        while self.records.len() > MAX_RECORDS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.records.pop_front() else {
                return;
            };
            self.bytes -= oldest.bytes();
        }
    }
}

impl RecentRecords {
    /// The records, the newest first.
    pub(super) fn newest_first(&self) -> Vec<RecentRecord> {
        let buffer = lock_or_abort(self.0.lock());
        buffer.records.iter().rev().cloned().collect()
    }
}

impl<S> Layer<S> for RecentRecords
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        // Levels are ordered by verbosity.
        if *metadata.level() > Level::WARN {
            return;
        }
        let mut fields = Fields::of(event, &context).0;
        let message = fields.iter().position(|(name, _)| *name == "message");
        let message = match message.map(|at| fields.remove(at).1) {
            Some(Value::String(message)) => message,
            _ => String::new(),
        };
        let record = RecentRecord {
            time: Ids::system().now(),
            level: metadata.level().as_str(),
            target: metadata.target(),
            message,
            fields,
        };
        lock_or_abort(self.0.lock()).push(record);
    }
}

#[cfg(test)]
mod tests {
    use tracing::subscriber::with_default;

    use super::*;
    use crate::telemetry::format::Format;
    use crate::telemetry::subscriber;

    fn recorded(filter: &str, emit: impl FnOnce()) -> RecentRecords {
        let recent = RecentRecords::default();
        let subscriber = subscriber(filter, Format::Json, std::io::sink, recent.clone()).unwrap();
        with_default(subscriber, emit);
        recent
    }

    #[test]
    fn warnings_and_errors_are_kept_with_the_fields_of_their_spans() {
        let kept = recorded("info", || {
            let _agent = tracing::error_span!("agent", agent = "fake").entered();
            tracing::info!("not kept");
            tracing::warn!(code = 3, "first\u{1b}[2J");
            tracing::error!(agent = "other", "second");
        });
        let kept: Vec<_> = kept
            .newest_first()
            .into_iter()
            .map(|record| (record.level, record.message, record.fields))
            .collect();
        assert_eq!(
            kept,
            [
                (
                    "ERROR",
                    "second".to_owned(),
                    vec![("agent", "other".into())]
                ),
                (
                    "WARN",
                    "first".to_owned(),
                    vec![("code", 3.into()), ("agent", "fake".into())]
                ),
            ]
        );
    }

    #[test]
    fn record_that_is_not_in_the_log_is_not_kept() {
        let kept = recorded("error", || {
            tracing::warn!("filtered");
            tracing::error!("kept");
        });
        let kept = kept.newest_first();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].message, "kept");
    }

    #[test]
    fn oldest_records_are_dropped_above_the_limits() {
        let many = recorded("info", || {
            for number in 0..MAX_RECORDS + 5 {
                tracing::warn!("{number}");
            }
        });
        let kept = many.newest_first();
        assert_eq!(kept.len(), MAX_RECORDS);
        assert_eq!(kept[0].message, (MAX_RECORDS + 4).to_string());

        let large = recorded("info", || {
            let text = "\"".repeat(4096);
            for number in 0..MAX_RECORDS {
                tracing::warn!(text, "{number}");
            }
        });
        let buffer = lock_or_abort(large.0.lock());
        assert!(buffer.bytes <= MAX_BYTES, "{}", buffer.bytes);
        assert_eq!(buffer.records.len(), MAX_BYTES / (2 * 4096) - 1);
        let sizes = buffer.records.iter().map(RecentRecord::bytes);
        assert_eq!(buffer.bytes, sizes.sum::<usize>());
    }
}
