//! Decodes Server-Sent Events (WHATWG HTML, Server-sent events).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

/// An event, with its position in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub data: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {0} bytes")]
pub struct EventTooLarge(pub usize);

#[derive(Debug)]
pub struct Decoder {
    max_event_bytes: usize,
    buffer: BytesMut,
    /// The number of bytes at the start of `buffer` without a line end.
    scanned: usize,
    id: Option<String>,
    data: Option<BytesMut>,
    has_comments: bool,
}

impl Decoder {
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            buffer: BytesMut::new(),
            scanned: 0,
            id: None,
            data: None,
            has_comments: false,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        self.buffer.extend_from_slice(bytes);
        let size = self.buffer.len() + self.data.as_ref().map_or(0, BytesMut::len);
        if size > self.max_event_bytes {
            Err(EventTooLarge(self.max_event_bytes))
        } else {
            Ok(())
        }
    }

    /// Whether the stream has had a comment. Servers send comments as keep-alives.
    pub fn has_comments(&self) -> bool {
        self.has_comments
    }

    /// The next complete event. Comments and events without data are skipped.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) else {
                self.scanned = self.buffer.len();
                return None;
            };
            let mut line = self.buffer.split_to(self.scanned + end + 1);
            self.scanned = 0;
            line.truncate(line.len() - 1);
            if line.ends_with(b"\r") {
                line.truncate(line.len() - 1);
            }
            if line.is_empty() {
                let id = self.id.take();
                if let Some(data) = self.data.take() {
                    return Some(Event {
                        id,
                        data: data.freeze(),
                    });
                }
            } else {
                self.field(line);
            }
        }
    }

    fn field(&mut self, mut line: BytesMut) {
        let colon = memchr::memchr(b':', &line).unwrap_or(line.len());
        let name = line.split_to(colon);
        let skip = if line.starts_with(b": ") {
            2
        } else {
            line.len().min(1)
        };
        let value = line.split_off(skip);
        match &name[..] {
            b"id" => self.id = String::from_utf8(value.to_vec()).ok(),
            b"data" => match &mut self.data {
                // A line break can only be between two tokens of a JSON text, so a blank has the same meaning.
                Some(data) => {
                    data.extend_from_slice(b" ");
                    data.extend_from_slice(&value);
                }
                None => self.data = Some(value),
            },
            b"" => self.has_comments = true,
            _ => {}
        }
    }
}

/// The time after which a stream without a byte has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SilenceTimeout {
    /// The server sends comments as keep-alives.
    Always(Duration),
    /// The server may send none. The timeout applies after its first comment.
    AfterKeepAlive(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamEnd {
    #[error("the server has ended a stream")]
    Closed,
    #[error("a stream was silent for {} seconds", .0.as_secs())]
    Silent(Duration),
    #[error("a stream was lost: {0}")]
    Lost(String),
    #[error(transparent)]
    TooLarge(#[from] EventTooLarge),
}

#[derive(Debug)]
pub struct EventStream {
    body: Incoming,
    decoder: Decoder,
    silence: SilenceTimeout,
}

impl EventStream {
    pub fn new(body: Incoming, max_event_bytes: usize, silence: SilenceTimeout) -> Self {
        Self {
            body,
            decoder: Decoder::new(max_event_bytes),
            silence,
        }
    }

    /// The next event. Cancellation loses no event.
    pub async fn next(&mut self) -> Result<Event, StreamEnd> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                return Ok(event);
            }
            let limit = match self.silence {
                SilenceTimeout::Always(limit) => Some(limit),
                SilenceTimeout::AfterKeepAlive(limit) => {
                    self.decoder.has_comments().then_some(limit)
                }
            };
            let frame = match limit {
                Some(limit) => timeout(limit, self.body.frame())
                    .await
                    .map_err(|_| StreamEnd::Silent(limit))?,
                None => self.body.frame().await,
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.decoder.push(&bytes)?;
                    }
                }
                Some(Err(error)) => return Err(StreamEnd::Lost(error.to_string())),
                None => return Err(StreamEnd::Closed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Vec<(Option<String>, String)> {
        let mut decoder = Decoder::new(1 << 10);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk).unwrap();
            while let Some(Event { id, data }) = decoder.next_event() {
                events.push((id, String::from_utf8(data.to_vec()).unwrap()));
            }
        }
        events
    }

    const STREAM: &[u8] = b":\nid: k-1.1/c.0\ndata: {\"a\":1}\n\n:\r\n\r\nevent: x\r\ndata:{\r\ndata: }\r\n\r\nid: 7\n\ndata: 3\n\nid: 8\ndata: cut";

    fn expected() -> Vec<(Option<String>, String)> {
        vec![
            (Some("k-1.1/c.0".to_owned()), "{\"a\":1}".to_owned()),
            (None, "{ }".to_owned()),
            (None, "3".to_owned()),
        ]
    }

    #[test]
    fn event_above_the_limit_is_rejected() {
        let mut decoder = Decoder::new(8);
        assert_eq!(decoder.push(b"data: 12"), Ok(()));
        assert_eq!(decoder.push(b"3"), Err(EventTooLarge(8)));
    }

    #[test]
    fn comments_are_noticed() {
        let mut decoder = Decoder::new(64);
        decoder.push(b"data: :\n\n").unwrap();
        assert!(decoder.next_event().is_some() && !decoder.has_comments());
        decoder.push(b": keep-alive\n\n").unwrap();
        assert!(decoder.next_event().is_none() && decoder.has_comments());
    }

    proptest! {
        #[test]
        fn any_chunking_yields_the_same_events(cuts in prop::collection::vec(1usize..9, 1..40)) {
            let mut chunks = Vec::new();
            let mut rest = STREAM;
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            prop_assert_eq!(decode(&chunks), expected());
        }
    }
}
