//! Streams that break or stall. In every case the client resumes after its last complete event.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::gateway::KEY;
use crate::support::lean::{self, Kept, Lean};
use crate::support::proxy::{Flow, Proxy};
use crate::support::{Gateway, History, Setup, eventually, figure, procfs};

/// How much later than its limit something may happen, on a busy machine.
const SLACK: Duration = Duration::from_secs(10);
const END: &str = "prompt.completed";

fn hurried(more: &str) -> Gateway {
    Setup::fake(&[])
        .settings(&format!("testing.header_timeout = \"10s\"\ntesting.write_stall_timeout = \"1s\"\ntimeouts.keep_alive_interval = \"200ms\"\n{more}"))
        .start()
}

/// Waits until the gateway has closed the newest connection of the proxy.
async fn left(proxy: &Proxy) {
    eventually("the connection is left", SLACK, || async {
        (!proxy.is_held()).then_some(())
    })
    .await;
}

/// Checks that the clients received exactly the log.
async fn assert_kept(gateway: &Gateway, session: &str, clients: Vec<Kept>) {
    History::kept(gateway, session, clients)
        .await
        .assert_holds();
}

#[derive(Debug, Clone, Copy)]
enum Leaves {
    Reset,
    Close,
    /// The client closes its sending direction and still reads.
    HalfClose,
}

#[tokio::test]
async fn disconnect_during_a_stream_frees_it_and_the_turn_continues() {
    let gateway = hurried("limits.per_key.max_streams = 1");
    let proxy = Proxy::start(gateway.address()).await;
    for how in [Leaves::Reset, Leaves::Close, Leaves::HalfClose] {
        let session = gateway.session("fake").await;
        let mut client = Kept::new(&gateway, &session);
        let mut stream = client.connect(proxy.address).await.expect("a stream");
        assert!(proxy.is_held());
        let prompt = gateway
            .prompt(&session, "stream n=20; permission; echo done")
            .await;
        client
            .read(&mut stream, "request.created")
            .await
            .expect("it goes on");
        let mut held = Some(stream);
        match how {
            Leaves::Reset => proxy.cut(),
            Leaves::Close => drop(held.take()),
            Leaves::HalfClose => proxy.up(Flow::HalfClosed),
        }
        left(&proxy).await;
        proxy.up(Flow::Pass);
        let path = format!(
            "/v1/sessions/{session}/prompts/{}",
            prompt["promptId"].as_str().expect("an id")
        );
        assert_eq!(
            gateway.get(&path).await["status"],
            json!("running"),
            "{how:?}: the turn still runs"
        );
        let asked = gateway
            .get(&format!("/v1/sessions/{session}/requests"))
            .await;
        let request = asked["requests"][0]["requestId"]
            .as_str()
            .expect("it waits");
        let answer = format!("/v1/sessions/{session}/permissions/{request}");
        assert_eq!(
            gateway
                .post(&answer, &json!({ "optionId": "allow" }))
                .await
                .0,
            204
        );
        // There is one place among the streams of this key: it is free again.
        client.follow(proxy.address, END).await;
        left(&proxy).await;
        assert_kept(&gateway, &session, vec![client]).await;
    }
}

#[tokio::test]
async fn stream_cut_within_an_event_resumes_after_the_last_complete_one() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_requests_per_minute = 100000")
        .start();
    let session = gateway.session("fake").await;
    let proxy = Proxy::start(gateway.address()).await;
    gateway.prompt(&session, "flood n=160 rate=80").await;
    let mut client = Kept::new(&gateway, &session);
    let mut cuts = 0;
    loop {
        // From within the answer's head to some events later, at every place of a frame sooner or later.
        proxy.down(Flow::CutAfter(500 + (cuts * 211) % 2500));
        let Ok(mut stream) = client.connect(proxy.address).await else {
            cuts += 1;
            continue;
        };
        if client.read(&mut stream, END).await.is_ok() {
            break;
        }
        cuts += 1;
        assert!(cuts < 1000, "it comes no further than {}", client.seq);
    }
    figure(&format!("{} events over {cuts} cuts", client.seq));
    assert!(cuts > 10);
    assert_kept(&gateway, &session, vec![client]).await;
}

