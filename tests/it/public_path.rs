//! A gateway below a path of its public URL: every link of an answer works through the proxy, and clients that do not use the
//! proxy get links of the gateway itself.

use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, redirect};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::support::gateway::KEY;
use crate::support::places::fake_agent;
use crate::support::prefix_proxy::{Host, PATH, PrefixProxy, Served};
use crate::support::{Gateway, Setup};

/// A client of the public URL, which follows no redirect by itself.
struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.http.request(method, url).bearer_auth(KEY)
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Response {
        let request = self.request(method, &format!("{}{path}", self.base));
        let request = if body.is_null() {
            request
        } else {
            request.json(body)
        };
        request.send().await.expect("an answer")
    }

    /// Follows a link of the document at `from`. Returns its text.
    async fn follow(&self, from: &Url, link: &str) -> String {
        let url = from
            .join(link)
            .unwrap_or_else(|error| panic!("{link}: {error}"));
        assert!(
            url.as_str().starts_with(&self.base),
            "{link} of {from} leads to {url}"
        );
        let answer = self
            .request(Method::GET, url.as_str())
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{link} of {from}");
        answer.text().await.expect("a body")
    }

    /// Sends a request and follows the `Location` of its answer.
    async fn located(&self, method: Method, path: &str, body: &Value) -> (Value, String) {
        let answer = self.send(method, path, body).await;
        let status = answer.status();
        let url = answer.url().clone();
        let location = answer
            .headers()
            .get("location")
            .map(|value| value.to_str().expect("text").to_owned());
        let body = answer.text().await.expect("a body");
        let location = location.unwrap_or_else(|| panic!("{path}: {status} {body}"));
        assert!(location.starts_with(&format!("{PATH}/")), "{location}");
        let found = self.follow(&url, &location).await;
        (serde_json::from_str(&body).unwrap_or_default(), found)
    }
}

async fn started(host: Host) -> (Gateway, Client, Served, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("signed-in");
    let args = [
        "--fork",
        "--state",
        "state",
        "--auth-required",
        "--auth-file",
        file.to_str().expect("UTF-8"),
    ];
    std::fs::write(&file, "").expect("the folder is ours");
    let proxy = PrefixProxy::bind().await;
    let gateway = Setup::default()
        .agent("fake", fake_agent(), &args, "terminal_auth = true\n")
        .settings(&format!(
            "server.public_url = \"{}/\"\nserver.trusted_proxies = [\"127.0.0.1\"]",
            proxy.url()
        ))
        .start();
    let served = proxy.serve(&gateway.url, host);
    let http = reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none());
    let client = Client {
        http: http.build().expect("a client"),
        base: served.url.clone(),
    };
    (gateway, client, served, folder)
}

/// The values of an attribute in a page.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("{name}=\"");
    page.split(&*begin)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

