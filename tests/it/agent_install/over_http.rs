//! `POST /v1/installation`: an administrator adds agents, and the gateway runs them without a restart.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use reqwest::Method;
use serde_json::{Value, json};

use super::packages::{binary_archive, executable, sha256};
use super::{binary_entry, entry, registry};
use crate::support::gateway::{binary, command};
use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup, eventually};

const PATH: &str = "/v1/installation";
const SECRET: &str = "key-of-the-operator";

/// A gateway whose registry is `registry.json` in its folder.
fn with_registry(setup: Setup) -> Gateway {
    setup.start_with(|folder| {
        let file = folder.join("registry.json").into_os_string();
        vec![
            ("ACP_GATEWAY__REGISTRY__SOURCE", file),
            ("GEMINI_API_KEY", SECRET.into()),
        ]
    })
}

/// The installation at its end.
async fn ended(gateway: &Gateway) -> Value {
    eventually("the installation ends", LONGEST, || async {
        let installation = gateway.get(PATH).await["installation"].clone();
        (installation["status"] != "running").then_some(installation)
    })
    .await
}

async fn install(gateway: &Gateway, body: Value) -> Value {
    let accepted = gateway.posted(PATH, &[], &body).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    assert_eq!(accepted.header("location"), Some(PATH));
    assert_eq!(accepted.body["status"], "running");
    ended(gateway).await
}

fn hello() -> Value {
    json!({ "agent": "hello", "from": "registry", "version": "1.0.0" })
}

async fn answer(gateway: &Gateway, agent: &str) -> String {
    let session = gateway.session(agent).await;
    let end = gateway.turn(&session, "hello").await;
    end["text"].as_str().expect("a text").to_owned()
}

