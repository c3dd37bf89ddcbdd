//! Many readers of one session: each costs little, whether it reads or not, and none misses anything.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{ALONE, LIMITS, Peak};
use crate::support::lean::{self, Frame, Lean};
use crate::support::{Gateway, Setup, eventually, figure, procfs};

const SUBSCRIBERS: usize = 2000;
/// The memory limit of one subscriber, in KiB.
const SUBSCRIBER: u64 = 40;

/// One key opens all of them. The limits of one connection or stream have their default values.
const MANY: &str = "limits.per_key.max_streams = 3000\nserver.max_connections_per_address = 4000\n";

const STALLED: usize = 200;
/// The memory limit of a client that never reads, in KiB.
const STALLED_READER: u64 = 64;
/// When it is gone at the latest; `write_stall` is 30 s.
const CUT: Duration = Duration::from_secs(35);

/// Opens a stream. While many connections arrive at once, the gateway closes some that have not sent a request yet. Then a
/// client connects again.
async fn open(to: SocketAddr, path: &str) -> Lean {
    for _ in 0..100 {
        match Lean::open(to, path, None).await {
            Ok(stream) => return stream,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) =>
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("a stream: {error}"),
        }
    }
    panic!("the gateway closed each of 100 connections");
}

/// Follows a session to the end of a turn, and checks that it gets each event once and in order.
async fn follow(to: SocketAddr, path: String, at: u64, ready: Arc<Barrier>) -> u64 {
    let mut stream = open(to, &path).await;
    let mut seq = at;
    let mut waits = Some(ready);
    loop {
        let frames = stream
            .frames()
            .await
            .expect("it does not break")
            .expect("it has no end");
        for frame in frames {
            if frame.of("ready") {
                if let Some(ready) = waits.take() {
                    ready.wait().await;
                }
            } else if let Some(next) = frame.seq() {
                seq += 1;
                assert_eq!(next, seq, "once, and in order");
                if frame.of("prompt.completed") && waits.is_none() {
                    return seq;
                }
            }
        }
    }
}

