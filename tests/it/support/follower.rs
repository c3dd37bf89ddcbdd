//! A client that never gives up: it follows a session by `Last-Event-ID` through every end of its stream.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Gateway;
use super::gateway::KEY;
use super::sse::Events;

/// How long a gateway may be away.
const AWAY: Duration = Duration::from_secs(30);

/// What it has seen so far, as events of the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) events: Vec<Value>,
    /// How often it had to connect.
    pub(crate) connections: usize,
}

pub(crate) struct Follower {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

impl Follower {
    #[expect(clippy::disallowed_methods, reason = "the test's own task, ended with the follower")]
    pub(crate) fn start(gateway: &Gateway, session: &str) -> Self {
        let url = format!("{}/v1/sessions/{session}/events", gateway.url);
        let (tell, seen) = watch::channel(Seen::default());
        Self { seen, task: tokio::spawn(follow(url, tell)) }
    }

    /// What it has seen, once that fits; the follower goes on.
    pub(crate) async fn until(&mut self, what: &str, fits: impl Fn(&[Value]) -> bool) -> Seen {
        let wait = self.seen.wait_for(|seen| fits(&seen.events));
        let found = tokio::time::timeout(Duration::from_mins(1), wait).await;
        let found = found.unwrap_or_else(|_| panic!("the follower does not see {what}"));
        found.expect("the follower found nothing wrong").clone()
    }

    /// What it has seen by now.
    pub(crate) fn now(&self) -> Seen {
        self.seen.borrow().clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(url: String, tell: watch::Sender<Seen>) {
    let mut last: Option<String> = None;
    loop {
        let mut stream = connect(&url, last.as_deref()).await;
        tell.send_modify(|seen| seen.connections += 1);
        while let Some(event) = stream.next().await {
            let Some(id) = event.id.clone() else {
                assert!(!event.of("problem"), "{}", event.data);
                continue;
            };
            assert_eq!(event.data["id"], id.as_str());
            let before = tell.borrow().events.last().map_or(0, |event| event["seq"].as_u64().unwrap_or(0));
            assert_eq!(event.seq(), before + 1, "without a hole, once, in order: {}", event.data);
            last = Some(id);
            tell.send_modify(|seen| seen.events.push(event.data));
        }
    }
}

async fn connect(url: &str, last: Option<&str>) -> Events {
    let began = std::time::Instant::now();
    loop {
        // A client of its own each time: what a killed gateway leaves in a pool of connections is not tried.
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let mut request = http.get(url).bearer_auth(KEY).header("Accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        match request.send().await {
            Ok(response) => return Events::new(response),
            Err(error) => assert!(began.elapsed() < AWAY, "the gateway does not come back: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
