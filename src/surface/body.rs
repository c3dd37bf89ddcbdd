//! The body of a request with JSON: its media type, its size limit and its deadline.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// The length of a coding in an error.
const CODING_CHARS: usize = 64;

/// Why a body could not be read. Each surface renders it in its own format.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum BodyError {
    #[error(transparent)]
    Encoded(#[from] EncodedBody),
    #[error("the body is larger than {max} bytes")]
    TooLarge { max: usize },
    #[error("the body is incomplete")]
    Incomplete,
    /// The rest of the body is not read, so the connection closes after the response.
    #[error("the body did not arrive in time")]
    TimedOut,
}

/// A body with a content coding. The gateway decodes none, because a small body could become a large one.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "the body has the coding {coding:?}, which the gateway does not decode: send it without Content-Encoding"
)]
pub(super) struct EncodedBody {
    coding: String,
}

/// Rejects a body with a content coding.
pub(super) fn check_coding(headers: &HeaderMap) -> Result<(), EncodedBody> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let encoded = codings.find(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    encoded.map_or(Ok(()), |coding| {
        let coding = String::from_utf8_lossy(coding.as_bytes());
        let coding = coding.chars().take(CODING_CHARS).collect();
        Err(EncodedBody { coding })
    })
}

/// Whether a request has exactly one `Content-Type`, and it is one of `types` with any parameters.
pub(super) fn has_media_type(headers: &HeaderMap, types: &[&str]) -> bool {
    let mut given = headers
        .get_all(CONTENT_TYPE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let essence = given
        .next()
        .and_then(|text| text.split(';').next())
        .map(str::trim)
        .unwrap_or_default();
    given.next().is_none() && types.iter().any(|name| essence.eq_ignore_ascii_case(name))
}

/// Reads a body of at most `max` bytes before the deadline.
pub(super) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    max: usize,
    deadline: Duration,
) -> Result<Bytes, BodyError> {
    check_coding(headers)?;
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|declared| declared > max as u64) {
        return Err(BodyError::TooLarge { max });
    }
    match tokio::time::timeout(deadline, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge { max }),
        Ok(Err(_)) => Err(BodyError::Incomplete),
        Err(_) => Err(BodyError::TimedOut),
    }
}
