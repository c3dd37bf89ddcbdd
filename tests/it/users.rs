//! Users: what belongs to one user does not exist for the others.

mod acp;
mod act_as;
mod chat;
mod ends;
mod folders;
mod names;
mod one_person;
mod own_keys;
mod private;
mod roles;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::key_life::{by, created};
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Events, Gateway};

/// The tests send more requests than a person may.
const LIMITS: &str = "limits.per_key.max_requests_per_minute = 100000";

/// A user with a key. Most keys have all scopes except `mcp`, because no scope may reveal objects of other users.
struct User<'a> {
    gateway: &'a Gateway,
    key: String,
}

impl<'a> User<'a> {
    /// A user of the tenant `default` with an admin key.
    async fn new(gateway: &'a Gateway, name: &str) -> Self {
        Self::with(gateway, &[name]).await
    }

    /// The user of `key create` with these words, and the scope `admin`.
    async fn with(gateway: &'a Gateway, words: &[&str]) -> Self {
        let words = [&["create"], words, &["--scopes", "admin"]].concat();
        let key = created(gateway, &words).await;
        Self { gateway, key }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        by(self.gateway, &self.key, method, path)
    }

    async fn call(&self, method: Method, path: &str) -> Answer {
        Answer::of(self.request(method, path)).await
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.call(Method::GET, path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {answer:?}");
        answer.body
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(body)).await
    }

    /// Creates an object. Returns the id in this member.
    async fn created(&self, path: &str, body: &Value, member: &str) -> String {
        let answer = self.post(path, body).await;
        assert!(answer.status.is_success(), "{path}: {answer:?}");
        answer.body[member].as_str().expect("an id").to_owned()
    }

    async fn session(&self) -> String {
        let body = json!({ "agent": "fake" });
        self.created("/v1/sessions", &body, "sessionId").await
    }

    /// Runs a turn to its end.
    async fn turn(&self, session: &str, text: &str) {
        let path = format!("/v1/sessions/{session}/prompts");
        let request = self.request(Method::POST, &path);
        let request = request.header("prefer", "wait=60");
        let answer = Answer::of(request.json(&json!({ "prompt": text }))).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }

    /// A session with a turn that waits for the answer to a request of the agent.
    async fn waiting_session(&self) -> String {
        let session = self.session().await;
        let body = json!({ "prompt": "permission" });
        let path = format!("/v1/sessions/{session}");
        self.post(&format!("{path}/prompts"), &body).await;
        eventually("a request", LONGEST, || async {
            (self.get(&path).await["state"] == "waiting").then_some(())
        })
        .await;
        session
    }

    async fn stream(&self, path: &str) -> Events {
        let request = self.request(Method::GET, path);
        let request = request.header("accept", "text/event-stream");
        Events::new(request.send().await.expect("an answer"))
    }

    /// The ids of the sessions of a list, read in pages of one.
    async fn sessions(&self, query: &str) -> Vec<String> {
        self.entries(
            &format!("/v1/sessions?limit=1{query}"),
            "sessions",
            "sessionId",
        )
        .await
    }

    /// The ids of the entries of a list, page by page.
    async fn entries(&self, path: &str, member: &str, id: &str) -> Vec<String> {
        let mut ids = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.get(&format!("{path}{cursor}")).await;
            let entries = page[member].as_array().expect("a list").iter();
            ids.extend(entries.map(|entry| entry[id].as_str().expect("an id").to_owned()));
            let Some(next) = page["nextCursor"].as_str() else {
                return ids;
            };
            assert!(ids.len() < 100, "{path} has no last page");
            cursor = format!("&cursor={next}");
        }
    }

    /// The whole session as its user sees it, to check that nothing has changed it.
    async fn snapshot(&self, session: &str) -> Value {
        self.get(&format!("/v1/sessions/{session}")).await
    }
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

/// A response without its request id, and with `ID` for this id.
async fn comparable(
    request: RequestBuilder,
    id: &str,
) -> (StatusCode, Vec<(String, String)>, String) {
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let mut headers = Vec::new();
    let mut request_id = String::new();
    for (name, value) in response.headers() {
        let text = value.to_str().expect("ASCII").replace(id, "ID");
        match name.as_str() {
            "x-request-id" => request_id = text,
            // The length of a request id varies.
            "date" | "content-length" => {}
            name => headers.push((name.to_owned(), text)),
        }
    }
    let body = response.text().await.expect("a body");
    assert!(!request_id.is_empty(), "{headers:?}");
    let body = body.replace(&request_id, "REQUEST").replace(id, "ID");
    (status, headers, body)
}