async fn names(gateway: &Gateway) -> Vec<String> {
    let agents = gateway.get("/v1/agents").await["agents"].clone();
    let agents = agents.as_array().expect("agents").iter();
    agents
        .map(|agent| agent["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn config(gateway: &Gateway) -> String {
    fs::read_to_string(gateway.path("config.toml")).expect("a file")
}

/// The events of installations, each as actor, type and outcome. The log has them soon after the installation.
async fn audited(gateway: &Gateway, count: usize) -> Vec<Value> {
    eventually("the events are durable", LONGEST, || async {
        let page = gateway.get("/v1/audit?limit=1000").await;
        let events = page["events"].as_array().expect("events").iter();
        let events = events.filter(|event| {
            let kind = event["type"].as_str().unwrap_or_default();
            kind.starts_with("installation.")
        });
        let short = |event: &Value| {
            json!([
                event["actor"]["name"],
                event["type"],
                event["agent"],
                event["from"],
                event["outcome"]
            ])
        };
        let events: Vec<Value> = events.map(short).collect();
        (events.len() >= count).then_some(events)
    })
    .await
}

/// A server of one archive, which sends half of it, and the rest when the test permits it.
struct HalfArchive {
    url: String,
    reached: Receiver<()>,
    proceed: SyncSender<()>,
}

fn serve_in_halves(archive: &Path) -> HalfArchive {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!(
        "http://{}/hello.tar.gz",
        listener.local_addr().expect("an address")
    );
    let content = fs::read(archive).expect("a file");
    let (reach, reached) = sync_channel(1);
    let (proceed, proceeds) = sync_channel(1);
    let serve = move || {
        let (mut stream, _) = listener.accept().expect("a request");
        read_request(&mut stream);
        let (first, second) = content.split_at(content.len() / 2);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        let mut send = |bytes: &[u8]| stream.write_all(bytes).expect("the gateway reads");
        send(head.as_bytes());
        send(first);
        reach.send(()).expect("the test waits");
        // The test has failed if it is gone.
        if proceeds.recv().is_ok() {
            send(second);
        }
    };
    std::thread::Builder::new().spawn(serve).expect("a thread");
    HalfArchive {
        url,
        reached,
        proceed,
    }
}

fn read_request(stream: &mut TcpStream) {
    let mut request = [0; 4096];
    assert!(stream.read(&mut request).expect("a request") > 0);
}

#[tokio::test]
async fn administrator_installs_an_agent_of_the_registry() {
    let gateway = with_registry(Setup::fake(&[]));
    let archive = binary_archive(&gateway.path("hello.tar.gz"), &executable());
    let server = serve_in_halves(&archive);
    registry(
        &gateway,
        &[binary_entry("1.0.0", &server.url, Some(&sha256(&archive)))],
    );
    let offered = gateway.get("/v1/registry").await;
    assert_eq!(
        (&offered["configured"], &offered["agents"][0]["id"]),
        (&json!(true), &json!("hello"))
    );
    let before = gateway.get(PATH).await;
    assert_eq!(
        (&before["registry"]["configured"], &before["installation"]),
        (&json!(true), &Value::Null)
    );

    let first = gateway.posted(PATH, &[], &hello()).await;
    assert_eq!(first.status, 202, "{first:?}");
    server.reached.recv_timeout(LONGEST).expect("a download");
    let running = eventually("the download has progress", LONGEST, || async {
        let running = gateway.get(PATH).await["installation"].clone();
        (running["bytes"].as_u64() > Some(0)).then_some(running)
    })
    .await;
    assert_eq!(running["step"], "downloading hello.tar.gz");
    assert_eq!(
        running["totalBytes"],
        fs::metadata(&archive).expect("a file").len()
    );
    // A second press changes nothing.
    let second = gateway.posted(PATH, &[], &hello()).await;
    second.problem(409, "installation_running");
    server.proceed.send(()).expect("the server waits");

    let done = ended(&gateway).await;
    assert_eq!(
        (&done["status"], &done["step"], &done["bytes"]),
        (
            &json!("succeeded"),
            &json!("starting the agent"),
            &Value::Null
        ),
        "{done}"
    );
    assert_eq!(done["configFile"], json!(gateway.path("config.toml")));
    // Its entry is in effect when the installation ends.
    assert_eq!(answer(&gateway, "hello").await, "hello from world");
    assert!(config(&gateway).contains("[agents.hello]"));
    let again = gateway.posted(PATH, &[], &hello()).await;
    again.problem(422, "invalid");
    assert_eq!(
        audited(&gateway, 2).await,
        [
            json!(["owner", "installation.started", "hello", "registry", null]),
            json!(["owner", "installation.ended", "hello", null, "succeeded"]),
        ]
    );
}

/// A server that closes each connection. Returns its address.
fn close_connections() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    // The thread ends with the process of the tests.
    let serve = move || listener.incoming().for_each(drop);
    std::thread::Builder::new().spawn(serve).expect("a thread");
    address
}

#[tokio::test]
async fn failed_installation_has_its_reason_and_leaves_nothing() {
    let gateway = with_registry(Setup::fake(&[]));
    let hash = sha256(&binary_archive(
        &gateway.path("hello.tar.gz"),
        &executable(),
    ));
    let before = config(&gateway);
    let wrong = "0".repeat(64);
    let address = close_connections();
    let url = format!("http://user:{SECRET}@{address}/hello.tar.gz?token={SECRET}");
    let failed_load = format!("could not load http://{address}/hello.tar.gz");
    for (entries, reason) in [
        (vec![binary_entry("1.0.0", &url, None)], &*failed_load),
        (
            vec![binary_entry("1.0.0", "hello.tar.gz", Some(&wrong))],
            &*hash,
        ),
        (
            vec![binary_entry("1.1.0", "hello.tar.gz", None)],
            "has version 1.1.0 of hello, not 1.0.0",
        ),
        (vec![], "no agent"),
    ] {
        registry(&gateway, &entries);
        let failed = install(&gateway, hello()).await;
        assert_eq!(failed["status"], "failed", "{reason}: {failed}");
        let detail = failed["detail"].as_str().expect("a reason");
        assert!(detail.contains(reason), "{reason}: {detail}");
        assert!(!detail.contains(SECRET), "{detail}");
        assert!(!super::is_installed(&gateway, "hello"), "{reason}");
        assert_eq!(config(&gateway), before, "{reason}");
    }
    let log = gateway.log();
    assert!(log.contains(&failed_load) && !log.contains(SECRET), "{log}");
    assert_eq!(names(&gateway).await, ["fake"]);
    let events = audited(&gateway, 8).await;
    assert_eq!(
        events.last(),
        Some(&json!([
            "owner",
            "installation.ended",
            "hello",
            null,
            "failed"
        ]))
    );
    // The next press succeeds.
    registry(&gateway, &[binary_entry("1.0.0", "hello.tar.gz", None)]);
    assert_eq!(install(&gateway, hello()).await["status"], "succeeded");
}

/// An installation must not remove what the gateway offered before, and gives a known agent the key of its provider.
#[tokio::test]
async fn installed_agent_joins_the_default_agents_and_receives_its_key() {
    let gateway = with_registry(Setup::default());
    fs::write(gateway.path("agent.py"), agent_with_key()).expect("the folder is ours");
    let target = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    let binary = json!({ "binary": { target: { "archive": "agent.py", "cmd": "./bin/gemini" } } });
    registry(&gateway, &[entry("gemini", "1.0.0", &binary)]);
    let offered = gateway.get("/v1/registry").await;
    assert_eq!(
        offered["agents"][0]["keyVariables"],
        json!(["GEMINI_API_KEY"])
    );
    let before = names(&gateway).await;
    assert!(before.contains(&"demo".to_owned()), "{before:?}");
    let body = json!({ "agent": "gemini", "from": "registry", "version": "1.0.0" });
    let done = install(&gateway, body).await;
    assert_eq!(done["status"], "succeeded", "{done}");
    let names = names(&gateway).await;
    assert!(before.iter().all(|name| names.contains(name)), "{names:?}");
    assert_eq!(
        (
            &done["keyVariables"],
            &done["receivedVariables"],
            &done["inherits"]
        ),
        (
            &json!(["GEMINI_API_KEY"]),
            &json!(["GEMINI_API_KEY"]),
            &json!(true)
        )
    );
    let written = config(&gateway);
    assert!(
        written.contains("terminal_auth = true") && !written.contains(SECRET),
        "{written}"
    );
    assert_eq!(
        answer(&gateway, "gemini").await,
        format!("hello from {SECRET}")
    );
}

/// The agent, which answers with its key.
fn agent_with_key() -> String {
    executable().replace("HELLO", "GEMINI_API_KEY")
}

/// A gateway whose PATH begins with the folder `bin`.
fn with_path(setup: Setup) -> Gateway {
    setup.start_with(|folder| {
        let bin = folder.join("bin");
        fs::create_dir(&bin).expect("the folder is ours");
        let mut path: OsString = bin.into();
        path.push(":/usr/local/bin:/usr/bin:/bin");
        vec![("PATH", path), ("GEMINI_API_KEY", SECRET.into())]
    })
}

fn put_on_path(gateway: &Gateway) {
    let program = gateway.path("bin/gemini");
    fs::write(&program, agent_with_key()).expect("the folder is ours");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("the file is ours");
}

#[tokio::test]
async fn agent_on_path_joins_the_default_agents() {
    let gateway = with_path(Setup::default());
    let before = names(&gateway).await;
    assert!(before.contains(&"demo".to_owned()), "{before:?}");
    put_on_path(&gateway);
    let state = gateway.get(PATH).await;
    assert!(state["onPath"].to_string().contains("gemini"), "{state}");
    let done = install(&gateway, json!({ "agent": "gemini", "from": "path" })).await;
    assert_eq!(
        (&done["status"], &done["inherits"], &done["configFile"]),
        (&json!("succeeded"), &json!(true), &Value::Null),
        "{done}"
    );
    let names = names(&gateway).await;
    assert!(
        before
            .iter()
            .chain([&"gemini".to_owned()])
            .all(|name| names.contains(name)),
        "{names:?}"
    );
    assert_eq!(
        answer(&gateway, "gemini").await,
        format!("hello from {SECRET}")
    );
}

#[tokio::test]
async fn agent_on_path_gets_an_entry() {
    let gateway = with_path(Setup::fake(&[]));
    put_on_path(&gateway);
    let state = gateway.get(PATH).await;
    let found = state["onPath"].as_array().expect("agents").clone();
    let expected =
        json!({ "name": "gemini", "command": "gemini", "keyVariables": ["GEMINI_API_KEY"] });
    assert!(found.contains(&expected), "{state}");
    let body = |agent: &str| json!({ "agent": agent, "from": "path" });
    let unknown = gateway.posted(PATH, &[], &body("fake")).await;
    unknown.problem(422, "invalid");

    let done = install(&gateway, body("gemini")).await;
    assert_eq!(
        (&done["status"], &done["receivedVariables"]),
        (&json!("succeeded"), &json!(["GEMINI_API_KEY"])),
        "{done}"
    );
    let written = config(&gateway);
    assert!(
        written.contains("home = \"user\"") && !written.contains(SECRET),
        "{written}"
    );
    assert_eq!(
        answer(&gateway, "gemini").await,
        format!("hello from {SECRET}")
    );
    let found = gateway.get(PATH).await["onPath"].clone();
    assert!(!found.to_string().contains("gemini"), "{found}");

    // The same command with another name.
    let renamed = written.replace("[agents.gemini]", "[agents.renamed]");
    fs::write(gateway.path("config.toml"), renamed).expect("the file is ours");
    super::runs(&gateway, "renamed").await;
    let again = gateway.posted(PATH, &[], &body("gemini")).await;
    again.problem(422, "invalid");
}

/// The registry selects the name of a program, and must not select the keys that it gets with it.
#[tokio::test]
async fn installed_agent_receives_keys_by_its_id_from_a_personal_gateway_only() {
    let install_gemini = async |setup: Setup, id: &str| {
        let gateway = with_registry(setup);
        let key = "environ.get(\"GEMINI_API_KEY\", \"nobody\")";
        let agent = executable().replace("environ[\"HELLO\"]", key);
        fs::write(gateway.path("agent.py"), agent).expect("the folder is ours");
        let target = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
        let binary =
            json!({ "binary": { target: { "archive": "agent.py", "cmd": "./bin/gemini" } } });
        registry(&gateway, &[entry(id, "1.0.0", &binary)]);
        let listed = gateway.get("/v1/registry").await["agents"][0]["keyVariables"].clone();
        let body = json!({ "agent": id, "from": "registry", "version": "1.0.0" });
        let done = install(&gateway, body).await;
        assert_eq!(done["status"], "succeeded", "{done}");
        let inherits = gateway.get(PATH).await["registry"]["inherits"].clone();
        assert_eq!(done["receivedVariables"], json!([]));
        assert_eq!(answer(&gateway, id).await, "hello from nobody");
        (listed, inherits)
    };
    let other = install_gemini(Setup::default(), "other").await;
    assert_eq!(other, (json!([]), json!(true)));
    let public = "server.public_url = \"https://gateway.example\"";
    let public = install_gemini(Setup::fake(&[]).settings(public), "gemini").await;
    assert_eq!(public, (json!(["GEMINI_API_KEY"]), json!(false)));
}

/// The record of an installation is there before the first start of the agent, and its entry is not.
#[tokio::test]
async fn installation_that_a_stop_interrupts_can_be_repeated() {
    let mut gateway = with_registry(Setup::fake(&[]));
    let archive = gateway.path("hello.tar.gz");
    binary_archive(&archive, "#!/bin/sh\nexec sleep 600\n");
    registry(&gateway, &[binary_entry("1.0.0", "hello.tar.gz", None)]);
    let accepted = gateway.posted(PATH, &[], &hello()).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    eventually("the agent starts", LONGEST, || async {
        let step = gateway.get(PATH).await["installation"]["step"].clone();
        (step == "starting the agent").then_some(())
    })
    .await;
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    assert!(super::is_installed(&gateway, "hello"));
    assert!(!config(&gateway).contains("hello"));

    binary_archive(&archive, &executable());
    gateway.start();
    assert_eq!(install(&gateway, hello()).await["status"], "succeeded");
    assert_eq!(answer(&gateway, "hello").await, "hello from world");
}

#[tokio::test]
async fn file_that_cannot_be_replaced_is_reported_before_the_download() {
    let gateway = with_registry(Setup::fake(&[]));
    registry(&gateway, &[binary_entry("1.0.0", "absent.tar.gz", None)]);
    let file = gateway.path("config.toml");
    fs::remove_file(&file).expect("the folder is ours");
    symlink("/dev/null", &file).expect("the folder is ours");
    let failed = install(&gateway, hello()).await;
    let detail = failed["detail"].as_str().expect("a reason");
    assert!(
        detail.contains("config.toml cannot be replaced") && detail.contains("--config"),
        "{failed}"
    );
    assert!(
        Path::new("/dev/null")
            .metadata()
            .is_ok_and(|null| !null.is_file())
    );
}

/// The only person at the machine may add what the gateway finds. Other users need a registry of the operator.
#[tokio::test]
async fn gateway_with_other_users_adds_agents_of_a_configured_registry_only() {
    let public = "server.public_url = \"https://gateway.example\"";
    let gateway = Setup::fake(&[]).settings(public).start();
    let state = gateway.get(PATH).await;
    assert_eq!(
        (&state["registry"], &state["onPath"]),
        (&Value::Null, &json!([]))
    );
    let listed = gateway.get("/v1/registry?default=true").await;
    assert_eq!(listed["agents"], json!([]));
    let refused = gateway.posted(PATH, &[], &hello()).await;
    let problem = refused.problem(403, "forbidden");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("registry.source"), "{detail}");

    let gateway = with_registry(Setup::fake(&[]).settings(public));
    binary_archive(&gateway.path("hello.tar.gz"), &executable());
    registry(&gateway, &[binary_entry("1.0.0", "hello.tar.gz", None)]);
    assert_eq!(install(&gateway, hello()).await["status"], "succeeded");
}