/// So many subscribers, from the beginning to the end of the turn that `prompt` makes once all are there; the
/// gateway's memory at its highest, in KiB.
async fn subscribed(gateway: &Gateway, session: &str, count: usize, prompt: &str) -> u64 {
    let ready = Arc::new(Barrier::new(count + 1));
    let mut subscribers = JoinSet::new();
    for _ in 0..count {
        let path = format!("/v1/sessions/{session}/events");
        subscribers.spawn(follow(gateway.address(), path, 0, Arc::clone(&ready)));
    }
    let all_ready = tokio::time::timeout(Duration::from_mins(1), ready.wait()).await;
    all_ready.expect("each subscriber received the replay");
    let pid = gateway.pid();
    let peak = Peak::of(move || procfs::resident(pid));
    gateway.prompt(session, prompt).await;
    let ends = subscribers.join_all().await;
    let peak = peak.end();
    let last = gateway.last_seq(session).await;
    assert!(
        ends.len() == count && ends.iter().all(|seq| *seq == last),
        "all saw the end"
    );
    peak
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_subscribers_receive_every_event_at_low_cost() {
    let _alone = ALONE.lock().await;
    let gateway = Setup::fake(&[])
        .settings(&format!("{LIMITS}{MANY}"))
        .start();
    let session = gateway.session("fake").await;
    // Until memory has its shape.
    subscribed(&gateway, &session, 20, "flood n=50 rate=50").await;
    let before = procfs::resident(gateway.pid());
    let began = Instant::now();
    let peak = subscribed(&gateway, &session, SUBSCRIBERS, "flood n=100 rate=10").await;
    let each = (peak - before) / SUBSCRIBERS as u64;
    figure(&format!(
        "{SUBSCRIBERS} subscribers of 10 events/s in {:?}: {before} KiB before, {peak} KiB at its highest, {each} KiB each",
        began.elapsed()
    ));
    assert!(each <= SUBSCRIBER, "{each} KiB each");
}

const IDLE: usize = 2000;
/// The memory limit of an idle stream, in KiB. hyper's buffers alone would need 16.
const IDLE_STREAM: u64 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn idle_stream_is_cheap_and_receives_keep_alives() {
    let _alone = ALONE.lock().await;
    let gateway = Setup::fake(&[])
        .settings(&format!(
            "{LIMITS}{MANY}timeouts.keep_alive_interval = \"2s\""
        ))
        .start();
    let to = gateway.address();
    let pid = gateway.pid();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo it-runs").await;
    let path = format!("/v1/sessions/{session}/events?after=tail");
    let open = async |count: usize| {
        let mut streams = Vec::with_capacity(count);
        for _ in 0..count {
            let mut stream = Lean::open(to, &path, None).await.expect("a stream");
            stream.frames().await.expect("it does not break");
            streams.push(stream);
        }
        streams
    };
    // Until memory has its shape.
    drop(open(50).await);
    let before = procfs::resident(pid);
    let mut streams = open(IDLE).await;
    let opened = Instant::now();
    let after = procfs::resident(pid);
    let each = after.saturating_sub(before) * 1024 / IDLE as u64;
    figure(&format!(
        "{IDLE} idle streams: {before} KiB before, {after} KiB after, {each} bytes each"
    ));
    assert!(each <= IDLE_STREAM << 10, "{each} bytes each");
    // Each stream is notified within its time limit and continues.
    for stream in streams.iter_mut().step_by(100) {
        stream.until_data().await.expect("it does not break");
    }
    assert!(
        opened.elapsed() < Duration::from_secs(10),
        "{:?}",
        opened.elapsed()
    );
    gateway.turn(&session, "echo it-lives").await;
    for mut stream in streams {
        let lives = async {
            loop {
                let frames = stream
                    .frames()
                    .await
                    .expect("it does not break")
                    .expect("it has no end");
                if frames.iter().any(|frame| frame.of("prompt.completed")) {
                    return;
                }
            }
        };
        lives.await;
    }
}

fn seq_of(id: &str) -> u64 {
    id.rsplit_once('-')
        .and_then(|(_, seq)| seq.parse().ok())
        .expect("<epoch>-<seq>")
}

/// Opens a stream and reads nothing of it, not even the answer's head.
async fn stall(to: SocketAddr, path: &str) -> TcpStream {
    let mut socket = lean::connect_small(to).await.expect("a connection");
    socket
        .write_all(lean::head(to, path, None).as_bytes())
        .await
        .expect("it is open");
    socket
}

/// Reads the bytes in the socket buffers of a stream that was cut, and resumes after its last complete event until
/// the end of the log.
async fn resume(to: SocketAddr, path: String, cut: TcpStream, after: Option<u64>, end: u64) {
    let mut seq = after;
    let mut check = |frames: Vec<Frame>| {
        let mut last = None;
        for frame in frames {
            if let Some(next) = frame.seq() {
                // A client that starts at the tail receives the position of the tail.
                let due = seq.map_or(next, |seq| seq + 1);
                assert_eq!(next, due, "once, and in order");
                assert!(seq.is_some() || frame.of("ready"));
                seq = Some(next);
            }
            last = frame.id().map(str::to_owned).or(last);
        }
        (seq, last)
    };
    let mut last = None;
    let mut stream = Lean::answered(cut).await.expect("it had begun");
    while let Ok(Some(frames)) = stream.frames().await {
        last = check(frames).1.or(last);
    }
    let mut stream = Lean::open(to, &path, last.as_deref())
        .await
        .expect("a stream");
    while check(Vec::new()).0 < Some(end) {
        check(
            stream
                .frames()
                .await
                .expect("it does not break")
                .expect("it has no end"),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_do_not_read_are_cheap_closed_and_resume() {
    // More than the kernels keep for a reader.
    const FLOOD: &str = "flood n=250 size=4000";
    let _alone = ALONE.lock().await;
    let gateway = Setup::fake(&[])
        .settings(&format!("{LIMITS}{MANY}"))
        .start();
    let to = gateway.address();
    let pid = gateway.pid();
    let session = gateway.session("fake").await;
    // Until memory has its shape: with readers of the tail, and of the store.
    subscribed(&gateway, &session, 20, FLOOD).await;
    let middle = gateway.get_session(&session).await["lastEventId"]
        .as_str()
        .expect("an id")
        .to_owned();
    subscribed(&gateway, &session, 20, FLOOD).await;
    let before = procfs::resident(pid);
    let descriptors = procfs::open_files(pid);

    // Half of the clients replay from the store, half stall on new events.
    let path = format!("/v1/sessions/{session}/events");
    let mut stalled = Vec::new();
    for at in 0..STALLED {
        let (after, seq) = if at % 2 == 0 {
            (middle.as_str(), Some(seq_of(&middle)))
        } else {
            ("tail", None)
        };
        stalled.push((stall(to, &format!("{path}?after={after}")).await, seq));
    }
    eventually("all streams are open", Duration::from_secs(20), || async {
        (procfs::open_files(pid) >= descriptors + STALLED).then_some(())
    })
    .await;
    gateway.turn(&session, FLOOD).await;
    let began = Instant::now();
    let peak = Peak::of(move || procfs::resident(pid));
    eventually("all are cut", CUT, || async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        (procfs::open_files(pid) < descriptors + STALLED / 20).then_some(())
    })
    .await;
    let cut = began.elapsed();
    let peak = peak.end();
    let each = (peak - before) / STALLED as u64;
    figure(&format!(
        "{STALLED} that never read: {before} KiB before, {peak} KiB at its highest, {each} KiB each; cut after {cut:?}"
    ));

    let end = gateway.last_seq(&session).await;
    let mut resumed = JoinSet::new();
    for (socket, after) in stalled {
        resumed.spawn(resume(to, path.clone(), socket, after, end));
    }
    resumed.join_all().await;
    figure(&format!("all have all of it after {:?}", began.elapsed()));
    assert!(each <= STALLED_READER, "{each} KiB each");
}
