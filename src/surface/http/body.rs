//! The body of a request with JSON: its media type, its size limit, its memory and its deadline.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::BodyExt;
use memmap2::{MmapMut, MmapOptions};
use tokio::time::{Instant, timeout, timeout_at};

use crate::server::{BodyCharge, BodyMemoryFull};

const CODING_CHARS: usize = 64;

/// A body up to this size is in memory of the allocator.
const MAX_SMALL_BYTES: usize = 64 << 10;
/// The limits for discarding a rejected body: its bytes, the total time, and the time without a byte.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
const DISCARD_SILENCE: Duration = Duration::from_millis(500);

/// Why a body could not be read. Each surface renders it in its own format.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum BodyError {
    /// The gateway decodes no coding, because a small body could become a large one.
    #[error(
        "the body has the coding {0:?}, which the gateway does not decode: send it without Content-Encoding"
    )]
    Encoded(String),
    #[error("the body is larger than {}", .0)]
    TooLarge(BodyLimit),
    #[error(transparent)]
    Memory(#[from] BodyMemoryFull),
    #[error("the body is incomplete")]
    Incomplete,
    /// The rest of the body is not read, so the connection closes after the response.
    #[error("the body did not arrive in time")]
    TimedOut,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimit {
    bytes: usize,
    /// The configuration key that sets it. `None`: a constant.
    key: Option<&'static str>,
}

impl BodyLimit {
    pub(crate) const fn of_key(bytes: usize, key: &'static str) -> Self {
        let key = Some(key);
        Self { bytes, key }
    }

    pub(crate) const fn fixed(bytes: usize) -> Self {
        Self { bytes, key: None }
    }

    /// The smaller of this limit and the memory of one user. A larger body could never be accepted.
    fn within(self, charge: Option<&Arc<BodyCharge>>) -> Self {
        let most = charge.map_or(usize::MAX, |charge| charge.max());
        if self.bytes <= most {
            self
        } else {
            Self::of_key(most, "a quarter of server.max_body_memory_bytes")
        }
    }
}

impl fmt::Display for BodyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)?;
        self.key.map_or(Ok(()), |key| write!(f, " ({key})"))
    }
}

pub(crate) fn check_coding(headers: &HeaderMap) -> Result<(), BodyError> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let encoded = codings.find(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    let Some(coding) = encoded else { return Ok(()) };
    let coding = String::from_utf8_lossy(coding.as_bytes());
    let shown = coding.chars().take(CODING_CHARS).collect();
    Err(BodyError::Encoded(shown))
}

/// A header value of ids, names and digits.
pub(crate) fn ascii(text: impl Into<String>) -> HeaderValue {
    HeaderValue::try_from(text.into()).expect("ids, names and digits are plain ASCII")
}

/// The values of all headers with this name that are plain text.
pub(crate) fn header_texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).iter();
    values.filter_map(|value| value.to_str().ok())
}

/// Whether a request has exactly one `Content-Type`, and it is one of `types` with any parameters.
pub(crate) fn has_media_type(headers: &HeaderMap, types: &[&str]) -> bool {
    let mut given = header_texts(headers, CONTENT_TYPE);
    let essence = given.next().and_then(|text| text.split(';').next());
    let essence = essence.map(str::trim).unwrap_or_default();
    given.next().is_none() && types.iter().any(|name| essence.eq_ignore_ascii_case(name))
}

pub(crate) struct ReceivedBody {
    bytes: Bytes,
    charge: Option<Arc<BodyCharge>>,
}

impl Deref for ReceivedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        if let Some(charge) = &self.charge {
            charge.release();
        }
    }
}

