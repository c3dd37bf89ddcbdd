//! Broadcasts: `POST /v1/broadcasts` to processes, sessions and members, with a report of each target.

mod limits;
mod members;
mod notifications;
mod prompts;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gateway};

pub(crate) const PATH: &str = "/v1/broadcasts";

/// The agent `fake`, which appends every line that it receives to a file.
pub(crate) struct Log(tempfile::TempPath);

impl Log {
    pub(crate) fn new() -> Self {
        Self(
            tempfile::NamedTempFile::new()
                .expect("a temporary file")
                .into_temp_path(),
        )
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }

    /// The params of the broadcasts that processes have received.
    pub(crate) fn broadcasts(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.0).expect("the file is ours");
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let received = lines.filter(|line| line["method"] == "_acp-gateway/broadcast");
        received.map(|line| line["params"].clone()).collect()
    }
}

async fn send(gateway: &Gateway, body: &Value) -> Value {
    let answer = Answer::of(gateway.request(Method::POST, PATH).json(body)).await;
    assert_eq!(answer.status, 200, "{}\n{}", answer.body, gateway.log());
    answer.body
}

async fn announce(gateway: &Gateway, to: &Value) -> Value {
    send(
        gateway,
        &json!({ "type": "announcement", "content": "hello", "to": to }),
    )
    .await
}

/// The reason of each target that was not reached.
pub(crate) fn reasons(report: &Value) -> Vec<&str> {
    let items = report["notReached"].as_array().expect("a list").iter();
    items
        .map(|item| item["reason"].as_str().expect("a reason"))
        .collect()
}

pub(crate) fn reached(report: &Value) -> &Vec<Value> {
    report["reached"].as_array().expect("a list")
}
