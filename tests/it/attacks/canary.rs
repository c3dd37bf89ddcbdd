//! Secrets during a whole life of a gateway with the most detailed log: none appears in a log, a process list, an error
//! or a file, except at the places of its row in `Canary`.

mod scan;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use self::scan::{Canary, Scan};
use crate::key_life::{key, key_command};
use crate::route_walk::operations::operations_on;
use crate::support::gateway::KEY;
use crate::support::places::fake_agent;
use crate::support::procfs::descendants;
use crate::support::{Gateway, Setup, eventually, figure};

const ENV: &str = "canary-of-the-environment-2b7e151628aed2a6";
const FILE: &str = "canary-of-a-file-abf7158809cf4f3c";
const CHANGED: &str = "canary-of-the-changed-file-6bc1bee22e409f96";
const HEADER: &str = "canary-of-a-header-e93d7e117393172a";
const SIGN_IN: &str = "canary-of-a-sign-in-ae2d8a571e03ac9c";
const PROMPT: &str = "canary-of-a-prompt-9eb76fac45af8e51";

const PATIENCE: Duration = Duration::from_secs(20);
const METHODS: &str = r#"{"id":"gemini-api-key","name":"Key"}"#;
/// Writes its secrets to stderr, then becomes the scripted agent.
const LEAKING: &str =
    r#"echo "leaked: $ENV_SECRET $FILE_SECRET $OTEL_EXPORTER_OTLP_HEADERS" >&2; exec "$0" "$@""#;
const FAILING: &str = r#"echo "cannot start with $ENV_SECRET" >&2; exit 3"#;
const ENTRY: &str = "env = { ENV_SECRET = { from_env = \"GATEWAY_SECRET\" }, FILE_SECRET = { from_file = \"SECRET_FILE\" } }\n";

fn canary(name: &'static str, text: &str, files: &'static [&'static str]) -> Canary {
    Canary {
        name,
        text: text.to_owned(),
        files,
        agents: &[],
        in_gateway: false,
    }
}

fn canaries() -> Vec<Canary> {
    let agents: &[&str] = &["stateful", "failing"];
    vec![
        Canary {
            agents,
            in_gateway: true,
            ..canary("env", ENV, &[])
        },
        Canary {
            agents,
            ..canary("file", FILE, &[])
        },
        Canary {
            agents,
            ..canary("changed", CHANGED, &["secret"])
        },
        Canary {
            in_gateway: true,
            ..canary("header", HEADER, &[])
        },
        canary("sign-in", SIGN_IN, &[]),
        // The log is the store of prompts, and the agent keeps its own state in its HOME.
        canary(
            "prompt",
            PROMPT,
            &[
                "data/private/log.sqlite",
                "data/homes/default/stateful/state",
            ],
        ),
        canary("admin key", KEY, &["admin-key"]),
    ]
}

fn setup(secret: &Path) -> Setup {
    let entry = ENTRY.replace("SECRET_FILE", secret.to_str().expect("UTF-8"));
    let (programs, _) = fake_agent().rsplit_once('/').expect("a folder");
    let entry = format!("folders = [{programs:?}]\n{entry}");
    let stateful = ["-c", LEAKING, fake_agent(), "--state", "state", "--mcp"];
    let locked = ["--auth-required", "--auth-file", "signed-in"];
    let served = "terminals = \"gateway\"\nfiles = \"gateway\"\nrpc = [\"_vendor/echo\"]\ntelemetry = true\n";
    Setup::default()
        .agent("stateful", "/bin/sh", &stateful, &format!("{entry}{served}"))
        .agent("failing", "/bin/sh", &["-c", FAILING], &entry)
        .agent("plain", fake_agent(), &[], "")
        .agent("keyed", fake_agent(), &["--auth-at-prompt", "--auth-methods", METHODS], "")
        .agent("locked", fake_agent(), &locked, "terminal_auth = true")
        .table("[mcp.docs]\nurl = \"https://mcp.example/docs\"\nheaders = { Authorization = { from_env = \"MCP_SECRET\" } }")
        .settings("telemetry.log_filter = \"trace\"\ntelemetry.otlp_endpoint = \"http://127.0.0.1:1\"\ntelemetry.otlp_headers = { x-key = { from_env = \"MCP_SECRET\" } }\nauth.max_failed_keys_per_minute = 100000\ntesting.min_backoff = \"10ms\"")
        .run_by(&["setsid"])
}

/// The run: a gateway, and a record of every error that it answered.
struct Run {
    gateway: Gateway,
    scan: Scan,
    errors: usize,
}

impl Run {
    /// Sends a request and searches its answer. The canaries in `but` may be in an answer that is no error.
    async fn send(&mut self, request: RequestBuilder, but: &[&str]) -> (u16, String) {
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let url = response.url().path().to_owned();
        let mut text = format!("{:?}\n", response.headers());
        let is_stream = response
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind == "text/event-stream");
        if status.is_client_error() || status.is_server_error() || !is_stream {
            text += &response.text().await.expect("a body");
        }
        let is_error = status.is_client_error() || status.is_server_error();
        self.errors += usize::from(is_error);
        self.scan.text(
            &format!("the answer {status} of {url}"),
            text.as_bytes(),
            if is_error { &[] } else { but },
        );
        (status.as_u16(), text)
    }

    async fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let request = self
            .gateway
            .request(Method::POST, path)
            .header("prefer", "wait=30")
            .json(body);
        let (status, text) = self.send(request, &["prompt"]).await;
        let body = text.split_once('\n').map_or("", |(_, body)| body);
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    async fn session(&mut self, agent: &str) -> String {
        let body = json!({ "agent": agent, "mcpServers": if agent == "stateful" { json!(["docs"]) } else { json!([]) } });
        let (status, session) = self.post("/v1/sessions", &body).await;
        assert_eq!(status, 201, "{session}");
        session["sessionId"].as_str().expect("an id").to_owned()
    }

    async fn turn(&mut self, session: &str, text: &str) -> Value {
        let (status, turn) = self
            .post(
                &format!("/v1/sessions/{session}/prompts"),
                &json!({ "prompt": text }),
            )
            .await;
        assert_eq!(status, 200, "{turn}");
        turn
    }

    fn look(&mut self) {
        let pid = self.gateway.pid();
        for token in telemetry_tokens(pid) {
            let is_known = |canary: &Canary| canary.text == token;
            if !self.scan.canaries.iter().any(is_known) {
                self.scan.canaries.push(Canary {
                    agents: &["stateful"],
                    ..canary("telemetry token", &token, &[])
                });
            }
        }
        self.scan.processes(pid);
    }
}

