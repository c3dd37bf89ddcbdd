//! Limits the control frames that an HTTP/2 client sends. The limiter reads only the heads of frames, before
//! hyper parses the frames. It allocates nothing.
//!
//! Each frame that causes work without progress costs one token. Tokens return with time, with requests, and with
//! the bytes of bodies in both directions. The `WINDOW_UPDATE` and `PING` frames of clients that transfer data
//! therefore need no tokens of their own.
//!
//! hyper and h2 limit resets and `CONTINUATION` frames, but not `PRIORITY`, `SETTINGS`, `PING`, `WINDOW_UPDATE` and
//! unknown frames. The gateway sends no `GOAWAY` before the close: the limiter does not know whether hyper has written
//! a part of a frame.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use base::shutdown::lock_or_abort;

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;

/// The control frames that a client may send at once, and in a second.
const CONTROL_BURST: u32 = 1000;
const CONTROL_PER_SECOND: u32 = 100;
/// The streams that a client may reset at once, and in a second. A request does not return these tokens, because
/// a flood of resets opens one request for each reset.
const RESET_BURST: u32 = 500;
const RESETS_PER_SECOND: u32 = 50;
/// The tokens of a new request. Clients send a `PRIORITY` or a `WINDOW_UPDATE` with it.
const TOKENS_PER_REQUEST: usize = 2;
/// The bytes of a request body that return a token. Smaller `DATA` frames cost more than they carry.
const RECEIVED_BYTES_PER_TOKEN: usize = 128;
/// The written bytes that return a token. The acknowledgement of a `PING` has 17 bytes, so a flood of `PING` frames
/// costs more tokens than it returns.
const WRITTEN_BYTES_PER_TOKEN: usize = 32;
/// The `CONTINUATION` frames of one header block, and the encoded bytes of the block. h2 accepts fewer decoded bytes
/// (`MAX_H2_HEADER_BYTES`), and rejects a request within these bounds with 431.
const MAX_CONTINUATION_FRAMES: u32 = 8;
const MAX_HEADER_BLOCK_BYTES: usize = 128 << 10;

/// The limiter of one connection. It ignores connections that are not HTTP/2.
pub(super) struct FrameLimiter {
    position: Position,
    control: Tokens,
    resets: Tokens,
    last_stream: u32,
    block: HeaderBlock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Preface {
        matched: usize,
    },
    Head {
        bytes: [u8; HEAD_BYTES],
        filled: usize,
    },
    Payload {
        left: usize,
    },
    Http1,
}

#[derive(Default)]
struct HeaderBlock {
    continuations: u32,
    bytes: usize,
}

#[derive(Clone, Copy)]
struct FrameHead {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The client sent too many frames of one type. The connection must close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flood {
    kind: u8,
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 10] = [
            "DATA",
            "HEADERS",
            "PRIORITY",
            "RST_STREAM",
            "SETTINGS",
            "PUSH_PROMISE",
            "PING",
            "GOAWAY",
            "WINDOW_UPDATE",
            "CONTINUATION",
        ];
        f.write_str(NAMES.get(usize::from(self.kind)).unwrap_or(&"unknown"))
    }
}

impl FrameLimiter {
    pub(super) fn new() -> Self {
        Self {
            position: Position::Preface { matched: 0 },
            control: Tokens::new(CONTROL_BURST, CONTROL_PER_SECOND),
            resets: Tokens::new(RESET_BURST, RESETS_PER_SECOND),
            last_stream: 0,
            block: HeaderBlock::default(),
        }
    }

    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        if self.position == Position::Http1 {
            return Ok(());
        }
        while !bytes.is_empty() {
            self.position = match self.position {
                Position::Http1 => return Ok(()),
                Position::Preface { matched } => {
                    let part = bytes.len().min(PREFACE.len() - matched);
                    let is_preface = bytes[..part] == PREFACE[matched..matched + part];
                    bytes = &bytes[part..];
                    match matched + part {
                        _ if !is_preface => Position::Http1,
                        24 => Position::START_OF_FRAME,
                        matched => Position::Preface { matched },
                    }
                }
                Position::Head {
                    bytes: mut head,
                    filled,
                } => {
                    let part = bytes.len().min(HEAD_BYTES - filled);
                    head[filled..filled + part].copy_from_slice(&bytes[..part]);
                    bytes = &bytes[part..];
                    if filled + part < HEAD_BYTES {
                        Position::Head {
                            bytes: head,
                            filled: filled + part,
                        }
                    } else {
                        let head = FrameHead::parse(head);
                        self.count(head)?;
                        Position::payload(head.length)
                    }
                }
                Position::Payload { left } => {
                    let part = bytes.len().min(left);
                    bytes = &bytes[part..];
                    Position::payload(left - part)
                }
            };
        }
        Ok(())
    }

    pub(super) fn written(&mut self, bytes: usize) {
        self.control.add(bytes / WRITTEN_BYTES_PER_TOKEN);
    }

    fn count(&mut self, frame: FrameHead) -> Result<(), Flood> {
        let length = frame.length;
        let kind = frame.kind;
        let within_limit = match kind {
            HEADERS => {
                self.block = HeaderBlock {
                    continuations: 0,
                    bytes: length,
                };
                if frame.stream > self.last_stream {
                    self.last_stream = frame.stream;
                    self.control.add(TOKENS_PER_REQUEST);
                    true
                } else {
                    self.control.spend()
                }
            }
            CONTINUATION => {
                self.block.continuation(length)
                    && (frame.flags & END_HEADERS == 0 || self.control.spend())
            }
            RST_STREAM => self.resets.spend(),
            DATA => {
                self.control.add(length / RECEIVED_BYTES_PER_TOKEN);
                self.control.spend()
            }
            _ => self.control.spend(),
        };
        if within_limit {
            Ok(())
        } else {
            Err(Flood { kind })
        }
    }
}

