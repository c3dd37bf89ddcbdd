//! The body of a request of a chat client: any JSON with the expected members. Unknown members are normal.

use axum::extract::Request;
use http::HeaderMap;
use serde::de::DeserializeOwned;

use crate::api::ProblemCode;
use crate::surface::body::{BodyLimit, has_media_type, read_body};
use crate::surface::json;
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;

/// The largest body. It contains the whole history with all files. The limit of a prompt applies to the new message.
const MAX_BODY: BodyLimit = BodyLimit::fixed(32 << 20);

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
    let bytes = read_body(&parts, body, MAX_BODY, gateway.limits.body_timeout).await?;
    let value = json::parse(&bytes, gateway.limits.max_json_depth)?;
    Ok((parts.headers, value))
}