/// The tokens with which the running agents send their telemetry.
fn telemetry_tokens(gateway: u32) -> BTreeSet<String> {
    let mut tokens = BTreeSet::new();
    for pid in descendants(gateway) {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let variables = environment.split(|byte| *byte == 0);
        let header = b"OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20";
        let found = variables.filter_map(|variable| variable.strip_prefix(header));
        tokens.extend(found.map(|token| String::from_utf8_lossy(token).into_owned()));
    }
    tokens
}

/// Prompts, commands, errors of agents, and their ends.
async fn work(run: &mut Run) -> String {
    let session = run.session("stateful").await;
    let plain = run.session("plain").await;
    run.turn(&plain, "hello").await;
    run.turn(&session, &format!("echo {PROMPT}")).await;
    let script = "echo $ENV_SECRET $FILE_SECRET; env; sleep 0.2";
    let steps = json!([{ "create": { "command": "sh", "args": ["-c", script] } }, "wait", "output", "release"]);
    run.turn(&session, &format!("terminal {steps}")).await;
    // The collector does not exist.
    let sent = run.turn(&session, "telemetry").await;
    assert_eq!(sent["text"], "502", "{sent}");
    run.look();
    let error = json!({ "code": -32603, "message": "no model", "data": { "details": "none" } });
    run.turn(&session, &format!("raw fail {error}")).await;
    run.turn(&session, "garbage; bad-utf8; stderr text=noise")
        .await;
    let crash = run
        .turn(&session, &format!("crash code=42 text={PROMPT}"))
        .await;
    assert_eq!(crash["error"]["code"], "agent_exited", "{crash}");
    run.turn(&session, "crash signal=KILL").await;
    let (status, _) = run
        .post("/v1/sessions", &json!({ "agent": "failing" }))
        .await;
    assert!(status >= 500, "{status}");
    run.post(
        "/v1/agents/failing/rpc",
        &json!({ "method": "_vendor/echo" }),
    )
    .await;
    session
}

