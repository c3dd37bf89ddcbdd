//! Sign-ins, secrets of MCP servers and idle processes stay with their entry across a reload.

use std::path::Path;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{PATIENCE, RELOADED, reload, start};
use crate::support::places::fake_agent;
use crate::support::{Gateway, Setup, eventually, is_alive};

const AUTH: &str = "/v1/agents/fake/auth";

fn messages(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

#[tokio::test]
async fn sign_in_that_ends_after_a_reload_does_not_apply_to_the_new_entry() {
    let fake = fake_agent();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("messages");
    let agent = |more: &str| {
        let args =
            format!("\"--auth-required\", \"--slow-auth\", \"1000\", \"--log\", {log:?}{more}");
        format!(
            "[agents.fake]\ncommand = {fake:?}\nargs = [{args}]\nisolation = \"off\"\npool = {{ max_size = 4, min_idle = 0 }}\n"
        )
    };
    let gateway = start(Setup::default().table(&agent("")));
    let sign_in = async {
        let answer = gateway
            .posted(AUTH, &[], &json!({ "methodId": "login" }))
            .await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
    };
    let change = async {
        let asked = || async { messages(&log).contains("authenticate").then_some(()) };
        eventually("the sign-in runs", PATIENCE, asked).await;
        reload(&gateway, &agent(", \"--resume\""), RELOADED).await;
    };
    tokio::join!(sign_in, change);
    assert_eq!(
        gateway.get(AUTH).await["state"],
        "unknown",
        "the new process is not signed in"
    );
    let body = json!({ "agent": "fake" });
    gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(424, "agent_auth_required");
    assert_eq!(
        messages(&log)
            .matches("\"method\":\"authenticate\"")
            .count(),
        1,
        "the new process does not receive the sign-in of the previous"
    );
}

#[tokio::test]
async fn error_in_one_entry_does_not_stop_the_others() {
    let fake = fake_agent();
    let good = |name: &str, args: &str| {
        format!(
            "[agents.{name}]\ncommand = {fake:?}\nargs = [{args}]\nisolation = \"off\"\npool = {{ max_size = 4, min_idle = 0 }}\n"
        )
    };
    let bad =
        |name: &str| format!("[agents.{name}]\ncommand = {fake:?}\nhome = \"canary-value\"\n");
    let servers = "[mcp.docs]\nurl = \"https://mcp.example\"\nheaders = { Authorization = { from_env = \"UNSET\" } }\n";
    let gateway =
        start(Setup::default().table(&[good("fake", ""), bad("other"), servers.into()].concat()));
    gateway.session("fake").await;
    let other = gateway.get("/v1/agents/other").await;
    assert_eq!(other["status"]["state"], "unavailable", "{other}");
    let detail = other["status"]["detail"].as_str().expect("a reason");
    assert!(detail.contains("acp-gateway check"), "{detail}");
    assert!(!other.to_string().contains("canary"), "{other}");
    let body = json!({ "agent": "other" });
    gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(502, "agent_start_failed");
    for error in [
        "`agents.other.home`",
        "`mcp.docs.headers.Authorization.from_env`",
    ] {
        assert!(gateway.log().contains(error), "{}", gateway.log());
    }

    // The other entry works from now on. The first one keeps its previous version.
    reload(
        &gateway,
        &[bad("fake"), good("other", "")].concat(),
        RELOADED,
    )
    .await;
    gateway.session("other").await;
    gateway.session("fake").await;
    assert!(
        gateway.log().contains("`agents.fake.home`"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn secret_is_never_sent_to_a_process_that_does_not_mask_it() {
    let fake = fake_agent();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("messages");
    let secret = folder.path().join("secret");
    let state = folder.path().join("state");
    let args = format!("\"--fork\", \"--mcp\", \"--state\", {state:?}, \"--log\", {log:?}");
    let config = format!(
        "[agents.fake]\ncommand = {fake:?}\nargs = [{args}]\nisolation = \"off\"\npool = {{ max_size = 4, min_idle = 0 }}\nrpc = [\"_vendor/*\"]\n\
         [mcp.docs]\nurl = \"https://mcp.example\"\nheaders = {{ Authorization = {{ from_file = {secret:?} }} }}\n"
    );
    std::fs::write(&secret, "previous-secret").expect("the folder is ours");
    let gateway = start(Setup::default().table(&config));
    let body = json!({ "agent": "fake", "mcpServers": ["docs"] });
    let (_, session) = gateway.post("/v1/sessions", &body).await;
    let session = session["sessionId"].as_str().expect("an id").to_owned();
    let path = format!("/v1/sessions/{session}/rpc");
    let hanging = gateway
        .request(Method::POST, &path)
        .json(&json!({ "method": "_vendor/hang", "params": {} }));
    let changed = async {
        let asked = || async { messages(&log).contains("_vendor/hang").then_some(()) };
        eventually("the call runs", PATIENCE, asked).await;

        std::fs::write(&secret, "later-secret").expect("the folder is ours");
        reload(&gateway, &config, RELOADED).await;
        // The call keeps the process, and the process's own entry answers its requests.
        let forked = gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/fork"))
            .await;
        assert_eq!(forked.status, StatusCode::CREATED, "{forked:?}");
        let fork = messages(&log);
        let fork = fork
            .lines()
            .find(|line| line.contains("session/fork"))
            .expect("it was asked");
        assert!(
            fork.contains("previous-secret") && !fork.contains("later-secret"),
            "{fork}"
        );
    };
    tokio::select! {
        answer = hanging.send() => panic!("it hangs: {answer:?}"),
        () = changed => {}
    }
    gateway.posted("/v1/sessions", &[], &body).await;
    let last = messages(&log);
    let last = last
        .lines()
        .rfind(|line| line.contains("session/new"))
        .expect("it was asked");
    assert!(last.contains("later-secret"), "a new process: {last}");
}

async fn idle_process(gateway: &Gateway) -> u32 {
    let pool = || async {
        let pool = gateway.get("/v1/agents/fake").await["pool"].clone();
        let settled = pool["idle"] == 1 && pool["processes"] == 1;
        gateway.agents_alive().into_iter().max().filter(|_| settled)
    };
    eventually("one idle process", PATIENCE, pool).await
}

#[tokio::test]
async fn idle_processes_of_a_previous_entry_end_and_others_start() {
    let fake = fake_agent();
    let agent = |args: &str| {
        format!(
            "[agents.fake]\ncommand = {fake:?}\nargs = [{args}]\nisolation = \"off\"\npool = {{ max_size = 4, min_idle = 1 }}\n"
        )
    };
    let gateway = start(Setup::default().table(&agent("")));
    let previous = idle_process(&gateway).await;
    reload(&gateway, &agent("\"--resume\""), RELOADED).await;
    eventually("the previous idle process ends", PATIENCE, || async {
        (!is_alive(previous)).then_some(())
    })
    .await;
    assert_ne!(idle_process(&gateway).await, previous);
    let session = gateway.session("fake").await;
    let shown = gateway.get("/v1/agents/fake").await;
    assert!(
        shown["capabilities"].to_string().contains("resume"),
        "{shown}"
    );
    tokio::time::timeout(Duration::from_secs(30), gateway.turn(&session, "echo on"))
        .await
        .expect("in time");
}
