//! An event stream parser by the HTML standard (section 9.2.6, Interpreting an event stream).

/// A dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: String,
    pub data: String,
    /// `lastEventId`: the last id in the stream, in this event or before it.
    pub id: String,
}

/// Parses a stream in pieces of any size.
#[derive(Debug, Default)]
pub struct Parser {
    /// The bytes of an unfinished line.
    line: Vec<u8>,
    /// The last byte was a CR, so a following LF belongs to the same line end.
    after_cr: bool,
    /// A line has ended, so a byte order mark is no longer at the start of the stream.
    begun: bool,
    data: String,
    kind: String,
    id_buffer: String,
    /// The id that an EventSource sends when it reconnects.
    pub last_event_id: String,
    /// In milliseconds.
    pub retry: Option<u64>,
    pub comments: usize,
}

impl Parser {
    /// Returns the events that these bytes complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for byte in bytes {
            let second_half =
                std::mem::replace(&mut self.after_cr, *byte == b'\r') && *byte == b'\n';
            match byte {
                b'\n' if second_half => {}
                b'\r' | b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    let line = String::from_utf8_lossy(&line).into_owned();
                    let first = !std::mem::replace(&mut self.begun, true);
                    let line = if first {
                        line.strip_prefix('\u{feff}').unwrap_or(&line)
                    } else {
                        &line
                    };
                    events.extend(self.line(line));
                }
                other => self.line.push(*other),
            }
        }
        events
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            return self.dispatch();
        }
        match line.split_once(':') {
            Some(("", _)) => self.comments += 1,
            Some((field, value)) => self.field(field, value.strip_prefix(' ').unwrap_or(value)),
            None => self.field(line, ""),
        }
        None
    }

    fn field(&mut self, field: &str, value: &str) {
        match field {
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.id_buffer),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok();
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        self.last_event_id.clone_from(&self.id_buffer);
        let mut data = std::mem::take(&mut self.data);
        let kind = std::mem::take(&mut self.kind);
        if data.is_empty() {
            return None;
        }
        data.pop();
        let kind = if kind.is_empty() {
            "message".to_owned()
        } else {
            kind
        };
        Some(Event {
            kind,
            data,
            id: self.last_event_id.clone(),
        })
    }
}