#[tokio::test]
async fn installation_needs_the_scope_admin() {
    let gateway = with_registry(Setup::fake(&[]));
    let mut create = command(binary().to_str().expect("UTF-8"));
    create
        .args(["key", "create", "other", "--scopes"])
        .arg("read,prompt,approve,files,mcp,fleet,metrics")
        .arg("--data")
        .arg(gateway.path("data"))
        .arg("--config")
        .arg(gateway.path("config.toml"));
    let created = create.output().expect("it runs");
    assert!(created.status.success(), "{created:?}");
    let key = String::from_utf8(created.stdout).expect("UTF-8");
    let with_key = |method| {
        let request = gateway
            .http
            .request(method, format!("{}{PATH}", gateway.url));
        request.bearer_auth(key.trim()).json(&hello())
    };
    eventually("the gateway accepts the key", LONGEST, || async {
        let response = with_key(Method::GET).send().await.ok()?;
        (response.status() != 401).then_some(())
    })
    .await;
    for method in [Method::GET, Method::POST] {
        let response = with_key(method).send().await.expect("a response");
        assert_eq!(response.status(), 403);
        let problem: Value = response.json().await.expect("a problem");
        assert_eq!(problem["requiredScope"], "admin");
    }
    assert_eq!(gateway.get(PATH).await["installation"], Value::Null);
    assert_eq!(audited(&gateway, 0).await, [json!(null); 0]);
}
