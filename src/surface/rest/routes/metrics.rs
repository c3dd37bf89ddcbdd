//! `/metrics`: the metrics in the text formats of Prometheus.

use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::operations::Routes;
use crate::surface::http::{ApiError, ApiRequest, CanMetrics, Result};
use crate::surface::rest::negotiate::{Representation, negotiate};
use base::telemetry::{TextFormat, metrics};

pub(super) fn routes() -> Routes {
    routes![get_metrics]
}

/// Gets the metrics of the gateway in a text format of Prometheus.
///
/// The format is 0.0.4, or OpenMetrics 1.0 if `Accept` prefers it.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, content((String = "text/plain"), (String = "application/openmetrics-text")), description = "The metrics."),
))]
async fn get_metrics(request: ApiRequest<CanMetrics>, headers: HeaderMap) -> Result<Response> {
    const FORMATS: [Representation; 2] = [Representation::Text, Representation::OpenMetrics];
    let format = match negotiate(&headers, &FORMATS)? {
        Representation::OpenMetrics => TextFormat::OpenMetrics,
        _ => TextFormat::Prometheus,
    };
    let text = request
        .app
        .shutdown
        .spawn_blocking(move || metrics::export(format));
    let text = text.await.map_err(ApiError::internal)?;
    Ok(([(CONTENT_TYPE, format.content_type())], text).into_response())
}
