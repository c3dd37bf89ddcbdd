//! Connections through a proxy, redirects and `WebSocket`s, against servers of the test.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use super::*;
use crate::types::ProxyVariables;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn client(proxies: &ProxyVariables) -> Client {
    Client::new(ClientOptions { proxies, uses_tls: false, ca_certificates: None }).unwrap()
}

async fn get(client: &Client, url: &str) -> Result<(StatusCode, Bytes), RequestError> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = url.parse().unwrap();
    let response = client.send(request).await?;
    Ok((response.status(), read_body(response, 1 << 10).await?))
}

/// Reads the head of a request.
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
    let proxies = ProxyVariables { all: format!("http://user:pass@{address}"), ..ProxyVariables::default() };
    let proxy = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let tunnel = head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
        let request = head(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        (tunnel, request)
    };
    let client = client(&proxies);
    let (answer, (tunnel, request)) = tokio::join!(get(&client, "http://agent.test/acp"), proxy);
    assert_eq!(answer.unwrap(), (StatusCode::OK, Bytes::from_static(b"ok")));
    assert!(tunnel.starts_with("CONNECT agent.test:80 HTTP/1.1\r\n"), "{tunnel}");
    assert!(tunnel.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{tunnel}");
    assert!(request.starts_with("GET /acp HTTP/1.1\r\n") && !request.contains("dXNlcjpwYXNz"), "{request}");
}

#[tokio::test]
async fn error_of_a_proxy_names_no_credentials() {
    let (listener, address) = listener().await;
    let proxies = ProxyVariables { http: format!("http://user:pass@{address}"), ..ProxyVariables::default() };
    let rejected = answer(&listener, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    let client = client(&proxies);
    let (failed, _) = tokio::join!(get(&client, "http://agent.test/"), rejected);
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("proxy authorization required") && !text.contains("pass"), "{text}");

    let socks = ProxyVariables { http: "socks5://u:secret@127.0.0.1:1".to_owned(), ..proxies };
    let text = get(&self::client(&socks), "http://agent.test/").await.unwrap_err().to_string();
    assert!(text.contains("must be a URL that begins with http://") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn hosts_of_no_proxy_and_loopback_are_connected_directly() {
    let (listener, address) = listener().await;
    // Nothing listens on port 1.
    let all = "http://127.0.0.1:1".to_owned();
    let proxies = ProxyVariables { all, no: "agent.test".to_owned(), ..ProxyVariables::default() };
    let client = client(&proxies);
    let url = format!("http://{address}/");
    let (answered, _) = tokio::join!(get(&client, &url), answer(&listener, OK));
    assert_eq!(answered.unwrap().0, StatusCode::OK);
    let text = get(&client, "http://agent.test/").await.unwrap_err().to_string();
    assert!(text.contains("dns"), "{text}");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let (listener, address) = listener().await;
    let redirect = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let client = client(&ProxyVariables::default());
    let url = format!("http://{address}/");
    let (answered, _) = tokio::join!(get(&client, &url), answer(&listener, redirect));
    assert_eq!(answered.unwrap().0, StatusCode::FOUND);
    let url: Uri = url.parse().unwrap();
    let opened = open_websocket(&client, &url, HeaderMap::new(), 1 << 10);
    let (opened, _) = tokio::join!(opened, answer(&listener, redirect));
    assert!(matches!(opened, Err(WebSocketError::Status { status: StatusCode::FOUND, .. })));
}

#[tokio::test]
async fn body_above_the_limit_is_an_error() {
    let (listener, address) = listener().await;
    let response = format!("HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n{}", "x".repeat(2000));
    let client = client(&ProxyVariables::default());
    let url = format!("http://{address}/");
    let (answered, _) = tokio::join!(get(&client, &url), answer(&listener, &response));
    assert!(answered.is_err());
}

#[tokio::test]
async fn websocket_passes_the_tunnel_of_a_proxy_with_its_headers() {
    let (listener, address) = listener().await;
    let proxies = ProxyVariables { all: format!("http://{address}"), ..ProxyVariables::default() };
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
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, "Bearer k".parse().unwrap())]);
        let (mut socket, _) = open_websocket(&client, &url, headers, 1 << 10).await.unwrap();
        socket.send(Message::Text("hello".into())).await.unwrap();
        socket.next().await.unwrap().unwrap()
    };
    let (echo, tunnel) = tokio::join!(exchange, proxy);
    assert_eq!(echo, Message::Text("hello".into()));
    assert!(tunnel.starts_with("CONNECT agent.test:81 HTTP/1.1\r\n"), "{tunnel}");
}