/// A stream of a connection of HTTP/2, until that breaks.
async fn h2_stream(
    client: &mut h2::client::SendRequest<bytes::Bytes>,
    gateway: &Gateway,
    kept: &mut Kept,
) -> bool {
    let mut request = http::Request::get(format!("{}{}", gateway.url, kept.path()))
        .header("authorization", format!("Bearer {KEY}"))
        .header("accept", "text/event-stream");
    if let Some(last) = kept.asks() {
        request = request.header("last-event-id", last);
    }
    let Ok((response, _)) = client.send_request(request.body(()).expect("a request"), true) else {
        return false;
    };
    let Ok(response) = response.await else {
        return false;
    };
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(Ok(chunk)) = body.data().await {
        body.flow_control()
            .release_capacity(chunk.len())
            .expect("it was taken");
        text.extend_from_slice(&chunk);
        if kept.keep(&lean::split(&mut text), END) {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn streams_of_one_connection_of_http_2_that_is_cut_all_go_on() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_requests_per_minute = 100000")
        .start();
    let session = gateway.session("fake").await;
    let proxy = Proxy::start(gateway.address()).await;
    gateway.prompt(&session, "flood n=100 rate=100").await;
    let mut clients: Vec<Kept> = (0..8).map(|_| Kept::new(&gateway, &session)).collect();
    let mut done = Vec::new();
    let mut cuts = 0;
    while !clients.is_empty() {
        proxy.down(Flow::CutAfter(20_000 + cuts * 1777));
        cuts += 1;
        let socket = tokio::net::TcpStream::connect(proxy.address)
            .await
            .expect("it listens");
        let (sender, connection) = h2::client::handshake(socket).await.expect("h2c");
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        let streams = clients.into_iter().map(|mut kept| {
            let mut sender = sender.clone();
            let gateway = &gateway;
            async move { (h2_stream(&mut sender, gateway, &mut kept).await, kept) }
        });
        let (over, open): (Vec<_>, Vec<_>) = futures_util::future::join_all(streams)
            .await
            .into_iter()
            .partition(|(over, _)| *over);
        done.extend(over.into_iter().map(|(_, kept)| kept));
        clients = open.into_iter().map(|(_, kept)| kept).collect();
        assert!(cuts < 200, "they come to no end");
    }
    assert!(cuts > 2, "{cuts}");
    assert_kept(&gateway, &session, done).await;
}

/// A log that exceeds the socket buffers of a client that does not read.
async fn with_a_long_log(gateway: &Gateway) -> String {
    let session = gateway.session("fake").await;
    gateway.turn(&session, "flood n=1500 size=2000").await;
    session
}

/// A reader of a long log, with the fault `flow` on its stream: the gateway closes it after a while, buffers little
/// for it, and it receives everything in the end. Other readers are not affected.
async fn is_left_and_comes_back(flow: Flow) {
    let gateway = hurried("");
    let session = with_a_long_log(&gateway).await;
    let proxy = Proxy::start(gateway.address()).await;
    let mut other = Kept::new(&gateway, &session);
    other.follow(gateway.address(), END).await;
    let held = procfs::resident(gateway.pid());

    let mut client = Kept::new(&gateway, &session);
    let mut stream = client.connect(proxy.address).await.expect("a stream");
    proxy.down(flow);
    assert!(proxy.is_held());
    left(&proxy).await;
    let is_record =
        |line: &str| line.contains("ended a stream") && line.contains("\"principal\":\"owner\"");
    eventually("the log names the client", SLACK, || async {
        gateway.log().lines().any(is_record).then_some(())
    })
    .await;
    let more = procfs::resident(gateway.pid()).saturating_sub(held);
    figure(&format!("{flow:?}: {more} KiB more"));
    assert!(more < 2048, "{more} KiB were held for it");
    let turn = gateway.turn(&session, "echo still here").await;
    assert_eq!(turn["status"], "completed");

    proxy.down(Flow::Pass);
    assert!(
        client.read(&mut stream, "session.deleted").await.is_err(),
        "it was cut"
    );
    let at = client.seq;
    assert!(
        at > 1 && at < 1500,
        "the bytes buffered by the kernels arrived: {at}"
    );
    let last = gateway.last_seq(&session).await;
    client.reach(proxy.address, last).await;
    other.reach(gateway.address(), last).await;
    assert_kept(&gateway, &session, vec![client, other]).await;
}

#[tokio::test]
async fn stalled_reader_is_closed_and_resumes_without_loss() {
    is_left_and_comes_back(Flow::Stall).await;
}

#[tokio::test]
async fn slow_reader_of_a_long_backlog_is_closed_and_resumes_without_loss() {
    is_left_and_comes_back(Flow::Drip(Duration::from_millis(100))).await;
}

#[tokio::test]
async fn slow_reader_of_a_short_backlog_stays_connected() {
    let gateway = hurried("");
    let session = gateway.session("fake").await;
    let proxy = Proxy::start(gateway.address()).await;
    let mut client = Kept::new(&gateway, &session);
    let mut stream = client.connect(proxy.address).await.expect("a stream");
    client
        .read(&mut stream, "session.created")
        .await
        .expect("it goes on");
    proxy.down(Flow::Drip(Duration::from_millis(1)));
    // Longer than the timeout for a client that does not read.
    gateway.turn(&session, "echo slowly").await;
    client.read(&mut stream, END).await.expect("it is not cut");
    assert_kept(&gateway, &session, vec![client]).await;
}

#[tokio::test]
async fn buffering_proxy_delays_a_stream_and_changes_nothing() {
    let gateway = hurried("");
    let session = gateway.session("fake").await;
    let proxy = Proxy::start(gateway.address()).await;
    let mut client = Kept::new(&gateway, &session);
    let mut stream = client.connect(proxy.address).await.expect("a stream");
    proxy.down(Flow::Gather(1 << 20));
    gateway.turn(&session, "flood n=200").await;
    let early =
        tokio::time::timeout(Duration::from_millis(500), client.read(&mut stream, END)).await;
    assert!(early.is_err(), "it is held back");
    proxy.down(Flow::Gather(64));
    client.read(&mut stream, END).await.expect("it comes");
    assert_kept(&gateway, &session, vec![client]).await;
}

#[tokio::test]
async fn a_gateway_that_cannot_be_reached_for_a_while_is_where_it_was() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let proxy = Proxy::start(gateway.address()).await;
    let mut client = Kept::new(&gateway, &session);
    let mut stream = client.connect(proxy.address).await.expect("a stream");
    gateway.prompt(&session, "flood n=300 rate=60").await;
    client
        .read(&mut stream, "prompt.started")
        .await
        .expect("it goes on");
    proxy.refuse(true);
    proxy.cut();
    assert!(client.read(&mut stream, END).await.is_err());
    for _ in 0..20 {
        assert!(
            Lean::open(proxy.address, &client.path(), None)
                .await
                .is_err(),
            "it is refused"
        );
    }
    proxy.refuse(false);
    client.follow(proxy.address, END).await;
    assert_kept(&gateway, &session, vec![client]).await;
}
