//! The body of a request of a chat client: any JSON with the expected members. Unknown members are normal.

use axum::extract::Request;
use bytes::Bytes;
use http::HeaderMap;
use serde::de::DeserializeOwned;

use crate::api::ProblemCode;
use crate::jsonrpc;
use crate::surface::body::{has_media_type, read_body};
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;

/// The largest body. It contains the whole history with all files. The limit of a prompt applies to the new message.
const MAX_BODY_BYTES: usize = 32 << 20;

/// Reads and parses the body.
pub(crate) async fn read_json<T: DeserializeOwned>(
    gateway: &Gateway,
    request: Request,
) -> Result<(HeaderMap, T), ApiError> {
    let (parts, body) = request.into_parts();
    if !has_media_type(&parts.headers, &["application/json"]) {
        return Err(ApiError::new(
            ProblemCode::UnsupportedMediaType,
            "the body must be application/json",
        ));
    }
    let bytes: Bytes = read_body(
        &parts.headers,
        body,
        MAX_BODY_BYTES,
        gateway.limits.body_timeout,
    )
    .await?;
    jsonrpc::check_depth(&bytes, gateway.limits.max_json_depth)
        .map_err(|deep| ApiError::invalid("", deep.to_string()))?;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let at = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() {
            ApiError::invalid(
                format!("/{}", at.replace(['.', '['], "/").replace(']', "")),
                inner.to_string(),
            )
        } else {
            ApiError::new(
                ProblemCode::Malformed,
                format!("the body is not JSON: {inner}"),
            )
        }
    })?;
    Ok((parts.headers, value))
}
