//! `/metrics`: the metrics in the text formats of Prometheus, on the listener of the API and on one of its own.

use std::net::IpAddr;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};
use utoipa_axum::router::OpenApiRouter;

use crate::surface::http::{ApiError, ApiRequest, AppState, CanMetrics, Result};
use crate::surface::rest::negotiate::{Representation, negotiate};
use base::shutdown::Shutdown;
use base::telemetry::{TextFormat, metrics};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    routes![get_metrics]
}

/// Gets the metrics of the gateway in a text format of Prometheus.
///
/// The format is 0.0.4, or OpenMetrics 1.0 if `Accept` prefers it.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, content((String = "text/plain"), (String = "application/openmetrics-text")), description = "The metrics."),
))]
async fn get_metrics(request: ApiRequest<CanMetrics>, headers: HeaderMap) -> Result<Response> {
    scrape(&request.app.shutdown, &headers).await
}

async fn scrape(shutdown: &Shutdown, headers: &HeaderMap) -> Result<Response> {
    const FORMATS: [Representation; 2] = [Representation::Text, Representation::OpenMetrics];
    let format = match negotiate(headers, &FORMATS)? {
        Representation::OpenMetrics => TextFormat::OpenMetrics,
        _ => TextFormat::Prometheus,
    };
    let text = shutdown.spawn_blocking(move || metrics::export(format));
    let text = text.await.map_err(ApiError::internal)?;
    Ok(([(CONTENT_TYPE, format.content_type())], text).into_response())
}

/// The router of the listener for metrics. It needs no key: the configuration permits only loopback addresses.
pub(crate) fn local_router(shutdown: Shutdown) -> Router {
    Router::new()
        .route("/metrics", get(get_local_metrics))
        .with_state(shutdown)
}

async fn get_local_metrics(
    State(shutdown): State<Shutdown>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, StatusCode> {
    if !names_this_machine(&uri, &headers) {
        return Err(StatusCode::MISDIRECTED_REQUEST);
    }
    let scraped = scrape(&shutdown, &headers).await;
    scraped.map_err(|_| StatusCode::NOT_ACCEPTABLE)
}

/// Whether the request names a loopback address. A page in a browser on this machine could send requests under a name of its
/// own otherwise, and read the responses.
fn names_this_machine(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let named = host.and_then(|host| host.parse::<Authority>().ok());
    let authority = uri.authority().or(named.as_ref());
    authority.is_some_and(|authority| {
        let name = authority.host().trim_matches(['[', ']']);
        let address = name.parse::<IpAddr>();
        name == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_accepted() {
        for (host, is_accepted) in [
            ("localhost:9464", true),
            ("127.0.0.1:9464", true),
            ("127.0.0.2", true),
            ("[::1]:9464", true),
            ("attacker.example:9464", false),
            ("localhost.attacker.example", false),
            ("10.0.0.1:9464", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            let uri = Uri::from_static("/metrics");
            assert_eq!(names_this_machine(&uri, &headers), is_accepted, "{host}");
        }
    }
}