impl Position {
    const START_OF_FRAME: Self = Self::Head {
        bytes: [0; HEAD_BYTES],
        filled: 0,
    };

    fn payload(left: usize) -> Self {
        if left == 0 {
            Self::START_OF_FRAME
        } else {
            Self::Payload { left }
        }
    }
}

impl HeaderBlock {
    /// Returns false if the block exceeds its limits.
    fn continuation(&mut self, length: usize) -> bool {
        self.continuations += 1;
        self.bytes += length;
        self.continuations <= MAX_CONTINUATION_FRAMES && self.bytes <= MAX_HEADER_BLOCK_BYTES
    }
}

impl FrameHead {
    fn parse(head: [u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        // The highest bit is reserved.
        let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
        Self {
            length,
            kind,
            flags,
            stream,
        }
    }
}

/// A bucket of tokens. It reads the clock only when it is empty, so that ordinary clients cause no cost.
struct Tokens {
    left: u32,
    burst: u32,
    per_second: u32,
    refilled_at: Instant,
}

impl Tokens {
    fn new(burst: u32, per_second: u32) -> Self {
        Self {
            left: burst,
            burst,
            per_second,
            refilled_at: Instant::now(),
        }
    }

    fn add(&mut self, tokens: usize) {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(tokens).min(self.burst);
    }

    /// Returns false if no token is left.
    fn spend(&mut self) -> bool {
        if self.left == 0 {
            let now = Instant::now();
            let elapsed = now.saturating_duration_since(self.refilled_at);
            let tokens = elapsed.as_millis() * u128::from(self.per_second) / 1000;
            self.add(usize::try_from(tokens).unwrap_or(usize::MAX));
            if self.left == 0 {
                return false;
            }
            self.refilled_at = now;
        }
        self.left -= 1;
        true
    }
}

const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
pub(super) struct FloodLog(Arc<Mutex<Recent>>);

#[derive(Default)]
struct Recent {
    last_line: Option<Instant>,
    /// The floods since the last line.
    suppressed: u64,
}

impl FloodLog {
    pub(super) fn report(&self, peer: SocketAddr, flood: Flood) {
        if let Some(suppressed) = self.next_line(Instant::now()) {
            tracing::warn!(
                %peer,
                frame = %flood,
                suppressed,
                "closed an HTTP/2 connection: the client sent too many frames that make no progress"
            );
        }
    }

