//! Every payload of ACP passes byte for byte, with members that no schema knows, in both directions. The examples go
//! by the schema crate's own list: a new kind without one fails.

mod answers;
mod by_name;
pub(crate) mod examples;
mod requests;
mod spelling;
mod updates;

use std::collections::HashMap;

use reqwest::Method;
use serde_json::value::RawValue;

use crate::support::{Gateway, Setup};

/// An event with its members as they are spelled.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
struct Raw(HashMap<String, Box<RawValue>>);

impl Raw {
    fn of(&self, kind: &str) -> bool {
        self.get("type") == format!("\"{kind}\"")
    }

    /// The bytes of a member; empty when there is none.
    fn get(&self, member: &str) -> &str {
        self.0.get(member).map_or("", |raw| raw.get())
    }
}

fn object(text: &str) -> Raw {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The session's log as it is read in one of its forms, to its end.
async fn read(gateway: &Gateway, session: &str, accept: &str) -> String {
    let path = format!("/v1/sessions/{session}/events?follow=false&limit=1000");
    let path = if accept == "application/json" {
        path.replace("follow=false&", "")
    } else {
        path.replace("&limit=1000", "")
    };
    let answer = gateway
        .request(Method::GET, &path)
        .header("Accept", accept)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 200);
    answer.text().await.expect("a body")
}

/// The session's log. All ways to read it return the same bytes.
async fn log(gateway: &Gateway, session: &str) -> Vec<Raw> {
    let ndjson = read(gateway, session, "application/x-ndjson").await;
    let lines: Vec<&str> = ndjson
        .lines()
        .filter(|line| line.contains("\"seq\":"))
        .collect();
    let sse = read(gateway, session, "text/event-stream").await;
    let data: Vec<&str> = sse
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    let data: Vec<&str> = data
        .into_iter()
        .filter(|line| line.contains("\"seq\":"))
        .collect();
    assert_eq!(lines, data);
    let page = read(gateway, session, "application/json").await;
    let page: Vec<Box<RawValue>> =
        serde_json::from_str(object(&page).get("events")).expect("a list");
    assert_eq!(
        lines,
        page.iter().map(|event| event.get()).collect::<Vec<_>>()
    );
    lines.into_iter().map(object).collect()
}

/// A gateway whose agent answers these methods with these results and records its input. `more` contains lines of its
/// entry.
fn answering(answers: &[(&str, String)], more: &str) -> Gateway {
    let lines: Vec<String> = answers
        .iter()
        .map(|(method, answer)| format!("{method} {answer}"))
        .collect();
    // Its working folder is its HOME, and it is not started before the first session.
    let args = ["--log", "received", "--answers", "../../../../answers"];
    let gateway = Setup::fake_with(&args, more).start();
    std::fs::write(gateway.path("answers"), lines.join("\n")).expect("the folder is ours");
    gateway
}

/// Sends JSON unchanged and returns the response unchanged. (The usual helper parses numbers as floats and decodes
/// strings.)
async fn send(gateway: &Gateway, method: Method, path: &str, body: &str) -> (u16, String) {
    let call = gateway
        .request(method, path)
        .header("Content-Type", "application/json");
    let answer = call
        .header("Prefer", "wait=60")
        .body(body.to_owned())
        .send()
        .await
        .expect("an answer");
    (
        answer.status().as_u16(),
        answer.text().await.expect("a body"),
    )
}

async fn create(gateway: &Gateway) -> String {
    let (status, session) =
        send(gateway, Method::POST, "/v1/sessions", r#"{"agent":"fake"}"#).await;
    assert_eq!(status, 201, "{session}");
    object(&session)
        .get("sessionId")
        .trim_matches('"')
        .to_owned()
}

/// Runs a turn in which the fake agent sends these lines. Returns the prompt at its end.
async fn says(gateway: &Gateway, session: &str, lines: &[String]) -> Raw {
    let text = serde_json::Value::from(format!("raw {}", lines.join("\n")));
    let path = format!("/v1/sessions/{session}/prompts");
    let (status, prompt) = send(
        gateway,
        Method::POST,
        &path,
        &format!(r#"{{"prompt":{text}}}"#),
    )
    .await;
    assert_eq!(status, 200, "{prompt}");
    object(&prompt)
}

/// Lines that the agent received.
fn received(gateway: &Gateway) -> Vec<String> {
    let text = std::fs::read_to_string(gateway.path("data/homes/default/fake/received"))
        .expect("the agent records its input");
    text.lines().map(str::to_owned).collect()
}
