//! A reader of Server-Sent Events that checks its input.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio::time::timeout;

use super::wait::LONGEST;

/// One frame.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) data: Value,
    /// The received data.
    pub(crate) text: Box<str>,
}

impl Event {
    /// The `type` of the event itself.
    pub(crate) fn of(&self, kind: &str) -> bool {
        self.data["type"] == kind
    }

    pub(crate) fn seq(&self) -> u64 {
        self.data["seq"]
            .as_u64()
            .expect("an event of the log has a seq")
    }
}

/// An open stream.
pub(crate) struct Events {
    response: reqwest::Response,
    buffer: Vec<u8>,
    /// Comments seen so far.
    pub(crate) comments: usize,
    pub(crate) retry: Option<u64>,
    /// The last frames, for the message of a test that fails.
    came: VecDeque<String>,
    /// The type of the last frame.
    last: String,
}

/// The types of frames after which a stream may be complete.
const LAST: [&str; 3] = ["end", "shutdown", "problem"];

/// The maximum silence. A stream without events sends comments.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of frames, and of characters of each, in a failure message.
const SHOWN: (usize, usize) = (20, 200);

impl Events {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            buffer: Vec::new(),
            comments: 0,
            retry: None,
            came: VecDeque::new(),
            last: String::new(),
        }
    }

    /// The next frame; None at the end of the stream, also when it broke.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let event = timeout(LONGEST, self.whenever()).await;
        event.unwrap_or_else(|_| panic!("no frame within {LONGEST:?}; {}", self.so_far()))
    }

    /// The same for a caller that waits as long as comments arrive.
    pub(crate) async fn whenever(&mut self) -> Option<Event> {
        loop {
            while self.buffer.starts_with(b":\n") {
                self.buffer.drain(..2);
                self.comments += 1;
            }
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Some(self.block(std::str::from_utf8(&block).expect("a stream is UTF-8")));
            }
            match self.chunk().await {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return None,
            }
        }
    }

    /// The next bytes; None at the end. A stream that was not cut ends with `end`, `shutdown` or `problem`.
    async fn chunk(&mut self) -> Option<Bytes> {
        let chunk = timeout(PATIENCE, self.response.chunk()).await;
        let chunk =
            chunk.unwrap_or_else(|_| panic!("not a byte within {PATIENCE:?}; {}", self.so_far()));
        let chunked = self.response.version() > reqwest::Version::HTTP_10;
        if let (Ok(None), true) = (&chunk, chunked) {
            assert!(
                self.buffer.is_empty(),
                "a torn frame: {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
            assert!(
                LAST.contains(&&*self.last),
                "the stream ends without an end; {}",
                self.so_far()
            );
        }
        chunk.ok().flatten()
    }

    fn so_far(&self) -> String {
        format!(
            "before it came {} comments and, the latest first, {:#?}",
            self.comments, self.came
        )
    }

    fn block(&mut self, block: &str) -> Event {
        let mut id = None;
        let mut kind = None;
        let mut text = None;
        for line in block.lines().filter(|line| !line.is_empty()) {
            match line.split_once(": ") {
                Some(("id", value)) => id = Some(value.to_owned()),
                Some(("event", value)) => kind = Some(value.to_owned()),
                Some(("data", value)) => text = Some(Box::from(value)),
                Some(("retry", value)) => {
                    self.retry = Some(value.parse().expect("retry is a number"));
                }
                _ if line.starts_with(':') => self.comments += 1,
                _ => panic!("not a line of a frame: {line:?}"),
            }
        }
        let text: Box<str> = text.unwrap_or_else(|| panic!("a block without data: {block:?}"));
        let (frames, characters) = SHOWN;
        self.came.truncate(frames - 1);
        self.came
            .push_front(text.chars().take(characters).collect());
        let data: Value = serde_json::from_str(&text).expect("data is JSON");
        data["type"]
            .as_str()
            .expect("a type")
            .clone_into(&mut self.last);
        Event {
            id,
            kind,
            data,
            text,
        }
    }

    /// Reads up to and with the first event of this type.
    pub(crate) async fn until(&mut self, kind: &str) -> Vec<Event> {
        self.up_to(kind, |event| event.of(kind)).await
    }

    /// Reads up to and including the first matching event, described by `what`.
    pub(crate) async fn up_to(&mut self, what: &str, fits: impl Fn(&Event) -> bool) -> Vec<Event> {
        let began = Instant::now();
        let mut events = Vec::new();
        loop {
            let next = self.next().await;
            let event =
                next.unwrap_or_else(|| panic!("the stream ended before {what}: {events:?}"));
            let last = fits(&event);
            events.push(event);
            if last {
                return events;
            }
            assert!(
                began.elapsed() < LONGEST,
                "not within {LONGEST:?}: {what}; {}",
                self.so_far()
            );
        }
    }

    /// Reads and discards bytes. Returns their number, 0 at the end.
    pub(crate) async fn bytes(&mut self) -> usize {
        LAST[0].clone_into(&mut self.last);
        let left = std::mem::take(&mut self.buffer).len();
        left + self.chunk().await.map_or(0, |chunk| chunk.len())
    }

    /// Reads to the end.
    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
