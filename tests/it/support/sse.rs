//! A reader of Server-Sent Events that checks what it reads.

use std::time::Duration;

use serde_json::Value;

/// One frame.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) data: Value,
    /// The data as they came.
    pub(crate) text: Box<str>,
}

impl Event {
    /// The `type` of the event itself.
    pub(crate) fn of(&self, kind: &str) -> bool {
        self.data["type"] == kind
    }

    pub(crate) fn seq(&self) -> u64 {
        self.data["seq"].as_u64().expect("an event of the log has a seq")
    }
}

/// An open stream.
pub(crate) struct Events {
    response: reqwest::Response,
    buffer: Vec<u8>,
    /// Comments seen so far.
    pub(crate) comments: usize,
    pub(crate) retry: Option<u64>,
}

/// How long any next frame may take.
const PATIENCE: Duration = Duration::from_secs(30);

impl Events {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, buffer: Vec::new(), comments: 0, retry: None }
    }

    /// The next frame; None at the end of the stream, also when it broke.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = self.block(std::str::from_utf8(&block).expect("a stream is UTF-8")) {
                    return Some(event);
                }
                continue;
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk());
            match chunk.await.expect("something comes within half a minute") {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn block(&mut self, block: &str) -> Option<Event> {
        let (mut id, mut kind, mut text) = (None, None, None);
        for line in block.lines().filter(|line| !line.is_empty()) {
            match line.split_once(": ") {
                Some(("id", value)) => id = Some(value.to_owned()),
                Some(("event", value)) => kind = Some(value.to_owned()),
                Some(("data", value)) => text = Some(Box::from(value)),
                Some(("retry", value)) => self.retry = Some(value.parse().expect("retry is a number")),
                _ if line.starts_with(':') => self.comments += 1,
                _ => panic!("not a line of a frame: {line:?}"),
            }
        }
        let text: Box<str> = text?;
        let data = serde_json::from_str(&text).expect("data is JSON");
        Some(Event { id, kind, data, text })
    }

    /// Reads up to and with the first event of this type.
    pub(crate) async fn until(&mut self, kind: &str) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event =
                self.next().await.unwrap_or_else(|| panic!("the stream ended before {kind}: {events:?}"));
            let last = event.of(kind);
            events.push(event);
            if last {
                return events;
            }
        }
    }

    /// Takes what comes without looking at it; gives how many bytes that were, 0 at the end.
    pub(crate) async fn bytes(&mut self) -> usize {
        let left = std::mem::take(&mut self.buffer).len();
        let chunk = tokio::time::timeout(PATIENCE, self.response.chunk());
        match chunk.await.expect("something comes within half a minute") {
            Ok(Some(chunk)) => left + chunk.len(),
            Ok(None) | Err(_) => left,
        }
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
