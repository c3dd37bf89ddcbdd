//! Requests with their response headers, and waits for events in a session's log.

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::gateway::{Gateway, Setup};
use super::log::{assert_lawful, logged};
use super::sse::Events;
use super::wait::eventually;
use crate::support::places::fake_agent;

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Null when there is none.
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let headers = response.headers().clone();
        let text = response.text().await.expect("a body");
        let body = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).expect("JSON")
        };
        Self {
            status,
            headers,
            body,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("ASCII"))
    }

    /// Checks that the response is a problem with this code and the common shape. Returns its body.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, code: &str) -> Value {
        assert_eq!(
            (self.status.as_u16(), &self.body["code"]),
            (status, &json!(code)),
            "{self:?}"
        );
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["type"], format!("/docs/problems#{code}"));
        assert!(self.body["instance"].is_string(), "{self:?}");
        self.body
    }
}

impl Setup {
    /// The scripted agent, with further lines for its entry.
    pub(crate) fn fake_with(args: &[&str], more: &str) -> Self {
        Self::default().agent("fake", fake_agent(), args, more)
    }
}

impl Gateway {
    pub(crate) async fn call(&self, method: Method, path: &str) -> Answer {
        Answer::of(self.request(method, path)).await
    }

    pub(crate) async fn posted(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let mut request = self.request(Method::POST, path).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request).await
    }

    /// Posts a prompt and reads its turn as a stream, to its end.
    pub(crate) async fn streamed(&self, session: &str, text: &str) -> Vec<Value> {
        let request = self.request(Method::POST, &format!("/v1/sessions/{session}/prompts"));
        let request = request
            .header("Accept", "text/event-stream")
            .json(&json!({ "prompt": text }));
        logged(
            Events::new(request.send().await.expect("an answer"))
                .rest()
                .await,
        )
    }

    /// Follows the session's log from its beginning to the first event that fits.
    pub(crate) async fn log_until(
        &self,
        session: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Vec<Value> {
        let mut stream = self.events(&format!("/v1/sessions/{session}/events")).await;
        logged(
            stream
                .up_to("an event that fits", |event| fits(&event.data))
                .await,
        )
    }

    /// The whole log, which keeps the rules.
    pub(crate) async fn lawful(&self, session: &str) -> Vec<Value> {
        let events = self.all_events(session).await;
        assert_lawful(&events);
        events
    }

    /// Waits until the session's process has gone.
    pub(crate) async fn none_alive(&self) {
        eventually("no agent is alive", Duration::from_mins(1), || async {
            self.agents_alive().is_empty().then_some(())
        })
        .await;
    }

    pub(crate) async fn get_session(&self, session: &str) -> Value {
        self.get(&format!("/v1/sessions/{session}")).await
    }

    /// Checks the state after failed creations: no session, no process, no folder.
    pub(crate) async fn assert_nothing_left(&self) {
        assert_eq!(self.get("/v1/sessions").await["sessions"], json!([]));
        self.none_alive().await;
        let folders =
            std::fs::read_dir(self.path("data/workspaces")).expect("the root of workspaces");
        assert_eq!(folders.count(), 0, "a folder is left");
    }
}
