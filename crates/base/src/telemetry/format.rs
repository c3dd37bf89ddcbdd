//! The two formats of log records: text for a terminal, JSON elsewhere.
//!
//! Values can contain text of agents and clients. Both formats remove control characters from them, so that a
//! value cannot begin another record or control the terminal of a reader.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{Format, Json, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::types::text::strip_controls;

/// The maximum size of one value in bytes. A longer value ends with `…`.
const VALUE_BYTES: usize = 8 << 10;

/// Removes control characters from a value, and truncates it.
fn plain_value(value: &str) -> Cow<'_, str> {
    match strip_controls(value) {
        value if value.len() <= VALUE_BYTES => value,
        value => {
            let kept = &value[..value.floor_char_boundary(VALUE_BYTES)];
            Cow::Owned(format!("{kept}…"))
        }
    }
}

/// Formats the fields of an event or span as text: `message name=value name="value"`.
pub(super) struct TextFields;

impl<'writer> FormatFields<'writer> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut record = TextRecord {
            writer,
            is_first: true,
            result: Ok(()),
        };
        fields.record(&mut record);
        record.result
    }
}

struct TextRecord<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    result: fmt::Result,
}

impl TextRecord<'_> {
    /// Writes a value that has no line breaks.
    fn write(&mut self, field: &Field, value: &str) {
        let is_first = std::mem::take(&mut self.is_first);
        let gap = if is_first { "" } else { " " };
        let (name, equals) = match field.name() {
            "message" => ("", ""),
            name => (name, "="),
        };
        if self.result.is_ok() {
            self.result = write!(self.writer, "{gap}{name}{equals}{value}");
        }
    }
}

impl Visit for TextRecord<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        // `Debug` quotes the value and escapes line breaks.
        self.write(field, &format!("{:?}", plain_value(value)));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        let text = plain_value(&text).replace('\n', "\\n").replace('\t', "\\t");
        self.write(field, &text);
    }
}

/// Formats an event as one JSON object.
pub(super) struct JsonRecords(pub(super) Format<Json>);

impl<S, N> FormatEvent<S, N> for JsonRecords
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut record = String::new();
        let full = Writer::new(&mut record);
        self.0.format_event(context, full, event)?;
        write_plain_strings(&mut writer, &record)
    }
}

/// Writes a JSON text, with control characters removed from its strings.
fn write_plain_strings(writer: &mut Writer<'_>, json: &str) -> fmt::Result {
    let mut rest = json;
    while let Some(start) = rest.find('"') {
        writer.write_str(&rest[..start])?;
        rest = &rest[start..];
        let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let Some(Ok(value)) = strings.next() else {
            return Err(fmt::Error);
        };
        rest = &rest[strings.byte_offset()..];
        let plain = serde_json::to_string(&plain_value(&value)).map_err(|_| fmt::Error)?;
        writer.write_str(&plain)?;
    }
    writer.write_str(rest)
}

#[cfg(test)]
mod tests;
