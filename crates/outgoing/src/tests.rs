//! Connections through a proxy, redirects and `WebSocket`s, against servers of the test.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use super::connector::Resolving;
use super::*;
use crate::ProxyVariables;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn client(proxies: &ProxyVariables) -> Client {
    Client::new(ClientOptions {
        proxies,
        uses_tls: false,
        ca_certificates: None,
        addresses: AddressRule::Any,
    })
    .unwrap()
}

async fn get(client: &Client, url: &str) -> Result<(StatusCode, Bytes), RequestError> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = url.parse().unwrap();
    let response = client.send(request).await?;
    Ok((response.status(), read_body(response, 1 << 10).await?))
}

async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let byte = stream.read_u8().await.unwrap();
        bytes.push(byte);
    }
    String::from_utf8(bytes).unwrap()
}

/// Accepts a connection, answers a request, and returns its head.
async fn answer(listener: &TcpListener, response: &str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let head = head(&mut stream).await;
    stream.write_all(response.as_bytes()).await.unwrap();
    head
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn request_passes_the_tunnel_of_a_proxy() {
    let (listener, address) = listener().await;
    let proxies = ProxyVariables {
        all: format!("http://user:pass@{address}"),
        ..ProxyVariables::default()
    };
    let proxy = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let tunnel = head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await
            .unwrap();
        let request = head(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        (tunnel, request)
    };
    let client = client(&proxies);
    let (answer, (tunnel, request)) = tokio::join!(get(&client, "http://agent.test/acp"), proxy);
    assert_eq!(answer.unwrap(), (StatusCode::OK, Bytes::from_static(b"ok")));
    assert!(
        tunnel.starts_with("CONNECT agent.test:80 HTTP/1.1\r\n"),
        "{tunnel}"
    );
    assert!(
        tunnel.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"),
        "{tunnel}"
    );
    assert!(
        request.starts_with("GET /acp HTTP/1.1\r\n") && !request.contains("dXNlcjpwYXNz"),
        "{request}"
    );
}

#[tokio::test]
async fn error_of_a_proxy_names_no_credentials() {
    let (listener, address) = listener().await;
    let proxies = ProxyVariables {
        http: format!("http://user:pass@{address}"),
        ..ProxyVariables::default()
    };
    let rejected = answer(
        &listener,
        "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
    );
    let client = client(&proxies);
    let (failed, _) = tokio::join!(get(&client, "http://agent.test/"), rejected);
    let text = failed.unwrap_err().to_string();
    assert!(
        text.contains("proxy authorization required") && !text.contains("pass"),
        "{text}"
    );

    let socks = ProxyVariables {
        http: "socks5://u:secret@127.0.0.1:1".to_owned(),
        ..proxies
    };
    let text = get(&self::client(&socks), "http://agent.test/")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("must be a URL that begins with http://") && !text.contains("secret"),
        "{text}"
    );
}

#[tokio::test]
async fn hosts_of_no_proxy_and_loopback_are_connected_directly() {
    let (listener, address) = listener().await;
    // Nothing listens on port 1.
    let all = "http://127.0.0.1:1".to_owned();
    let proxies = ProxyVariables {
        all,
        no: "agent.test".to_owned(),
        ..ProxyVariables::default()
    };
    let client = client(&proxies);
    let url = format!("http://{address}/");
    let (answered, _) = tokio::join!(get(&client, &url), answer(&listener, OK));
    assert_eq!(answered.unwrap().0, StatusCode::OK);
    let text = get(&client, "http://agent.test/")
        .await
        .unwrap_err()
        .to_string();
    assert!(text.contains("dns"), "{text}");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let (listener, address) = listener().await;
    let redirect =
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let client = client(&ProxyVariables::default());
    let url = format!("http://{address}/");
    let (answered, _) = tokio::join!(get(&client, &url), answer(&listener, redirect));
    assert_eq!(answered.unwrap().0, StatusCode::FOUND);
    let url: Uri = url.parse().unwrap();
    let opened = open_websocket(&client, &url, HeaderMap::new(), 1 << 10);
    let (opened, _) = tokio::join!(opened, answer(&listener, redirect));
    assert!(matches!(
        opened,
        Err(WebSocketError::Status {
            status: StatusCode::FOUND,
            ..
        })
    ));
}

#[tokio::test]
async fn body_above_the_limit_is_an_error() {
    let (listener, address) = listener().await;
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n{}",
        "x".repeat(2000)
    );
    let client = client(&ProxyVariables::default());
    let url = format!("http://{address}/");
    let (answered, _) = tokio::join!(get(&client, &url), answer(&listener, &response));
    assert!(answered.is_err());
}

