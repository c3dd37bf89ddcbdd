//! Requests of an agent that are not for permission: files and terminals that clients serve, forms and pages,
//! extensions.

mod answers;
mod elicitations;
mod ends;
mod extensions;
mod forms;
mod ids;
mod policy;

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::support::log::agent_text;
use crate::support::{Answer, Gateway, Setup};

/// Lines of an agent's entry: clients serve all that can be served.
const CLIENT: &str = "files = \"client\"\nterminals = \"client\"";

/// The command that asks this.
fn ask(method: &str, params: &str) -> String {
    format!("ask method={method} params={params}")
}

/// A session whose agent has sent this request. Returns its event.
async fn asking(setup: Setup, text: &str) -> (Gateway, String, Value) {
    let gateway = setup.start();
    let session = gateway.session("fake").await;
    let created = asked(&gateway, &session, text).await;
    (gateway, session, created)
}

/// Makes the agent send a request and returns its event. A client follows the session before.
async fn asked(gateway: &Gateway, session: &str, text: &str) -> Value {
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events?after=tail"))
        .await;
    gateway.prompt(session, text).await;
    loop {
        let event = stream.next().await.expect("the stream goes on");
        if event.of("request.created") {
            return event.data;
        }
    }
}

/// Answers with exactly these bytes.
async fn answer(gateway: &Gateway, session: &str, path: &str, body: &str) -> Answer {
    let request = gateway.request(Method::POST, &format!("/v1/sessions/{session}/{path}"));
    Answer::of(
        request
            .header("Content-Type", "application/json")
            .body(body.to_owned()),
    )
    .await
}

async fn answer_accepted(gateway: &Gateway, session: &str, path: &str, body: &str) {
    let answer = answer(gateway, session, path, body).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{body}: {answer:?}");
}

/// Waits for the end of the only turn. Returns the log.
async fn end(gateway: &Gateway, session: &str) -> Vec<Value> {
    gateway
        .log_until(session, |event| event["type"] == "prompt.completed")
        .await;
    gateway.lawful(session).await
}

/// The text of the agent about the responses it received, after the end of the only turn.
async fn final_text(gateway: &Gateway, session: &str) -> String {
    agent_text(&end(gateway, session).await)
}

/// The pointers of a problem with the body.
#[track_caller]
fn pointers(answer: Answer) -> Vec<String> {
    let problem = answer.problem(422, "invalid");
    let errors = problem["errors"].as_array().expect("errors").clone();
    errors
        .iter()
        .map(|error| error["pointer"].as_str().expect("a pointer").to_owned())
        .collect()
}
