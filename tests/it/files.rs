//! Files of a session: reachable paths, operations of agents and clients, and attachments of prompts.

mod agent;
mod attachments;
mod attacks;
mod bytes;
mod lists;
mod paths;
mod writes;

use std::fmt::Write as _;

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::support::{Gateway, Setup};

/// A gateway with a session, and the session's own folder.
struct Ground {
    gateway: Gateway,
    session: String,
    cwd: String,
}

impl Ground {
    async fn new(setup: Setup, body: &Value) -> Self {
        let gateway = setup.start();
        let (status, session) = gateway.post("/v1/sessions", body).await;
        assert_eq!(status, StatusCode::CREATED, "{session}\n{}", gateway.log());
        let text = |name: &str| session[name].as_str().expect("a text").to_owned();
        let session = text("sessionId");
        let cwd = text("cwd");
        Self {
            gateway,
            session,
            cwd,
        }
    }

    async fn fake() -> Self {
        Self::new(Setup::fake(&[]), &json!({ "agent": "fake" })).await
    }

    fn url(&self, path: &str) -> String {
        format!("/v1/sessions/{}/files{path}", self.session)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.gateway.request(method, &self.url(path))
    }

    async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path)
            .send()
            .await
            .expect("an answer")
    }

    async fn put(&self, path: &str, text: &str) -> Response {
        self.request(Method::PUT, path)
            .body(text.to_owned())
            .send()
            .await
            .expect("an answer")
    }

    /// The content of the file on the disk.
    fn on_disk(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(format!("{}/{name}", self.cwd)).ok()
    }

    fn make(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = std::path::PathBuf::from(format!("{}/{name}", self.cwd));
        std::fs::create_dir_all(path.parent().expect("a file lies in a folder"))
            .expect("the folder is ours");
        std::fs::write(path, bytes).expect("the folder is ours");
    }
}

/// The status and the headers of the file, with placeholders for values that differ for each run.
fn shown(response: &Response) -> String {
    const HEADERS: [&str; 10] = [
        "accept-ranges",
        "cache-control",
        "content-disposition",
        "content-length",
        "content-range",
        "content-security-policy",
        "content-type",
        "etag",
        "location",
        "x-content-type-options",
    ];
    let mut shown = response.status().to_string();
    for name in HEADERS {
        let Some(value) = response.headers().get(name) else {
            continue;
        };
        let value = value.to_str().expect("ASCII");
        let value = match (name, value.split_once("/files/")) {
            ("etag", _) => "[etag]",
            ("location", Some((_, path))) => path,
            _ => value,
        };
        write!(shown, "\n{name}: {value}").expect("a string can be written to");
    }
    shown
}

fn etag(response: &Response) -> String {
    response.headers()["etag"]
        .to_str()
        .expect("ASCII")
        .to_owned()
}