    fn next_line(&self, now: Instant) -> Option<u64> {
        let mut recent = lock_or_abort(self.0.lock());
        if recent.last_line.is_some_and(|last| now < last + INTERVAL) {
            recent.suppressed += 1;
            return None;
        }
        recent.last_line = Some(now);
        Some(std::mem::take(&mut recent.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
        let mut bytes = u32::try_from(payload).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.resize(HEAD_BYTES + payload, 0xff);
        bytes
    }

    fn http2() -> FrameLimiter {
        let mut limiter = FrameLimiter::new();
        limiter.read(PREFACE).unwrap();
        assert_eq!(limiter.position, Position::START_OF_FRAME);
        limiter
    }

    /// The number of these frames until the limiter rejects one, at most 10,000.
    fn accepted(limiter: &mut FrameLimiter, frame: impl Fn(u32) -> Vec<u8>) -> u32 {
        (0..10_000)
            .find(|index| limiter.read(&frame(*index)).is_err())
            .unwrap_or(10_000)
    }

    #[tokio::test(start_paused = true)]
    async fn frames_without_progress_are_limited() {
        for (kind, payload) in [
            (2, 5),
            (4, 0),
            (4, 6),
            (6, 8),
            (7, 8),
            (8, 4),
            (0xbe, 3),
            (DATA, 0),
            (DATA, 1),
        ] {
            let frames = accepted(&mut http2(), |_| frame(kind, 0, 1, payload));
            assert_eq!(frames, CONTROL_BURST, "{kind} with {payload} bytes");
        }
        let headers = accepted(&mut http2(), |_| frame(HEADERS, END_HEADERS, 1, 20));
        assert_eq!(
            headers,
            CONTROL_BURST + 1,
            "only the first frame opens a request"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn requests_do_not_pay_for_resets() {
        let mut limiter = http2();
        let pair = |index| {
            [
                frame(HEADERS, 5, index * 2 + 1, 20),
                frame(RST_STREAM, 0, index * 2 + 1, 4),
            ]
            .concat()
        };
        assert_eq!(accepted(&mut limiter, pair), RESET_BURST);
        assert_eq!(Flood { kind: RST_STREAM }.to_string(), "RST_STREAM");
    }

    #[tokio::test(start_paused = true)]
    async fn header_block_is_limited_in_frames_and_bytes() {
        let mut limiter = http2();
        limiter.read(&frame(HEADERS, 0, 1, 10)).unwrap();
        assert_eq!(
            accepted(&mut limiter, |_| frame(CONTINUATION, 0, 1, 0)),
            MAX_CONTINUATION_FRAMES
        );
        let mut limiter = http2();
        limiter.read(&frame(HEADERS, 0, 1, 10)).unwrap();
        assert_eq!(
            accepted(&mut limiter, |_| frame(CONTINUATION, 0, 1, 40_000)),
            3
        );
        // Each complete block starts again.
        let mut limiter = http2();
        let block = |index| {
            [
                frame(HEADERS, 0, index * 2 + 1, 10),
                frame(CONTINUATION, END_HEADERS, 1, 10),
            ]
            .concat()
        };
        assert_eq!(accepted(&mut limiter, block), 10_000);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_return_with_time_requests_and_bytes() {
        let ping = |_| frame(6, 0, 0, 8);
        let mut limiter = http2();
        assert_eq!(accepted(&mut limiter, ping), CONTROL_BURST);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(accepted(&mut limiter, ping), 2 * CONTROL_PER_SECOND);
        limiter.read(&frame(HEADERS, 5, 1, 20)).unwrap();
        assert_eq!(accepted(&mut limiter, ping), 2);
        limiter.read(&frame(DATA, 0, 1, 1280)).unwrap();
        assert_eq!(
            accepted(&mut limiter, ping),
            9,
            "the frame itself costs a token"
        );
        limiter.written(320);
        assert_eq!(accepted(&mut limiter, ping), 10);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(
            accepted(&mut limiter, ping),
            CONTROL_BURST,
            "the bucket has a limit"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn reader_of_small_events_may_update_two_windows_for_each() {
        let mut limiter = http2();
        for _ in 0..10_000 {
            limiter.written(120);
            limiter
                .read(&[frame(8, 0, 0, 4), frame(8, 0, 1, 4)].concat())
                .unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn any_split_of_the_bytes_counts_the_same() {
        let mut bytes = PREFACE.to_vec();
        for index in 0..20 {
            bytes.extend(frame(HEADERS, END_HEADERS, index * 2 + 1, 30));
            bytes.extend(frame(DATA, 0, index * 2 + 1, 300));
            bytes.extend(frame(6, 0, 0, 8));
        }
        for size in 1..60 {
            let mut limiter = FrameLimiter::new();
            for part in bytes.chunks(size) {
                limiter.read(part).unwrap();
            }
            assert_eq!(
                (limiter.position, limiter.last_stream),
                (Position::START_OF_FRAME, 39),
                "{size}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn http_1_is_ignored() {
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "PRI * HTTP/1.1\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r",
        ] {
            let mut limiter = FrameLimiter::new();
            limiter.read(head.as_bytes()).unwrap();
            assert_eq!(accepted(&mut limiter, |_| frame(6, 0, 0, 8)), 10_000);
            assert_eq!(limiter.position, Position::Http1);
        }
    }
}

#[cfg(test)]
mod flood_log_tests {
    use super::*;

    #[test]
    fn one_line_in_an_interval_counts_the_others() {
        let log = FloodLog::default();
        let now = Instant::now();
        assert_eq!(log.next_line(now), Some(0));
        assert_eq!(
            (log.next_line(now), log.next_line(now + INTERVAL / 2)),
            (None, None)
        );
        assert_eq!(log.next_line(now + INTERVAL), Some(2));
    }
}
