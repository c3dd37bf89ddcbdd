//! `GET /v1/keys` and `GET /v1/diagnostics`: every member has a true value, and no secret is in them.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::key_life::{key, key_command, user_key};
use crate::support::gateway::{KEY, KEY_RELOAD_INTERVAL, NO_CONFIG_FILE, command};
use crate::support::places::{fake_agent, gateway_program};
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Gateway, Setup};

const IN_ENVIRONMENT: &str = "secret-of-the-environment-5be0cd19137e2179";
const IN_FILE: &str = "secret-in-the-file-1f83d9abfb41bd6b";
const IN_URL: &str = "secret-in-a-url-9b05688c2b3e6c1f";
const FAILING: &str = r#"echo "cannot start with $TOKEN" >&2; exit 3"#;

fn setup() -> Setup {
    let variables = format!(
        "env = {{ PLAIN = {IN_FILE:?}, TOKEN = {{ from_env = \"GATEWAY_SECRET\" }} }}\nisolation = \"off\""
    );
    let registry = format!("https://user:{IN_URL}@registry.example/list?key={IN_URL}");
    Setup::fake(&[])
        .settings(&format!("registry.source = {registry:?}"))
        .agent("broken", "/bin/sh", &["-c", FAILING], &variables)
        .settings("webhooks.allowed_hosts = [\"localhost\"]\nretention.max_age = \"48h\"")
        .settings("testing.webhooks_to_loopback = true\ntesting.webhook_retry_unit = \"1h\"")
}

fn started() -> Gateway {
    setup().start_with(|_| vec![("GATEWAY_SECRET", IN_ENVIRONMENT.into())])
}

async fn diagnostics(gateway: &Gateway) -> Value {
    gateway.get("/v1/diagnostics").await
}

/// The only entry of a list whose member has this value.
#[track_caller]
fn entry<'a>(list: &'a Value, member: &str, value: &str) -> &'a Value {
    let entries = list.as_array().expect("a list").iter();
    let mut found = entries.filter(|entry| entry[member] == value);
    let first = found.next();
    assert!(found.next().is_none(), "two entries of {value}: {list}");
    first.unwrap_or_else(|| panic!("no {member} {value}: {list}"))
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// The value of a metric without labels.
async fn metric(gateway: &Gateway, name: &str) -> u64 {
    let scrape = gateway.request(Method::GET, "/metrics").send().await;
    let text = scrape.expect("an answer").text().await.expect("a text");
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.expect(name).parse().expect("a number")
}

/// A failed start, a turn that has ended, a turn that runs, a task that runs, a delivery that waits and a stream. Returns the
/// session of the first turn, with the process id of its agent.
async fn scenario(gateway: &Gateway) -> (String, u64) {
    let broken = json!({ "agent": "broken" });
    let (status, failed) = gateway.post("/v1/sessions", &broken).await;
    assert!(status.is_server_error(), "{failed}");
    let webhook = json!({ "url": "https://localhost:1/", "events": ["prompt.completed"] });
    let (status, made) = gateway.post("/v1/webhooks", &webhook).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let session = gateway.session("fake").await;
    let turn = gateway.turn(&session, "pid").await;
    let pid = turn["text"]
        .as_str()
        .and_then(|text| text.strip_prefix("pid="));
    let pid = pid.expect("a process id").parse().expect("a number");
    let running = gateway.session("fake").await;
    gateway.prompt(&running, "hang").await;
    let task = json!({ "agent": "fake", "description": "wait", "prompt": "hang" });
    let (status, task) = gateway.post("/v1/tasks", &task).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{task}");
    (session, pid)
}

