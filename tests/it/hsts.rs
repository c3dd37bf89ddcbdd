//! `Strict-Transport-Security`: only behind a trusted proxy with TLS.

use reqwest::Method;
use reqwest::header::{HOST, STRICT_TRANSPORT_SECURITY};

use crate::support::{Gateway, Setup};

async fn hsts(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Option<String> {
    let mut request = gateway.request(Method::GET, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.expect("an answer");
    let value = response.headers().get(STRICT_TRANSPORT_SECURITY);
    value.map(|value| value.to_str().expect("ASCII").to_owned())
}

#[tokio::test]
async fn hsts_is_sent_only_behind_a_trusted_proxy_with_tls() {
    let behind =
        "server.trusted_proxies = [\"127.0.0.1\"]\nserver.public_url = \"https://gateway.example\"";
    let gateway = Setup::fake(&[]).settings(behind).start();
    let year = Some("max-age=31536000".to_owned());
    let host = (HOST.as_str(), "gateway.example");
    for path in [
        "/",
        "/livez",
        "/v1",
        "/v1/sessions",
        "/v1/events/stream?follow=false",
        "/nowhere",
    ] {
        let tls = [host, ("x-forwarded-proto", "https")];
        assert_eq!(hsts(&gateway, path, &tls).await, year, "{path}");
        assert_eq!(hsts(&gateway, path, &[host]).await, None, "{path}");
    }
    for (proto, sent) in [
        ("http", false),
        ("https, http", false),
        ("", false),
        ("httpsx", false),
        ("HTTPS", true),
        ("https, https", true),
    ] {
        let sends = hsts(&gateway, "/v1", &[host, ("x-forwarded-proto", proto)])
            .await
            .is_some();
        assert_eq!(sends, sent, "{proto:?}");
    }
    // Browsers would require TLS on all ports of localhost.
    let port = gateway.url.rsplit_once(':').expect("a port").1;
    let local = format!("localhost:{port}");
    assert_eq!(
        hsts(
            &gateway,
            "/v1",
            &[("host", &local), ("x-forwarded-proto", "https")]
        )
        .await,
        None
    );
    assert_eq!(
        hsts(&gateway, "/v1", &[("x-forwarded-proto", "https")]).await,
        year,
        "an address"
    );

    let other = Setup::fake(&[])
        .settings("server.trusted_proxies = [\"10.0.0.0/8\"]")
        .start();
    for gateway in [&other, &Setup::fake(&[]).start()] {
        assert_eq!(
            hsts(gateway, "/v1", &[("x-forwarded-proto", "https")]).await,
            None,
            "not from a proxy"
        );
    }
}
