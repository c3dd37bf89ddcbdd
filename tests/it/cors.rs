//! Pages of other origins: those that the operator lists may read every answer, others none.

use reqwest::{Method, RequestBuilder, Response};

use crate::support::{Events, Setup};

const PAGE: &str = "https://app.example";

async fn from(page: &str, request: RequestBuilder) -> Response {
    request.header("origin", page).send().await.expect("an answer")
}

fn readable_by(response: &Response) -> Option<&str> {
    let origins: Vec<_> = response.headers().get_all("access-control-allow-origin").iter().collect();
    assert!(origins.len() < 2, "{origins:?}");
    let origin = origins.first()?.to_str().expect("ASCII");
    assert_eq!(response.headers()["vary"], "Origin");
    let exposed = response.headers()["access-control-expose-headers"].to_str().expect("ASCII");
    assert!(exposed.contains("x-request-id"));
    Some(origin)
}

#[tokio::test]
async fn a_page_that_is_listed_may_read_refusals_too() {
    let gateway = Setup::fake(&[])
        .top("allowed_origins = [\"https://app.example\"]")
        .limits("streams = 1\nbad_keys_per_minute = 2")
        .start();
    let session = gateway.session("fake").await;
    let http = &gateway.http;
    let url = |path: &str| format!("{}{path}", gateway.url);
    let request = |path: &str| gateway.request(Method::GET, path);
    for (status, asked) in [
        (200, request("/v1")),
        (200, http.get(url("/livez"))),
        (401, http.get(url("/v1"))),
        (401, http.get(url("/v1")).bearer_auth("wrong")),
        (401, http.get(url("/v1")).bearer_auth("wrong")),
        (429, http.get(url("/v1")).bearer_auth("wrong")),
        (401, http.get(url("/v1/events?ticket=wrong"))),
        (421, request("/v1").header("host", "evil.example")),
        (404, request("/v1/nothing")),
        (405, gateway.request(Method::PUT, "/v1")),
        (422, request("/v1?x=1")),
        (204, http.request(Method::OPTIONS, url("/v1")).header("access-control-request-method", "GET")),
    ] {
        let answer = from(PAGE, asked).await;
        assert_eq!(
            (answer.status().as_u16(), readable_by(&answer)),
            (status, Some(PAGE)),
            "{}",
            answer.url()
        );
    }
    let stream = || request(&format!("/v1/sessions/{session}/events")).header("accept", "text/event-stream");
    let held = from(PAGE, stream()).await;
    assert_eq!(readable_by(&held), Some(PAGE));
    let refused = from(PAGE, stream()).await;
    assert_eq!(readable_by(&refused), Some(PAGE));
    let frames = Events::new(refused).rest().await;
    assert!(frames[0].of("problem") && frames[0].data["problem"]["code"] == "rate_limited", "{frames:?}");
    drop(held);
    for page in ["https://evil.example", "null"] {
        let answer = from(page, request("/v1")).await;
        assert_eq!((answer.status().as_u16(), readable_by(&answer)), (403, None), "{page}");
    }
    assert_eq!(readable_by(&request("/v1").send().await.expect("an answer")), None);
}