async fn locations_work(client: &Client) -> String {
    let session = json!({ "agent": "fake" });
    let (created, found) = client.located(Method::POST, "/v1/sessions", &session).await;
    let session = created["sessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("{created}"))
        .to_owned();
    assert!(found.contains(&session));
    let path = format!("/v1/sessions/{session}");
    let prompt = json!({ "prompt": "echo a", "queue": true });
    for prompts in ["prompts", "prompts/stream"] {
        let (_, found) = client
            .located(Method::POST, &format!("{path}/{prompts}"), &prompt)
            .await;
        assert!(found.contains("promptId"), "{found}");
    }
    let wait = client
        .request(Method::GET, &format!("{}{path}/prompts/p2", client.base))
        .header("Prefer", "wait=60");
    assert_eq!(
        wait.send().await.expect("an answer").status(),
        StatusCode::OK
    );
    client
        .located(Method::POST, &format!("{path}/fork"), &Value::Null)
        .await;
    let (_, found) = client
        .located(
            Method::PUT,
            &format!("{path}/files/a/b.txt"),
            &json!("text"),
        )
        .await;
    assert_eq!(found, "\"text\"");
    let task = json!({ "agent": "fake", "description": "echo task" });
    client.located(Method::POST, "/v1/tasks", &task).await;
    session
}

async fn documents_work(client: &Client) {
    let base = Url::parse(&format!("{}/", client.base)).expect("a URL");
    let page = client.follow(&base, "").await;
    let links: Vec<&str> = attributes(&page, "src")
        .into_iter()
        .chain(attributes(&page, "href"))
        .collect();
    assert!(links.len() > 3, "{page}");
    for link in links {
        client.follow(&base, link).await;
    }
    let (_, docs) = client.located(Method::GET, "/docs", &Value::Null).await;
    let docs_url = base.join("docs/").expect("a URL");
    for link in attributes(&docs, "src")
        .into_iter()
        .chain(attributes(&docs, "href"))
    {
        client.follow(&docs_url, link).await;
    }
    let script = client.follow(&docs_url, "swagger-initializer.js").await;
    let configured = script
        .split("\"url\": \"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let document = client
        .follow(&docs_url, configured.unwrap_or_else(|| panic!("{script}")))
        .await;
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let from = base.join("openapi.json").expect("a URL");
    let server = from
        .join(document["servers"][0]["url"].as_str().expect("a URL"))
        .expect("a URL");
    client.follow(&server, "v1").await;
    let tags = document["tags"].as_array().expect("tags").iter();
    let docs = tags
        .map(|tag| &tag["externalDocs"]["url"])
        .chain([&document["externalDocs"]["url"]]);
    for link in docs
        .filter_map(Value::as_str)
        .filter(|link| !link.starts_with("https://"))
    {
        let page = link.split('#').next().expect("a path");
        client.follow(&from, page).await;
    }
}

/// The `type` of problems, in the formats of REST and of the chat protocols.
async fn problems_work(client: &Client) {
    for (path, status) in [
        ("/v1/sessions/x", 422),
        ("/v1/nothing", 404),
        ("/openai/v1/models/nothing", 404),
    ] {
        let answer = client.send(Method::GET, path, &Value::Null).await;
        let url = answer.url().clone();
        let is_client_error = answer.status().is_client_error();
        let problem: Value = answer.json().await.expect("JSON");
        assert!(is_client_error, "{path}: {status} {problem}");
        let kind = problem["type"].as_str().expect("a reference");
        let page = client.follow(&url, kind).await;
        let code = kind.split('#').nth(1).expect("a fragment");
        assert!(page.contains(&format!("id=\"{code}\"")), "{kind}");
    }
}

async fn sign_in_works(client: &Client) {
    let body = json!({ "methodId": "shell" });
    let answer = client
        .send(Method::POST, "/v1/agents/fake/auth", &body)
        .await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let from = answer.url().clone();
    let location = answer.headers()["location"]
        .to_str()
        .expect("text")
        .to_owned();
    let offered: Value = answer.json().await.expect("JSON");
    assert_eq!(offered["url"], location);
    // A ticket for the path that the answer has, as a browser needs it.
    let ticket = client
        .send(Method::POST, "/v1/tickets", &json!({ "paths": [location] }))
        .await;
    assert_eq!(ticket.status(), StatusCode::CREATED);
    let ticket: Value = ticket.json().await.expect("JSON");
    let mut url = from.join(&location).expect("a URL");
    url.set_scheme("ws").expect("a scheme");
    url.set_query(Some(&format!(
        "ticket={}",
        ticket["ticket"].as_str().expect("text")
    )));
    let request = url.as_str().into_client_request().expect("a URL");
    let (socket, answer) = connect_async(request).await.expect("a socket");
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    drop(socket);
}

/// The links to the page and the streams that a ticket opens.
async fn page_link_and_stream_work(client: &Client, session: &str) {
    let request = json!({ "model": "fake", "stream": true, "messages": [{ "role": "user", "content": "permission" }] });
    let mut stream = client
        .send(Method::POST, "/openai/v1/chat/completions", &request)
        .await;
    let mut text = String::new();
    while !text.contains("/#/s/") {
        let chunk = stream
            .chunk()
            .await
            .expect("the stream goes on")
            .expect("it has not ended");
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(
        text.contains(&format!("Answer at {}/#/s/", client.base)),
        "{text}"
    );
    drop(stream);
    for path in [
        format!("/v1/sessions/{session}/events"),
        format!("{PATH}/v1/sessions/{session}/events"),
    ] {
        let ticket: Value = client
            .send(Method::POST, "/v1/tickets", &json!({ "paths": [path] }))
            .await
            .json()
            .await
            .expect("JSON");
        let ticket = ticket["ticket"]
            .as_str()
            .unwrap_or_else(|| panic!("{ticket}"));
        let url = format!(
            "{}/v1/sessions/{session}/events?ticket={ticket}",
            client.base
        );
        assert_eq!(
            client
                .http
                .get(&url)
                .send()
                .await
                .expect("an answer")
                .status(),
            StatusCode::OK
        );
    }
}

#[tokio::test]
async fn every_link_of_an_answer_works_below_the_path() {
    for host in [Host::Kept, Host::Replaced] {
        let (_gateway, client, _served, _folder) = started(host).await;
        let session = locations_work(&client).await;
        documents_work(&client).await;
        problems_work(&client).await;
        page_link_and_stream_work(&client, &session).await;
        sign_in_works(&client).await;
    }
}

#[tokio::test]
async fn client_without_the_proxy_gets_links_of_the_gateway() {
    let (gateway, _client, _served, _folder) = started(Host::Kept).await;
    let request = gateway
        .request(Method::POST, "/v1/sessions")
        .json(&json!({ "agent": "fake" }));
    let answer = request.send().await.expect("an answer");
    let location = answer.headers()["location"]
        .to_str()
        .expect("text")
        .to_owned();
    assert!(location.starts_with("/v1/sessions/"), "{location}");
    gateway.get(&location).await;
    let unknown = gateway
        .request(Method::GET, "/v1/nothing")
        .send()
        .await
        .expect("an answer");
    assert_eq!(
        unknown.json::<Value>().await.expect("JSON")["type"],
        "/docs/problems#not_found"
    );
    assert_eq!(gateway.get("/openapi.json").await["servers"][0]["url"], "/");
    let offered = gateway
        .post("/v1/agents/fake/auth", &json!({ "methodId": "shell" }))
        .await
        .1;
    assert!(
        offered["url"]
            .as_str()
            .is_some_and(|url| url.starts_with("/v1/agents/")),
        "{offered}"
    );
    // A ticket for a path below the public one would open no stream here.
    let foreign = json!({ "paths": [format!("{PATH}{location}/events")] });
    assert_eq!(
        gateway.post("/v1/tickets", &foreign).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
}

#[tokio::test]
async fn public_host_without_a_path_changes_no_link() {
    let gateway = Setup::fake(&[])
        .settings("server.public_url = \"https://gateway.example/\"")
        .start();
    let request = gateway
        .request(Method::POST, "/v1/sessions")
        .header("Host", "gateway.example");
    let answer = request
        .json(&json!({ "agent": "fake" }))
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert!(
        answer.headers()["location"]
            .to_str()
            .expect("text")
            .starts_with("/v1/sessions/")
    );
    let docs = gateway
        .request(Method::GET, "/docs/swagger-initializer.js")
        .send()
        .await
        .expect("an answer");
    assert!(
        docs.text()
            .await
            .expect("a body")
            .contains("\"../openapi.json\"")
    );
}
