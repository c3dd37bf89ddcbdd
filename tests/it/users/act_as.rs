//! A program with the scope `actAs` serves several people: each has its own sessions.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::{LIMITS, User};
use crate::key_life::{by, created};
use crate::store::migration::run;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Events, Gateway, Setup};

const SCOPES: &str = "read,prompt,approve,files,actAs";

/// A program, and the person for whom it sends requests.
struct Acting<'a> {
    gateway: &'a Gateway,
    key: String,
    name: &'a str,
}

impl Acting<'_> {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        by(self.gateway, &self.key, method, path).header("x-acp-user", self.name)
    }

    async fn call(&self, method: Method, path: &str) -> Answer {
        Answer::of(self.request(method, path)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(body)).await
    }

    async fn session(&self) -> String {
        let answer = self.post("/v1/sessions", &json!({ "agent": "fake" })).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.body["sessionId"].as_str().expect("an id").to_owned()
    }

    async fn sessions(&self) -> usize {
        let list = self.call(Method::GET, "/v1/sessions").await;
        list.body["sessions"].as_array().expect("a list").len()
    }

    /// Sends a chat completion for the user in the body, without a conversation.
    async fn complete(&self, user: &str, text: &str) -> Answer {
        let request = by(
            self.gateway,
            &self.key,
            Method::POST,
            "/openai/v1/chat/completions",
        );
        let body = json!({
            "model": "fake", "user": user, "messages": [{ "role": "user", "content": text }]
        });
        Answer::of(request.json(&body)).await
    }
}

fn gateway() -> Gateway {
    Setup::fake(&[]).settings(LIMITS).start()
}

async fn program(gateway: &Gateway) -> String {
    created(gateway, &["create", "webui", "--scopes", SCOPES]).await
}

fn acting<'a>(gateway: &'a Gateway, key: &str, name: &'a str) -> Acting<'a> {
    Acting {
        gateway,
        key: key.to_owned(),
        name,
    }
}

fn code(answer: &Answer) -> (StatusCode, &str) {
    let code = answer.body["code"].as_str().unwrap_or_default();
    (answer.status, code)
}

#[tokio::test]
async fn each_person_of_a_program_has_private_sessions() {
    let gateway = gateway();
    let key = program(&gateway).await;
    let [ann, ben] =
        ["ann@example.org", "ben@example.org"].map(|name| acting(&gateway, &key, name));
    let session = ann.session().await;
    let path = format!("/v1/sessions/{session}");
    let own = ann.call(Method::GET, &path).await;
    assert_eq!(own.body["owner"], "ann@example.org", "{own:?}");
    assert_eq!(
        code(&ben.call(Method::GET, &path).await),
        (StatusCode::NOT_FOUND, "not_found")
    );
    assert_eq!([ann.sessions().await, ben.sessions().await], [1, 0]);
    // The program itself is a user of its own.
    let itself = by(&gateway, &key, Method::GET, &path);
    assert_eq!(Answer::of(itself).await.status, StatusCode::NOT_FOUND);

    let rights = ann.call(Method::GET, "/v1").await;
    assert_eq!(
        rights.body["principal"]["id"], "ann@example.org",
        "{rights:?}"
    );
    assert_eq!(
        rights.body["scopes"],
        json!(["read", "prompt", "approve", "files"])
    );
    let refused = ann.post("/v1/keys", &json!({ "name": "mine" })).await;
    assert_eq!(code(&refused), (StatusCode::FORBIDDEN, "forbidden"));

    // A key of the person finds the same sessions.
    let words = ["create", "laptop", "--user", "ann@example.org"];
    let person = User {
        gateway: &gateway,
        key: created(&gateway, &words).await,
    };
    person.get(&path).await;
}

#[tokio::test]
async fn name_without_the_scope_means_nothing() {
    let gateway = gateway();
    let key = created(&gateway, &["create", "alice"]).await;
    let alice = acting(&gateway, &key, "bob");
    let session = alice.session().await;
    let own = by(
        &gateway,
        &key,
        Method::GET,
        &format!("/v1/sessions/{session}"),
    );
    assert_eq!(Answer::of(own).await.body["owner"], "alice");
    let (is_done, users) = run(&gateway, &["user", "list"]);
    assert!(is_done && !users.contains("bob"), "{users}");
}