/// Sign-ins with a key and at a terminal.
async fn sign_in(run: &mut Run) {
    let session = run.session("keyed").await;
    run.turn(&session, "hello").await;
    for key in [SIGN_IN, ""] {
        let body = json!({ "methodId": "gemini-api-key", "apiKey": key });
        run.post("/v1/agents/keyed/auth", &body).await;
    }
    run.turn(&session, "hello").await;
    let (status, offered) = run
        .post("/v1/agents/locked/auth", &json!({ "methodId": "shell" }))
        .await;
    assert_eq!(status, 201, "{offered}");
    let path = offered["url"].as_str().expect("a path").to_owned();
    let ticket = ticket(run, &path).await;
    let address = run.gateway.address();
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    let head = format!(
        "GET {path}?ticket={ticket} HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.expect("it is open");
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 101");
}

/// A ticket for a path. It becomes a canary.
async fn ticket(run: &mut Run, path: &str) -> String {
    let request = run
        .gateway
        .request(Method::POST, "/v1/tickets")
        .json(&json!({ "paths": [path] }));
    let answer: Value = request
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    let ticket = answer["ticket"].as_str().expect("a ticket").to_owned();
    run.scan.canaries.push(canary("ticket", &ticket, &[]));
    ticket
}

/// Every route with a key in the wrong place, a wrong method, a wrong host, and invalid bodies.
async fn misuse(run: &mut Run, session: &str, key: &str) {
    let ticket = ticket(run, &format!("/v1/sessions/{session}/events")).await;
    let http = run.gateway.http.clone();
    let url = run.gateway.url.clone();
    let keyed = |operation: &crate::route_walk::operations::Operation, query: &str| {
        http.request(
            operation.method.clone(),
            format!("{url}{}{query}", operation.path),
        )
    };
    for operation in operations_on(session, "stateful") {
        let ends = ["DELETE", "PATCH"].contains(&operation.method.as_str())
            || operation.path.ends_with("/close");
        for query in [
            format!("?key={key}"),
            format!("?ticket={ticket}x"),
            format!("?after={key}&q={PROMPT}"),
        ] {
            run.send(keyed(&operation, &query), &["prompt"]).await;
        }
        run.send(keyed(&operation, "").bearer_auth(format!("{key}x")), &[])
            .await;
        run.send(
            keyed(&operation, "")
                .bearer_auth(key)
                .header("host", "evil.example"),
            &[],
        )
        .await;
        // The body of a file is its content.
        if operation.has_body && !operation.template.ends_with("/{path}") {
            for body in [
                format!(r#"{{"prompt":"{PROMPT}"#),
                format!(r#"{{"prompt":[{{"text":"{PROMPT}"}}]}}"#),
                format!("[\"{PROMPT}\"]"),
            ] {
                let request = keyed(&operation, "")
                    .bearer_auth(KEY)
                    .header("content-type", "application/json");
                run.send(request.body(body), &["prompt"]).await;
            }
        } else if !operation.has_body && !ends {
            run.send(keyed(&operation, "").bearer_auth(key), &["prompt"])
                .await;
        }
    }
    run.send(
        http.get(format!(
            "{url}/v1/sessions/{session}/events/stream?ticket={ticket}"
        )),
        &[],
    )
    .await;
}

/// The document for bug reports, with the stderr of two agents, and the list of keys.
async fn diagnostics(run: &mut Run) {
    let request = run.gateway.request(Method::GET, "/v1/diagnostics");
    let (status, text) = run.send(request, &[]).await;
    assert_eq!(status, 200, "{text}");
    for stderr in ["leaked: [secret]", "cannot start with [secret]"] {
        assert!(text.contains(stderr), "{text}");
    }
    run.send(run.gateway.request(Method::GET, "/v1/keys"), &[])
        .await;
}

async fn logged(gateway: &Gateway, text: &str) {
    eventually(text, PATIENCE, || async {
        gateway.log().contains(text).then_some(())
    })
    .await;
}

/// A gateway without a configured admin key prints a link. Returns the key of the link after some requests with it.
async fn link(run: &mut Run) -> String {
    let mut serve = run.gateway.serve("127.0.0.1:0");
    let log = std::fs::File::create(run.gateway.path("link-stderr")).expect("the folder is ours");
    serve
        .env_remove("ACP_GATEWAY_ADMIN_KEY_FILE")
        .stdout(Stdio::piped())
        .stderr(log);
    let mut child = serve.spawn().expect("the binary was built");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped"))
        .read_line(&mut line)
        .expect("text");
    let (address, key) = line.trim().split_once("/#key=").expect("a link");
    run.scan.canaries.push(canary("link", key, &[]));
    run.send(
        run.gateway
            .http
            .get(format!("{address}/v1/sessions"))
            .bearer_auth(key),
        &["prompt"],
    )
    .await;
    run.send(
        run.gateway
            .http
            .get(format!("{address}/v1/sessions?key={key}")),
        &[],
    )
    .await;
    run.send(
        run.gateway
            .http
            .delete(format!("{address}/v1/agents/keyed/auth"))
            .bearer_auth(key),
        &[],
    )
    .await;
    run.scan.processes(child.id());
    child.kill().expect("it runs");
    child.wait().expect("it is our child");
    key.to_owned()
}

#[tokio::test]
async fn no_secret_is_in_a_log_a_process_list_an_error_or_a_file() {
    let secrets = tempfile::tempdir().expect("a temporary folder");
    let secret = secrets.path().join("secret");
    std::fs::write(&secret, FILE).expect("the folder is ours");
    let gateway = setup(&secret).start_with(|folder| {
        std::fs::create_dir(folder.join("tmp")).expect("the folder is ours");
        let tmp = folder.join("tmp").into_os_string();
        vec![
            ("GATEWAY_SECRET", ENV.into()),
            ("MCP_SECRET", HEADER.into()),
            ("TMPDIR", tmp),
        ]
    });
    let mut run = Run {
        gateway,
        scan: Scan::of(canaries()),
        errors: 0,
    };
    let named = key(&run.gateway, "ada", "read,prompt,approve,files").await;
    run.scan.canaries.push(canary("key", &named, &[]));
    let session = work(&mut run).await;
    sign_in(&mut run).await;
    misuse(&mut run, &session, &named).await;
    run.send(run.gateway.request(Method::GET, "/metrics"), &[])
        .await;
    diagnostics(&mut run).await;
    run.look();

    // A reload with another secret, a reload that fails, the end of a key, a kill within a turn, a drain.
    std::fs::write(&secret, CHANGED).expect("the folder is ours");
    run.gateway.signal(Signal::HUP);
    logged(&run.gateway, "the configuration was reloaded").await;
    let second = run.session("stateful").await;
    run.turn(&second, &format!("echo {PROMPT}")).await;
    run.look();
    let config = std::fs::read_to_string(run.gateway.path("config.toml")).expect("it is ours");
    std::fs::write(
        run.gateway.path("config.toml"),
        format!("{config}\nwrong = 1\n"),
    )
    .expect("it is ours");
    run.gateway.signal(Signal::HUP);
    logged(&run.gateway, "the configuration was not reloaded").await;
    std::fs::write(run.gateway.path("config.toml"), config).expect("it is ours");
    let listed = key_command(&run.gateway, &["list"]);
    run.scan.text("the list of keys", listed.as_bytes(), &[]);
    let revoked = key_command(&run.gateway, &["revoke", "ada"]);
    run.scan.text("the end of a key", revoked.as_bytes(), &[]);
    run.gateway
        .prompt(&second, &format!("stream n=3; hang; echo {PROMPT}"))
        .await;
    run.gateway.kill();
    run.gateway.start();
    run.turn(&second, "hello").await;
    run.send(
        run.gateway
            .http
            .get(format!("{}/v1", run.gateway.url))
            .bearer_auth(&named),
        &[],
    )
    .await;
    run.look();
    assert_eq!(run.gateway.stop(), Some(0));
    link(&mut run).await;

    let folder = run.gateway.path("");
    run.scan.files(&folder);
    run.scan.assert_none_leaked();
    figure(&format!(
        "{} errors, {} bytes of log, {} allowed places",
        run.errors,
        run.gateway.log().len(),
        run.scan.found.len()
    ));
    assert!(run.errors > 200, "only {} errors were answered", run.errors);
    assert!(
        run.gateway.log().contains("\"level\":\"DEBUG\""),
        "the log is detailed"
    );
    assert!(
        run.scan.saw("prompt", "log.sqlite"),
        "the scan reads files: {:?}",
        run.scan.found
    );
    assert!(
        run.scan.saw("env", "homes/default/stateful"),
        "the scan reads environments: {:?}",
        run.scan.found
    );
    assert!(
        run.scan.saw("telemetry token", "homes/default/stateful"),
        "{:?}",
        run.scan.found
    );
    assert!(
        run.scan.saw("admin key", "admin-key"),
        "{:?}",
        run.scan.found
    );
}