#[tokio::test]
async fn diagnostics_have_the_state_of_the_gateway() {
    let gateway = started();
    let (session, pid) = scenario(&gateway).await;
    let _stream = gateway.events("/v1/events/stream").await;
    let found = eventually("all turns run", LONGEST, || async {
        let found = diagnostics(&gateway).await;
        let processes = found["processes"].as_array().expect("a list").iter();
        let busy = processes.filter(|process| process["state"] == "busy");
        let begun = found["tasks"]["running"] == 1;
        let settled = busy.count() == 2 && begun && found["webhooksPending"] == 1;
        (settled && found["streams"]["events"] == 1).then_some(found)
    })
    .await;

    assert_eq!(found["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        found["platform"],
        format!("linux/{}", std::env::consts::ARCH)
    );
    assert!(
        found["startedAt"].as_str() < found["time"].as_str(),
        "{found}"
    );
    assert!(number(&found["uptimeSeconds"]) < 600, "{found}");
    assert_eq!(found["ready"], true);
    assert_eq!(found["draining"], false);
    let process = &found["process"];
    assert!(number(&process["memoryBytes"]) > 1 << 20, "{process}");
    assert!(number(&process["openFiles"]) > 10, "{process}");
    assert!(process["maxOpenFiles"].as_u64() > process["openFiles"].as_u64());
    assert!(process["cpuSeconds"].as_f64() > Some(0.0), "{process}");
    assert_eq!(found["tasks"], json!({ "queued": 0, "running": 1 }));
    assert_eq!(found["truncated"], json!([]));

    let process = entry(&found["processes"], "sessionId", &session);
    assert_eq!(process["pid"], pid);
    assert_eq!(process["agent"], "fake");
    assert_eq!(process["state"], "idle");
    assert!(number(&process["memoryBytes"]) > 100_000, "{process}");
    assert!(process["startedAt"].as_str() < found["time"].as_str());
    let listed = gateway.get("/v1/agents/fake/status").await;
    let listed = listed["processes"].as_array().expect("a list").len();
    assert_eq!(found["processes"].as_array().map(Vec::len), Some(listed));

    let agents = gateway.get("/v1/agents").await;
    for name in ["broken", "fake"] {
        let agent = entry(&found["agents"], "name", name);
        let listed = entry(&agents["agents"], "name", name);
        assert_eq!(agent["status"], listed["status"], "{name}");
        assert_eq!(agent["pool"], listed["pool"], "{name}");
    }
    assert_eq!(
        entry(&found["agents"], "name", "fake")["lastFailure"],
        Value::Null
    );
    let failure = &entry(&found["agents"], "name", "broken")["lastFailure"];
    assert_eq!(failure["code"], "agent_exited", "{failure}");
    assert_eq!(failure["exitCode"], 3);
    let tail = failure["stderrTail"].as_str().expect("a text");
    assert_eq!(tail.trim_end(), "cannot start with [secret]");
    let detail = failure["detail"].as_str().expect("a text");
    assert!(detail.ends_with("exited with code 3"), "{failure}");
    assert!(failure["time"].as_str() < found["time"].as_str());

    let record = entry(&found["logs"], "message", "could not start the agent");
    assert_eq!(record["level"], "WARN");
    assert_eq!(record["fields"]["agent"], "broken");
    let logged = gateway.log();
    let mut lines = logged
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let line: Value = lines
        .find(|line: &Value| line["message"] == record["message"])
        .expect("the line of the record");
    assert_eq!(line["target"], record["target"]);
    assert_eq!(line["failure"], record["fields"]["failure"]);
    let records = found["logs"].as_array().expect("a list").iter();
    let times: Vec<_> = records.map(|record| record["time"].as_str()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
}

#[tokio::test]
async fn diagnostics_have_the_figures_of_the_store() {
    let gateway = started();
    let (session, _) = scenario(&gateway).await;
    gateway.turn(&session, &"echo word; ".repeat(50)).await;
    let events = gateway.last_seq(&session).await;
    let found = eventually("the session of the task has events", LONGEST, || async {
        let found = diagnostics(&gateway).await;
        let largest = found["store"]["largestSessions"].as_array();
        let has_all = largest.is_some_and(|largest| largest.len() == 3);
        (has_all && found["store"]["sessions"] == 3).then_some(found)
    })
    .await;
    let store = &found["store"];
    let file = std::fs::read(gateway.path("data/private/log.sqlite")).expect("a file");
    let format = u32::from_be_bytes(file[60..64].try_into().expect("four bytes"));
    assert_eq!(store["format"], format);
    let shard = u64::from_str_radix(&session[session.len() - 4..], 16);
    assert_eq!(Ok(number(&store["shard"])), shard);
    assert_eq!(store["folder"].as_str(), gateway.path("data").to_str());
    let free = number(&store["diskFreeBytes"]);
    assert!(
        free > 0 && free < number(&store["diskTotalBytes"]),
        "{store}"
    );
    assert_eq!(
        store["retention"],
        json!({
            "maxSessionBytes": 512 << 20, "maxTotalBytes": 10_u64 << 30, "maxAgeSeconds": 48 * 3600,
            "auditMaxAgeSeconds": 365 * 24 * 3600, "minFreeDiskBytes": 1 << 30, "minFreeDiskPercent": 5,
        })
    );
    let largest = store["largestSessions"].as_array().expect("a list");
    let sizes: Vec<_> = largest.iter().map(|one| number(&one["bytes"])).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    assert!(number(&store["logBytes"]) >= sizes.iter().sum());
    let first = &largest[0];
    assert_eq!(first["sessionId"].as_str(), Some(&*session));
    assert_eq!(first["agent"], "fake");
    assert_eq!(first["events"], events);
    let shown = gateway.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!(first["lastActivityAt"], shown["lastActivityAt"]);

    assert_eq!(metric(&gateway, "acp_gateway_sessions_stored").await, 3);
    let deleted = gateway.request(Method::DELETE, &format!("/v1/sessions/{session}"));
    assert_eq!(Answer::of(deleted).await.status, StatusCode::NO_CONTENT);
    let store = &diagnostics(&gateway).await["store"];
    assert_eq!(store["sessions"], 2);
    let largest = store["largestSessions"].to_string();
    assert!(!largest.contains(&session), "{largest}");
    assert_eq!(metric(&gateway, "acp_gateway_sessions_stored").await, 2);
}

#[tokio::test]
async fn diagnostics_have_the_latest_failure_of_an_agent() {
    let gateway = started();
    let last = async || {
        let found = diagnostics(&gateway).await;
        entry(&found["agents"], "name", "fake")["lastFailure"].clone()
    };
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo hello").await;
    assert_eq!(last().await, Value::Null);
    let long = "x".repeat(5000);
    gateway
        .turn(&session, &format!("stderr text={long}; crash code=42"))
        .await;
    let failure = last().await;
    assert_eq!(failure["code"], "agent_exited", "{failure}");
    assert_eq!(failure["exitCode"], 42);
    let tail = failure["stderrTail"].as_str().expect("a text");
    assert_eq!(tail.len(), 4096);
    assert!(tail.starts_with("xxx") && tail.contains("boom"), "{tail}");
    // A later success does not hide the failure.
    gateway.turn(&session, "echo hello").await;
    assert_eq!(last().await["exitCode"], 42);
}

#[tokio::test]
async fn diagnostics_have_the_current_configuration_with_its_sources() {
    let gateway = setup().start_with(|_| {
        vec![
            ("GATEWAY_SECRET", IN_ENVIRONMENT.into()),
            ("ACP_GATEWAY__TIMEOUTS__DRAIN_TIMEOUT", "7s".into()),
        ]
    });
    let found = diagnostics(&gateway).await;
    let value = |key: &str| {
        let found = entry(&found["configuration"], "key", key);
        let source = found["source"].as_str().expect("a text").to_owned();
        (found["value"].clone(), source)
    };
    let (max_age, source) = value("retention.max_age");
    assert_eq!(max_age, "\"2d\"");
    assert!(source.contains("config.toml:"), "{source}");
    let (percent, source) = value("retention.min_free_disk_percent");
    assert_eq!((percent, &*source), (json!("5"), "default"));
    let (timeout, source) = value("timeouts.drain_timeout");
    assert_eq!(timeout, "\"7s\"");
    assert_eq!(source, "ACP_GATEWAY__TIMEOUTS__DRAIN_TIMEOUT");
    let (env, _) = value("agents.broken.env");
    assert_eq!(
        env,
        "{ PLAIN = \"[secret]\", TOKEN = { from_env = \"GATEWAY_SECRET\" } }"
    );
    let (registry, _) = value("registry.source");
    assert_eq!(
        registry,
        "\"https://[secret]@registry.example/list?[secret]\""
    );

    let file = gateway.path("config.toml");
    let text = std::fs::read_to_string(&file).expect("a file");
    let more = format!("{text}\n[agents.later]\ncommand = {:?}\n", fake_agent());
    std::fs::write(&file, more).expect("the folder is ours");
    gateway.signal(Signal::HUP);
    eventually("the reload is shown", LONGEST, || async {
        let found = diagnostics(&gateway).await;
        let keys = found["configuration"].as_array().expect("a list").iter();
        let keys: BTreeSet<_> = keys.filter_map(|entry| entry["key"].as_str()).collect();
        keys.contains("agents.later.command").then_some(())
    })
    .await;
}

#[tokio::test]
async fn diagnostics_have_no_secret_and_are_not_cached() {
    let gateway = started();
    scenario(&gateway).await;
    let alice = key(&gateway, "alice", "read").await;
    let webhooks = gateway.get("/v1/webhooks/secret").await;
    let webhooks = webhooks["secret"].as_str().expect("a secret");
    for path in ["/v1/diagnostics", "/v1/keys"] {
        let answer = Answer::of(gateway.request(Method::GET, path)).await;
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        let text = answer.body.to_string();
        assert!(text.len() < 1 << 20, "{path}");
        for secret in [KEY, &alice, webhooks, IN_ENVIRONMENT, IN_FILE, IN_URL] {
            assert!(!text.contains(secret), "{path} contains {secret}");
        }
    }
}

#[tokio::test]
async fn diagnostics_are_at_most_a_mebibyte() {
    let mut setup = setup();
    let value = "\"".repeat(16_000);
    for number in 0..50 {
        let args = [&*value, "--exit-at-start", "3"];
        setup = setup.agent(&format!("agent-{number}"), fake_agent(), &args, "");
    }
    let gateway = setup.start_with(|_| vec![("GATEWAY_SECRET", IN_ENVIRONMENT.into())]);
    let found = diagnostics(&gateway).await;
    assert!(found.to_string().len() < 1 << 20);
    assert_eq!(found["truncated"], json!(["configuration"]));
    let values = found["configuration"].as_array().expect("a list");
    assert!(values.len() > 100, "{}", values.len());
    assert_eq!(found["agents"].as_array().map(Vec::len), Some(52));
}

#[tokio::test]
async fn other_keys_read_no_diagnostics_and_only_keys_of_their_user() {
    let gateway = started();
    let scopes = "read,prompt,approve,files,mcp,fleet,metrics";
    let other = user_key(&gateway, "other", scopes).await;
    let get = |path: &str| {
        let request = gateway.http.get(format!("{}{path}", gateway.url));
        Answer::of(request.bearer_auth(&other))
    };
    get("/v1/diagnostics").await.problem(403, "forbidden");
    let list = get("/v1/keys").await.body;
    let names = list["keys"].as_array().expect("a list").iter();
    let names: Vec<_> = names.map(|key| &key["name"]).collect();
    assert_eq!(names, ["other"], "{list}");
}

/// Creates a link key with the command beside the gateway.
pub(crate) fn link_key(gateway: &Gateway) -> String {
    let mut link = command(gateway_program());
    link.env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env(KEY_RELOAD_INTERVAL.0, KEY_RELOAD_INTERVAL.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .arg("link");
    let output = link.output().expect("the binary was built");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let (_, key) = text.trim_end().split_once("#key=").expect("a link");
    key.to_owned()
}

#[tokio::test]
async fn list_of_keys_has_their_rights_and_their_expiry_and_pages() {
    let gateway = started();
    let alice = key_command(
        &gateway,
        &[
            "create",
            "alice",
            "--scopes",
            "read,fleet",
            "--max-streams",
            "3",
            "--member-names",
            "box",
        ],
    );
    let link = link_key(&gateway);
    let unused = eventually("the gateway has read its keys again", LONGEST, || async {
        let list = gateway.get("/v1/keys").await;
        (list["keys"].as_array().map(Vec::len) == Some(3)).then_some(list)
    })
    .await;
    assert_eq!(unused["nextCursor"], Value::Null);
    let keys = &unused["keys"];
    let id = keys[0]["keyId"].as_str().expect("an id");
    assert_eq!(id.len(), 12);
    assert_eq!(
        keys[0],
        json!({
            "keyId": id, "name": "admin", "kind": "admin", "user": "owner", "tenant": "default", "scopes": ["admin"],
            "memberNames": [], "folders": [], "limits": {}, "createdAt": null, "expiresAt": null, "lastUsedAt": null,
            "isCurrent": true,
        })
    );
    assert_eq!(
        keys[1],
        json!({
            "keyId": keys[1]["keyId"], "name": "alice", "kind": "named", "user": "alice", "tenant": "default",
            "scopes": ["read", "fleet"], "memberNames": ["box"], "folders": [], "limits": { "max_streams": 3 }, "createdAt": keys[1]["createdAt"],
            "expiresAt": null, "lastUsedAt": null, "isCurrent": false,
        })
    );
    assert_eq!(keys[2]["kind"], "link", "{keys}");
    assert_eq!(keys[2]["user"], "owner");
    let time = |value: &Value| -> jiff::Timestamp {
        let text = value.as_str().unwrap_or_else(|| panic!("{value}"));
        text.parse().expect("a time")
    };
    let lifetime = |from: &Value| time(&keys[2]["expiresAt"]).duration_since(time(from));
    assert_eq!(lifetime(&keys[2]["createdAt"]).as_hours(), 30 * 24);

    for key in [&alice, &link] {
        let used = gateway.http.get(format!("{}/v1", gateway.url));
        assert_eq!(Answer::of(used.bearer_auth(key)).await.status, 200);
    }
    let used = &gateway.get("/v1/keys").await["keys"];
    assert!(used[1]["lastUsedAt"].as_str() >= used[1]["createdAt"].as_str());
    assert_eq!(used[2]["createdAt"], keys[2]["createdAt"]);
    let lifetime = time(&used[2]["expiresAt"]).duration_since(time(&used[2]["lastUsedAt"]));
    assert_eq!(lifetime.as_hours(), 30 * 24);
    assert!(used[2]["expiresAt"].as_str() > keys[2]["expiresAt"].as_str());

    let first = gateway.get("/v1/keys?limit=2").await;
    assert_eq!(first["keys"], json!([used[0], used[1]]));
    let cursor = first["nextCursor"].as_str().expect("a cursor");
    let rest = gateway.get(&format!("/v1/keys?cursor={cursor}")).await;
    assert_eq!(rest, json!({ "keys": [used[2]], "nextCursor": null }));
}
