//! HTTP/2 clients that send requests and read nothing of the responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::{Request, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::gateway::KEY;
use crate::support::places::project;
use crate::support::{Gateway, Setup, eventually, figure, procfs};

const PATIENCE: Duration = Duration::from_secs(20);
/// How long a request is watched that is expected to wait.
const WATCHED: Duration = Duration::from_millis(500);

type Tasks = JoinSet<Result<(), h2::Error>>;

/// A connection whose streams have a closed window.
async fn connect(gateway: &Gateway, tasks: &mut Tasks) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(gateway.url.trim_start_matches("http://"))
        .await
        .expect("it listens");
    let made = h2::client::Builder::new()
        .initial_window_size(0)
        .handshake(socket)
        .await;
    let (client, connection) = made.expect("h2c");
    tasks.spawn(connection);
    client
}

/// Sends a request; nothing of the response is read but its head.
async fn get(
    client: &SendRequest<Bytes>,
    gateway: &Gateway,
    path: &str,
    key: bool,
) -> ResponseFuture {
    let mut request = Request::get(format!("{}{path}", gateway.url));
    if key {
        request = request.header("authorization", format!("Bearer {KEY}"));
    }
    let mut client = client.clone().ready().await.expect("a stream");
    client
        .send_request(request.body(()).expect("a request"), true)
        .expect("a stream")
        .0
}

/// The head of the response, if it arrives.
async fn head(
    response: &mut ResponseFuture,
    patience: Duration,
) -> Option<http::Response<h2::RecvStream>> {
    let response = tokio::time::timeout(patience, response)
        .await
        .ok()?
        .expect("a response");
    assert_eq!(response.status(), StatusCode::OK);
    Some(response)
}

/// The path of the page's largest file, and its size.
fn largest_asset() -> (String, u64) {
    let folder = project().join("web/dist/assets");
    let files = std::fs::read_dir(folder)
        .expect("the page was built")
        .map(|file| file.expect("a file"));
    let sized = files.map(|file| (file.metadata().expect("a file").len(), file.file_name()));
    let (size, name) = sized.max().expect("the page has assets");
    (format!("/assets/{}", name.to_str().expect("text")), size)
}

#[tokio::test]
async fn unauthenticated_clients_that_do_not_read_use_little_memory() {
    const CONNECTIONS: usize = 40;
    let gateway = Setup::fake(&[]).start();
    let (asset, size) = largest_asset();
    assert!(size > 200_000, "too small to show anything: {size}");
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    let mut requests = JoinSet::new();
    let warm = gateway
        .http
        .get(format!("{}{asset}", gateway.url))
        .send()
        .await
        .expect("an answer");
    assert_eq!(warm.status(), StatusCode::OK);
    let before = procfs::resident(gateway.pid());
    let heads = Arc::new(AtomicUsize::new(0));
    for _ in 0..CONNECTIONS {
        let client = connect(&gateway, &mut tasks).await;
        // More would exceed `max_unauthenticated_request_bytes`.
        for _ in 0..18 {
            let mut response = get(&client, &gateway, &asset, false).await;
            let heads = Arc::clone(&heads);
            requests.spawn(async move {
                let response = head(&mut response, PATIENCE).await;
                heads.fetch_add(1, Ordering::Relaxed);
                // The stream stays open, and its window closed.
                std::future::pending::<()>().await;
                drop(response);
            });
        }
        clients.push(client);
    }
    eventually(
        "every connection has its first responses",
        PATIENCE,
        || async { (heads.load(Ordering::Relaxed) >= CONNECTIONS * 16).then_some(()) },
    )
    .await;
    let grown = procfs::resident(gateway.pid()).saturating_sub(before);
    let open = heads.load(Ordering::Relaxed);
    figure(&format!(
        "{CONNECTIONS} HTTP/2 clients without a window: {open} responses of {size} bytes, {grown} KiB more"
    ));
    assert!(grown < 64 << 10, "{open} responses cost {grown} KiB");
}

#[tokio::test]
async fn a_connection_without_a_key_runs_few_requests_at_a_time() {
    let gateway = Setup::fake(&[])
        .settings("testing.max_h2_unauthenticated_streams = 2")
        .start();
    let (asset, _) = largest_asset();
    let mut tasks = JoinSet::new();
    let client = connect(&gateway, &mut tasks).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut response = get(&client, &gateway, &asset, false).await;
        open.push(head(&mut response, PATIENCE).await.expect("a response"));
    }
    let mut third = get(&client, &gateway, &asset, false).await;
    assert!(head(&mut third, WATCHED).await.is_none(), "it did not wait");
    // Dropping a response resets its stream.
    open.pop();
    head(&mut third, PATIENCE).await.expect("one has ended");

    let client = connect(&gateway, &mut tasks).await;
    let mut known = get(&client, &gateway, "/v1/agents", true).await;
    open.push(head(&mut known, PATIENCE).await.expect("a response"));
    for _ in 0..4 {
        let mut response = get(&client, &gateway, &asset, false).await;
        open.push(
            head(&mut response, PATIENCE)
                .await
                .expect("the connection has shown a key"),
        );
    }
}

/// A gateway with a transcript of 200 kB, and its path.
async fn large_transcript(limits: &str) -> (Gateway, String) {
    let gateway = Setup::fake(&[]).settings(limits).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "long-line bytes=200000").await;
    (gateway, format!("/v1/sessions/{session}/transcript"))
}

#[tokio::test]
async fn connection_that_does_not_read_gets_no_more_responses() {
    let (gateway, path) =
        large_transcript("testing.max_connection_unsent_bytes = \"100KiB\"").await;
    let mut tasks = JoinSet::new();
    let client = connect(&gateway, &mut tasks).await;
    let first = head(&mut get(&client, &gateway, &path, true).await, PATIENCE)
        .await
        .expect("a response");
    let mut second = get(&client, &gateway, &path, true).await;
    assert!(
        head(&mut second, WATCHED).await.is_none(),
        "it did not wait"
    );
    drop(first);
    head(&mut second, PATIENCE)
        .await
        .expect("the first response is gone");
}

#[tokio::test]
async fn unsent_bytes_of_all_connections_are_bounded_and_new_connections_get_a_response() {
    let (gateway, path) = large_transcript("testing.max_unsent_bytes = \"100KiB\"").await;
    let mut tasks = JoinSet::new();
    let one = connect(&gateway, &mut tasks).await;
    let other = connect(&gateway, &mut tasks).await;
    let _first = head(&mut get(&one, &gateway, &path, true).await, PATIENCE)
        .await
        .expect("a response");
    let mut second = get(&one, &gateway, &path, true).await;
    assert!(
        head(&mut second, WATCHED).await.is_none(),
        "it did not wait"
    );
    let of_other = head(&mut get(&other, &gateway, &path, true).await, PATIENCE).await;
    assert!(
        of_other.is_some(),
        "a connection without unsent bytes does not wait"
    );
}
