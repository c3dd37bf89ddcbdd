//! The two formats of log records: text for a terminal, JSON elsewhere.
//!
//! A record contains the fields of its event and of all spans around the event. If several contain the same field, the event
//! takes precedence, then the inner span. Values can contain text of agents and clients. Control characters are removed
//! from them, so that a value cannot begin another record or control the terminal of a reader.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

use serde::Serializer as _;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::types::text::strip_controls;

/// The maximum size of one value in bytes. A longer value ends with `…`.
const VALUE_BYTES: usize = 8 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// A line such as `time LEVEL target: message name=value name="a value"`.
    Text { colors: bool },
    /// One JSON object a line.
    Json,
}

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

/// Fields in their order, each name once.
#[derive(Default)]
pub(super) struct Fields(pub(super) Vec<(&'static str, Value)>);

impl Fields {
    /// The fields of an event and of its spans.
    pub(super) fn of<S>(event: &Event<'_>, context: &Context<'_, S>) -> Self
    where
        S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    {
        let mut fields = Self::default();
        event.record(&mut fields);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(outer) = span.extensions().get::<Self>() {
                fields.add_missing(outer);
            }
        }
        fields
    }

    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        let name = field.name();
        match self.0.iter_mut().find(|(set, _)| *set == name) {
            Some((_, previous)) => *previous = value.into(),
            None => self.0.push((name, value.into())),
        }
    }

    /// Adds the fields whose names are not set.
    fn add_missing(&mut self, outer: &Self) {
        for (name, value) in &outer.0 {
            if self.0.iter().all(|(set, _)| set != name) {
                self.0.push((name, value.clone()));
            }
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, plain_value(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, plain_value(&format!("{value:?}")));
    }
}

/// Writes each event as one line.
pub(super) struct Records<W> {
    pub(super) format: Format,
    pub(super) writer: W,
}

impl<S, W> Layer<S> for Records<W>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let fields = Fields::of(event, &context);
        let mut time = String::new();
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let metadata = event.metadata();
        let mut line = match self.format {
            Format::Text { colors } => text(&time, metadata, &fields, colors),
            Format::Json => json(&time, metadata, &fields),
        };
        line.push('\n');
        // A failed write to stderr (terminal closed, disk full) must not end the task that logs.
        let mut writer = self.writer.make_writer_for(metadata);
        let _ = writer.write_all(line.as_bytes());
    }
}

fn json(time: &str, metadata: &Metadata<'_>, fields: &Fields) -> String {
    let mut record = Fields(vec![
        ("timestamp", time.into()),
        ("level", metadata.level().as_str().into()),
        ("target", metadata.target().into()),
    ]);
    record.add_missing(fields);
    let mut json = Vec::new();
    let members = record.0.iter().map(|(name, value)| (name, value));
    let written = serde_json::Serializer::new(&mut json).collect_map(members);
    written.expect("a record has string keys and serializes");
    String::from_utf8(json).expect("JSON is UTF-8")
}

fn text(time: &str, metadata: &Metadata<'_>, fields: &Fields, colors: bool) -> String {
    const DIM: u8 = 2;
    let paint = |code: u8, text: &str| {
        if colors {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    };
    let color = match *metadata.level() {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    };
    let level = format!("{:>5}", metadata.level());
    let mut line = format!(
        "{} {} {}",
        paint(DIM, time),
        paint(color, &level),
        paint(DIM, &format!("{}:", metadata.target()))
    );
    for (name, value) in &fields.0 {
        line.push(' ');
        match value {
            Value::String(message) if *name == "message" => {
                line.push_str(&message.replace('\n', "\\n").replace('\t', "\\t"));
            }
            value => {
                line.push_str(&paint(DIM, &format!("{name}=")));
                line.push_str(&text_value(value));
            }
        }
    }
    line
}

/// A value in text. A string is quoted if its end would not be clear.
fn text_value(value: &Value) -> String {
    let is_unclear = |text: &str| {
        text.is_empty()
            || text.contains(|char: char| char.is_whitespace() || "\"=\\".contains(char))
    };
    match value {
        Value::String(text) if is_unclear(text) => format!("{text:?}"),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
