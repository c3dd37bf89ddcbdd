//! A history of a gateway that runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Alive, History, Journals, Log, OUTLIVE};
use crate::support::{Follower, Gateway, procfs};

/// The deadline for readers to reach the end of the log.
const CATCH_UP: Duration = Duration::from_mins(1);

impl History {
    /// The logs that these followers read, and the events that they saw. Waits until each follower has reached the
    /// current end of its log, and stops them.
    pub(crate) async fn of(gateway: &Gateway, followers: Vec<Follower>) -> Self {
        let mut history = Self::default();
        let sessions = followers
            .iter()
            .flat_map(|follower| follower.sessions().into_keys());
        let mut ends: BTreeMap<String, u64> = sessions.map(|session| (session, 0)).collect();
        for (session, end) in &mut ends {
            *end = gateway.last_seq(session).await;
        }
        for follower in followers {
            follower.reaches(&ends, CATCH_UP).await;
            history.readers.push(follower.end());
        }
        // A reader receives only committed events, so the log is read last.
        for (session, read_to) in ends {
            let events = gateway.log_texts(&session, 0).await;
            history.logs.insert(
                session,
                Log {
                    after: 0,
                    events,
                    read_to,
                },
            );
        }
        history
    }

    /// With the journals that the scripted agents have kept in this folder.
    pub(crate) fn with_agents(mut self, folder: &Path) -> Self {
        self.journals = Journals::new(folder).take();
        self
    }

    /// Includes the agents' processes that are alive after their owner's end and a grace period.
    pub(crate) async fn with_left(mut self, gateway: &Gateway, owner: &str) -> Self {
        self.alive.extend(left_of(gateway, owner).await);
        self
    }
}

/// The processes of a gateway, except itself, that are alive `OUTLIVE` after the end of `owner`. Returns early if none is left.
pub(crate) async fn left_of(gateway: &Gateway, owner: &str) -> Vec<Alive> {
    let began = Instant::now();
    let itself = gateway.runs().then(|| gateway.pid());
    loop {
        let mut left = procfs::at_home(&gateway.path(""));
        left.retain(|(pid, ..)| Some(*pid) != itself);
        let after = began.elapsed();
        if left.is_empty() || after >= OUTLIVE {
            let alive = |(pid, _, what)| Alive {
                pid,
                what,
                owner: owner.to_owned(),
                after,
            };
            return left.into_iter().map(alive).collect();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Gateway {
    /// The log of a session after an event, as bytes.
    pub(crate) async fn log_texts(&self, session: &str, after: u64) -> Vec<Box<str>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            events: Vec<Box<RawValue>>,
            last_event_id: String,
            more: bool,
        }
        let last = self.get_session(session).await;
        let last = last["lastEventId"].as_str().expect("a session has an id");
        let (epoch, _) = last.split_once('-').expect("<epoch>-<seq>");
        let mut all = Vec::new();
        let mut from = format!("{epoch}-{after}");
        loop {
            let path = format!("/v1/sessions/{session}/events?limit=1000&after={from}");
            let response = self
                .request(Method::GET, &path)
                .send()
                .await
                .expect("an answer");
            assert_eq!(response.status(), 200, "GET {path}");
            let text = response.text().await.expect("a body");
            let page: Page = serde_json::from_str(&text).expect("a page of events");
            all.extend(page.events.iter().map(|event| Box::from(event.get())));
            if !page.more {
                return all;
            }
            from = page.last_event_id;
        }
    }
}