/// Reads a body within its limit before the deadline. The bytes are charged to the request as they arrive.
pub(crate) async fn read_body(
    parts: &Parts,
    mut body: Body,
    limit: BodyLimit,
    deadline: Duration,
) -> Result<ReceivedBody, BodyError> {
    check_coding(&parts.headers)?;
    let charge = parts.extensions.get::<Arc<BodyCharge>>();
    let limit = limit.within(charge);
    let declared = declared_bytes(&parts.headers);
    if declared.is_some_and(|declared| declared > limit.bytes as u64) {
        if !waits_for_continue(&parts.headers) {
            discard_rest(&mut body).await;
        }
        return Err(BodyError::TooLarge(limit));
    }
    let most = declared.and_then(|declared| usize::try_from(declared).ok());
    // A body is never longer than its declared length.
    let buffer = BodyBuffer::new(most.unwrap_or(limit.bytes));
    let read = timeout(deadline, receive(&mut body, buffer, limit, charge)).await;
    let read = read.unwrap_or(Err(BodyError::TimedOut));
    if let Err(BodyError::TooLarge(_) | BodyError::Memory(_)) = &read {
        // The buffer is dropped.
        if let Some(charge) = charge {
            charge.release();
        }
        discard_rest(&mut body).await;
    }
    Ok(ReceivedBody {
        bytes: read?,
        charge: charge.cloned(),
    })
}

/// Whether the client sends the body only after `100 Continue`, which follows the first read of the body.
pub(crate) fn waits_for_continue(headers: &HeaderMap) -> bool {
    headers.contains_key(EXPECT)
}

pub(crate) fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn receive(
    body: &mut Body,
    mut buffer: BodyBuffer,
    limit: BodyLimit,
    charge: Option<&Arc<BodyCharge>>,
) -> Result<Bytes, BodyError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Incomplete)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if data.len() > buffer.max - buffer.as_ref().len() {
            return Err(BodyError::TooLarge(limit));
        }
        if let Some(charge) = charge {
            charge.add(data.len())?;
        }
        buffer.extend(&data)?;
    }
    Ok(Bytes::from_owner(buffer))
}

/// Reads and discards the rest of a rejected body, for a limited time and number of bytes.
///
/// Many clients write the whole body before they read the response. If the connection closes earlier, they see a broken
/// connection instead of the response.
pub(crate) async fn discard_rest(body: &mut Body) {
    let end = Instant::now() + DISCARD_TIMEOUT;
    let mut discarded = 0;
    while discarded < MAX_DISCARDED_BYTES {
        let next = timeout(DISCARD_SILENCE, body.frame());
        let Ok(Ok(Some(Ok(frame)))) = timeout_at(end, next).await else {
            return;
        };
        discarded += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// The bytes of a body. A large body has pages of its own, because the allocator keeps freed pages: the kernel gets them
/// back when the body is dropped, and adds them only as bytes arrive.
struct BodyBuffer {
    small: Vec<u8>,
    pages: Option<MmapMut>,
    bytes: usize,
    max: usize,
}

impl BodyBuffer {
    fn new(max: usize) -> Self {
        Self {
            small: Vec::new(),
            pages: None,
            bytes: 0,
            max,
        }
    }

    fn extend(&mut self, data: &[u8]) -> Result<(), BodyMemoryFull> {
        let next = self.bytes + data.len();
        if self.pages.is_none() && next > MAX_SMALL_BYTES {
            let mut options = MmapOptions::new();
            let pages = options.len(self.max).no_reserve_swap().map_anon();
            let mut pages = pages.map_err(|_| BodyMemoryFull::Total)?;
            pages[..self.bytes].copy_from_slice(&self.small);
            self.small = Vec::new();
            self.pages = Some(pages);
        }
        match &mut self.pages {
            Some(pages) => pages[self.bytes..next].copy_from_slice(data),
            None => self.small.extend_from_slice(data),
        }
        self.bytes = next;
        Ok(())
    }
}

impl AsRef<[u8]> for BodyBuffer {
    fn as_ref(&self) -> &[u8] {
        match &self.pages {
            Some(pages) => &pages[..self.bytes],
            None => &self.small,
        }
    }
}
