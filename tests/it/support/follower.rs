//! A client that always reconnects: it follows the log with `Last-Event-ID` through every end of its stream. It
//! records all events in order of arrival. The history checks them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Gateway;
use super::history::{Event, Frame, Reader};
use super::sse::Events;

/// How long a gateway may be away.
const AWAY: Duration = Duration::from_secs(30);
/// The deadline until a follower sees the events that a test waits for.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Follower {
    reader: Arc<Mutex<Reader>>,
    /// Where it is in each session.
    places: watch::Receiver<BTreeMap<String, u64>>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Of one session, from its first event.
    pub(crate) fn start(gateway: &Gateway, session: &str) -> Self {
        let url = format!("{}/v1/sessions/{session}/events", gateway.url);
        let name = format!("the follower of {session}");
        Self::of(gateway, url, &name, &[session.to_owned()], false)
    }

    /// Of several sessions on one stream, from the first event of each.
    pub(crate) fn all(gateway: &Gateway, sessions: &[String]) -> Self {
        let chosen: Vec<String> = sessions
            .iter()
            .map(|session| format!("session={session}"))
            .collect();
        let url = format!("{}/v1/events?{}", gateway.url, chosen.join("&"));
        Self::of(gateway, url, "the follower of all", sessions, true)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the test's own task, ended with the follower"
    )]
    fn of(gateway: &Gateway, url: String, name: &str, sessions: &[String], all: bool) -> Self {
        let sessions: BTreeMap<String, u64> = sessions
            .iter()
            .map(|session| (session.clone(), 0))
            .collect();
        let (sender, places) = watch::channel(sessions.clone());
        let reader = Reader {
            name: name.to_owned(),
            sessions,
            all,
            ..Reader::default()
        };
        let reader = Arc::new(Mutex::new(reader));
        let task = tokio::spawn(follow(
            url,
            gateway.key.clone(),
            Arc::clone(&reader),
            sender,
        ));
        Self {
            reader,
            places,
            task,
        }
    }

    /// The sessions that it reads, and where it began in each.
    pub(crate) fn sessions(&self) -> BTreeMap<String, u64> {
        self.with(|reader| reader.sessions.clone())
    }

    /// The events that it received so far.
    pub(crate) fn seen(&self) -> Vec<Value> {
        self.with(|reader| {
            reader
                .events()
                .map(|text| serde_json::from_str(text).expect("JSON"))
                .collect()
        })
    }

    pub(crate) fn connections(&self) -> usize {
        let is_connection = |frame: &&Frame| matches!(frame, Frame::Connected { .. });
        self.with(|reader| reader.frames.iter().filter(is_connection).count())
    }

    /// How many events it has seen, in all of its sessions.
    pub(crate) fn events(&self) -> u64 {
        self.places.borrow().values().sum()
    }

    /// The first event that fits, of those that it has seen and will see.
    pub(crate) async fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        let mut looked_at = 0;
        loop {
            let news: Vec<Value> = self.with(|reader| {
                let news = reader.events().skip(looked_at);
                news.map(|text| serde_json::from_str(text).expect("JSON"))
                    .collect()
            });
            looked_at += news.len();
            if let Some(event) = news.into_iter().find(&fits) {
                return event;
            }
            let left = PATIENCE.saturating_sub(began.elapsed());
            let changed = tokio::time::timeout(left, self.places.changed()).await;
            changed
                .unwrap_or_else(|_| panic!("the follower does not see {what}"))
                .expect("it goes on");
        }
    }

    /// Waits until the follower has reached these positions, if it reads their logs. The history reports a follower
    /// that does not reach them.
    pub(crate) async fn reaches(&self, ends: &BTreeMap<String, u64>, limit: Duration) {
        let there = |places: &BTreeMap<String, u64>| {
            places
                .iter()
                .all(|(session, at)| ends.get(session).is_none_or(|end| at >= end))
        };
        drop(tokio::time::timeout(limit, self.places.clone().wait_for(there)).await);
    }

    /// Stops the follower and returns its events.
    pub(crate) fn end(self) -> Reader {
        self.task.abort();
        self.with(Reader::clone)
    }

    fn with<T>(&self, look: impl FnOnce(&Reader) -> T) -> T {
        look(&self.reader.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    url: String,
    key: String,
    reader: Arc<Mutex<Reader>>,
    sender: watch::Sender<BTreeMap<String, u64>>,
) {
    let keep = |frame: Frame| {
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        // Both in one step, for a caller that takes the record at any time.
        if let Frame::Event { text, .. } = &frame
            && let Ok(event) = Event::parse(text)
        {
            sender.send_modify(|places| {
                places.insert(event.session_id.to_string(), event.seq);
            });
        }
        reader.frames.push(frame);
    };
    // No connection pool: it could contain connections to a killed gateway.
    let http = reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(0)
        .build()
        .expect("a client");
    let mut last: Option<String> = None;
    loop {
        let mut stream = connect(&http, &url, &key, last.as_deref()).await;
        keep(Frame::Connected {
            after: last.clone(),
        });
        while let Some(event) = stream.whenever().await {
            if event.of("reset") {
                keep(Frame::Reset(event.text));
                last = event.id.or(last);
            } else if event.of("problem") {
                keep(Frame::Problem(event.text));
            } else if event.data["seq"].is_u64() {
                last.clone_from(&event.id);
                keep(Frame::Event {
                    id: event.id.map(String::into_boxed_str),
                    text: event.text,
                });
            }
        }
    }
}

async fn connect(http: &reqwest::Client, url: &str, key: &str, last: Option<&str>) -> Events {
    let began = Instant::now();
    loop {
        let mut request = http
            .get(url)
            .bearer_auth(key)
            .header("Accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let response = tokio::time::timeout(AWAY, request.send()).await;
        match response.unwrap_or_else(|_| panic!("no response to {url} within {AWAY:?}")) {
            Ok(response) => return Events::new(response),
            Err(error) => assert!(
                began.elapsed() < AWAY,
                "the gateway does not come back: {error}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