#[tokio::test]
async fn websocket_passes_the_tunnel_of_a_proxy_with_its_headers() {
    let (listener, address) = listener().await;
    let proxies = ProxyVariables {
        all: format!("http://{address}"),
        ..ProxyVariables::default()
    };
    let proxy = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let tunnel = head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let message = socket.next().await.unwrap().unwrap();
        socket.send(message).await.unwrap();
        tunnel
    };
    let client = client(&proxies);
    let url: Uri = "ws://agent.test:81/acp".parse().unwrap();
    let exchange = async {
        let headers =
            HeaderMap::from_iter([(http::header::AUTHORIZATION, "Bearer k".parse().unwrap())]);
        let (mut socket, _) = open_websocket(&client, &url, headers, 1 << 10)
            .await
            .unwrap();
        socket.send(Message::Text("hello".into())).await.unwrap();
        socket.next().await.unwrap().unwrap()
    };
    let (echo, tunnel) = tokio::join!(exchange, proxy);
    assert_eq!(echo, Message::Text("hello".into()));
    assert!(
        tunnel.starts_with("CONNECT agent.test:81 HTTP/1.1\r\n"),
        "{tunnel}"
    );
}

/// A client that connects only to 127.0.0.2.
fn restricted(proxies: &ProxyVariables, resolve: fn(&str) -> Resolving) -> Client {
    let only = AddressRule::Only(|address| address == IpAddr::from([127, 0, 0, 2]));
    let options = ClientOptions {
        proxies,
        uses_tls: false,
        ca_certificates: None,
        addresses: only,
    };
    Client::with_resolver(options, resolve).unwrap()
}

fn addresses(host_and_port: &str, addresses: &[[u8; 4]]) -> Resolving {
    let port: u16 = host_and_port.rsplit_once(':').unwrap().1.parse().unwrap();
    let found = addresses
        .iter()
        .map(|address| SocketAddr::from((*address, port)))
        .collect();
    Box::pin(std::future::ready(Ok(found)))
}

const CLOSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

#[tokio::test]
async fn checked_address_is_the_one_that_is_used() {
    /// The second answer differs from the first one.
    fn rebinding(host_and_port: &str) -> Resolving {
        static ANSWERS: AtomicU8 = AtomicU8::new(2);
        addresses(
            host_and_port,
            &[[127, 0, 0, ANSWERS.fetch_add(1, Ordering::Relaxed)]],
        )
    }
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let url = format!(
        "http://hook.test:{}/",
        listener.local_addr().unwrap().port()
    );
    let client = restricted(&ProxyVariables::default(), rebinding);
    let (first, request) = tokio::join!(get(&client, &url), answer(&listener, CLOSE));
    assert_eq!(first.unwrap().0, StatusCode::OK);
    assert!(request.contains("hook.test"), "{request}");
    let second = get(&client, &url).await.unwrap_err().to_string();
    assert!(
        second.contains("127.0.0.3, which is not permitted"),
        "{second}"
    );
}

#[tokio::test]
async fn only_permitted_addresses_are_connected() {
    fn mixed(host_and_port: &str) -> Resolving {
        addresses(host_and_port, &[[127, 0, 0, 2], [10, 0, 0, 1]])
    }
    let client = restricted(&ProxyVariables::default(), mixed);
    let error = get(&client, "http://hook.test/")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("10.0.0.1, which is not permitted"),
        "{error}"
    );

    let (listener, address) = listener().await;
    let options = ClientOptions {
        proxies: &ProxyVariables::default(),
        uses_tls: false,
        ca_certificates: None,
        addresses: AddressRule::Only(is_public),
    };
    let client = Client::new(options).unwrap();
    // The resolver of the system accepts each of these forms.
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "127.1",
        "0.0.0.0",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
    ] {
        let error = get(&client, &format!("http://{host}:{}/", address.port()))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("not permitted"), "{host}: {error}");
    }
    let accepted = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err(), "no connection was opened");
}

#[tokio::test]
async fn proxy_gets_the_checked_address() {
    fn fixed(host_and_port: &str) -> Resolving {
        addresses(host_and_port, &[[127, 0, 0, 2]])
    }
    let (listener, address) = listener().await;
    let proxies = ProxyVariables {
        all: format!("http://{address}"),
        ..ProxyVariables::default()
    };
    let client = restricted(&proxies, fixed);
    let rejected = answer(&listener, "HTTP/1.1 403 Forbidden\r\n\r\n");
    let (failed, tunnel) = tokio::join!(get(&client, "http://hook.test:8443/"), rejected);
    assert!(failed.is_err());
    assert!(
        tunnel.starts_with("CONNECT 127.0.0.2:8443 HTTP/1.1\r\n"),
        "{tunnel}"
    );
}