#[tokio::test]
async fn users_that_a_program_must_not_name_are_refused() {
    let gateway = gateway();
    let key = program(&gateway).await;
    created(&gateway, &["create", "root", "--scopes", "admin"]).await;
    created(&gateway, &["create", "other", "--scopes", SCOPES]).await;
    for role in ["operator", "admin"] {
        let name = format!("with-{role}");
        created(&gateway, &["create", &name]).await;
        let (is_done, text) = run(&gateway, &["user", "update", &name, "--role", role]);
        assert!(is_done, "{text}");
    }
    let privileged = [
        "owner",
        "root",
        "other",
        "webui",
        "with-operator",
        "with-admin",
    ];
    for name in privileged.into_iter().chain(["no spaces", "a/b", ""]) {
        eventually(name, LONGEST, || async {
            let answer = acting(&gateway, &key, name)
                .call(Method::GET, "/v1/sessions")
                .await;
            (code(&answer) == (StatusCode::FORBIDDEN, "forbidden")).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn deactivated_person_loses_its_streams_and_the_program_its_access() {
    let gateway = gateway();
    let key = program(&gateway).await;
    let [ann, ben] = ["ann", "ben"].map(|name| acting(&gateway, &key, name));
    let mut streams = Vec::new();
    for person in [&ann, &ben] {
        let session = person.session().await;
        let path = format!("/v1/sessions/{session}/events/stream");
        let request = person.request(Method::GET, &path);
        let mut stream = Events::new(request.send().await.expect("an answer"));
        stream.until("ready").await;
        streams.push(stream);
    }
    let ticket = json!({ "paths": ["/v1/events/stream"] });
    let ticket = ann.post("/v1/tickets", &ticket).await;
    let ticket = ticket.body["ticket"].as_str().expect("a ticket").to_owned();
    let url = format!("{}/v1/events/stream?ticket={ticket}", gateway.url);
    let mut by_ticket = Events::new(gateway.http.get(url).send().await.expect("an answer"));
    by_ticket.until("ready").await;

    let (is_done, text) = run(&gateway, &["user", "update", "ann", "--active", "false"]);
    assert!(is_done, "{text}");
    let of_ben = streams.pop().expect("two streams");
    let of_ann = streams.pop().expect("two streams");
    for stream in [of_ann, by_ticket] {
        let last = stream.rest().await.pop().expect("the end of the stream");
        assert_eq!(last.data["problem"]["code"], "unauthorized", "{last:?}");
    }
    let refused = ann.call(Method::GET, "/v1/sessions").await;
    assert_eq!(code(&refused), (StatusCode::FORBIDDEN, "forbidden"));
    assert_eq!(ben.sessions().await, 1);
    drop(of_ben);
}

#[tokio::test]
async fn program_creates_a_limited_number_of_users() {
    let gateway = Setup::fake(&[])
        .settings(LIMITS)
        .settings("auth.max_users_per_program = 3")
        .start();
    let key = program(&gateway).await;
    let names: Vec<String> = (0..8).map(|number| format!("person-{number}")).collect();
    let people = names.iter().map(|name| acting(&gateway, &key, name));
    let people: Vec<_> = people.collect();
    let answers = people
        .iter()
        .map(|person| person.call(Method::GET, "/v1/sessions"));
    let answers = futures_util::future::join_all(answers).await;
    let admitted = answers
        .iter()
        .filter(|answer| answer.status == StatusCode::OK);
    assert_eq!(admitted.count(), 3, "{answers:?}");
    let refused = answers
        .iter()
        .find(|answer| answer.status != StatusCode::OK);
    let refused = refused.expect("five are refused");
    assert_eq!(code(refused), (StatusCode::FORBIDDEN, "forbidden"));
    let (is_done, users) = run(&gateway, &["user", "list"]);
    assert!(is_done, "{users}");
    assert_eq!(users.matches("person-").count(), 3, "{users}");
}

#[tokio::test]
async fn user_of_a_chat_completion_is_the_person() {
    let gateway = gateway();
    let key = program(&gateway).await;
    let [ann, ben] = ["ann", "ben"].map(|name| acting(&gateway, &key, name));
    for name in ["ann", "ben"] {
        let answer = ann.complete(name, "echo the same words").await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }
    assert_eq!([ann.sessions().await, ben.sessions().await], [1, 1]);
    let refused = ann.complete("owner", "echo hello").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    // The header has precedence.
    let request = ann.request(Method::POST, "/openai/v1/chat/completions");
    let body = json!({
        "model": "fake", "user": "ben", "messages": [{ "role": "user", "content": "echo other words" }]
    });
    let answer = Answer::of(request.json(&body)).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!([ann.sessions().await, ben.sessions().await], [2, 1]);
    let request = by(&gateway, &key, Method::POST, "/openai/v1/responses");
    let body = json!({ "model": "fake", "user": "ben", "input": "echo a response" });
    let answer = Answer::of(request.json(&body)).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!([ann.sessions().await, ben.sessions().await], [2, 2]);

    // The role of the person limits what the program may do.
    let (is_done, text) = run(&gateway, &["user", "update", "ann", "--role", "viewer"]);
    assert!(is_done, "{text}");
    eventually("the role of ann", LONGEST, || async {
        let rights = ann.call(Method::GET, "/v1").await;
        (rights.body["scopes"] == json!(["read"])).then_some(())
    })
    .await;
    let refused = ann.complete("ann", "echo more").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    assert_eq!(ann.sessions().await, 2);
}
