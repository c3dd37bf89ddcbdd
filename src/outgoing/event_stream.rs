//! The body of a response with Server-Sent Events.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::sse::{Decoder, Event, EventTooLarge};

/// The time after which a stream without a byte has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SilenceTimeout {
    /// The server sends comments as keep-alives.
    Always(Duration),
    /// The server may send none. The timeout applies after its first comment.
    AfterKeepAlive(Duration),
}

/// Why a stream ended.
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

/// Reads events.
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
