//! Agents on other hosts: a gateway whose agent is the `/acp` of another gateway.

mod entries;
mod faults;
mod http;
mod sdk;

use serde_json::json;

use crate::attach::set_public_url;
use crate::attach::tls::TlsProxy;
use crate::support::gateway::KEY;
use crate::support::log::{agent_text, all, one};
use crate::support::proxy::Proxy;
use crate::support::{Gateway, Setup};

/// A gateway with the agent `far`, at the URL of `/acp`. `more` are further lines of the entry.
pub(crate) fn near(url: &str, far: &Gateway, more: &str) -> Setup {
    let folders = far.path("data").join("workspaces");
    let token = if more.contains("token") {
        String::new()
    } else {
        format!("token = {KEY:?}\n")
    };
    Setup::default().table(&format!(
        "[agents.far]\nurl = {url:?}\nremote_folders = [\"{}\"]\npool = {{ max_size = 8, min_idle = 0 }}\n{token}{more}\n",
        folders.display()
    ))
}

fn acp(far: &Gateway) -> String {
    format!("ws://{}/acp/fake", far.address())
}

/// Two gateways: the first one has the agent of the second one.
fn pair() -> (Gateway, Gateway) {
    pair_over("ws")
}

/// The same with this scheme of the URL.
fn pair_over(scheme: &str) -> (Gateway, Gateway) {
    let far = Setup::fake(&["--resume", "--state", "state"]).start();
    (
        near(
            &acp(&far).replace("ws://", &format!("{scheme}://")),
            &far,
            "",
        )
        .start(),
        far,
    )
}

/// The same with a proxy between them.
async fn pair_with_proxy(scheme: &str) -> (Gateway, Proxy, Gateway) {
    let mut far = Setup::fake(&["--resume", "--state", "state"]).start();
    let proxy = Proxy::start(far.address()).await;
    set_public_url(&mut far, &format!("http://{}", proxy.address));
    let near = near(&format!("{scheme}://{}/acp/fake", proxy.address), &far, "").start();
    (near, proxy, far)
}

#[tokio::test]
async fn remote_agent_runs_turns_of_two_sessions() {
    for scheme in ["ws", "http"] {
        run_turns_of_two_sessions(scheme).await;
    }
}

async fn run_turns_of_two_sessions(scheme: &str) {
    let (near, far) = pair_over(scheme);
    let one = near.session("far").await;
    let two = near.session("far").await;
    let (first, second) = tokio::join!(
        near.turn(&one, "echo first"),
        near.turn(&two, "echo second")
    );
    assert_eq!(
        (&first["text"], &second["text"]),
        (&json!("first"), &json!("second"))
    );
    assert_eq!(near.turn(&one, "echo third").await["text"], "third");
    near.lawful(&one).await;

    let agents = near.get("/v1/agents").await;
    let agent = &agents["agents"][0];
    assert_eq!(
        (&agent["kind"], &agent["isolation"]),
        (&json!("remote"), &json!(null)),
        "{agent}"
    );
    assert!(!agents.to_string().contains(KEY) && !near.log().contains(KEY));
    let shown = near.get_session(&one).await;
    assert_eq!(
        shown["cwd"].as_str(),
        far.path("data").join("workspaces").to_str(),
        "{shown}"
    );
}

#[tokio::test]
async fn remote_agent_asks_for_permission_and_is_cancelled() {
    for scheme in ["ws", "http"] {
        answer_and_cancel(scheme).await;
    }
}

async fn answer_and_cancel(scheme: &str) {
    let (near, _far) = pair_over(scheme);
    for option in ["allow", "reject"] {
        let session = near.session("far").await;
        near.prompt(&session, "permission").await;
        near.log_until(&session, |event| event["type"] == "request.created")
            .await;
        let path = format!("/v1/sessions/{session}/permissions/r1");
        let answered = near
            .posted(&path, &[], &json!({ "optionId": option }))
            .await;
        assert!(
            answered.status.is_success(),
            "{} {}",
            answered.status,
            answered.body
        );
        let events = near
            .log_until(&session, |event| event["type"] == "prompt.completed")
            .await;
        assert_eq!(agent_text(&events), format!("permission: {option}"));
    }
    let session = near.session("far").await;
    let prompt = near.prompt(&session, "slow chunks=100 ms=100").await;
    near.log_until(&session, |event| {
        event["type"] == "session.update" && event["promptId"] == prompt["promptId"]
    })
    .await;
    let cancelled = near
        .posted(&format!("/v1/sessions/{session}/cancel"), &[], &json!({}))
        .await;
    assert!(cancelled.status.is_success(), "{}", cancelled.body);
    let events = near
        .log_until(&session, |event| {
            event["type"] == "prompt.completed" && event["promptId"] == prompt["promptId"]
        })
        .await;
    let completed = all(&events, "prompt.completed").pop().expect("the end");
    assert_eq!(completed["stopReason"], "cancelled", "{completed}");
}

#[tokio::test]
async fn remote_agent_over_tls_needs_a_trusted_certificate() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut far = Setup::fake(&[]).start();
    let (proxy, certificate) = TlsProxy::start(folder.path(), &far);
    set_public_url(&mut far, &format!("https://localhost:{}", proxy.port));
    for scheme in ["wss", "https"] {
        let url = format!("{scheme}://localhost:{}/acp/fake", proxy.port);

        let trusting = near(&url, &far, &format!("ca_file = {certificate:?}")).start();
        let session = trusting.session("far").await;
        assert_eq!(
            trusting.turn(&session, "echo over tls").await["text"],
            "over tls"
        );

        let strict = near(&url, &far, "").start();
        let failed = strict
            .posted("/v1/sessions", &[], &json!({ "agent": "far" }))
            .await;
        let problem = failed.problem(502, "agent_disconnected");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(
            detail.contains("certificate") && detail.contains("localhost:"),
            "{detail}"
        );
        assert!(!detail.contains(KEY), "{detail}");
    }
}

#[tokio::test]
async fn three_megabytes_of_output_arrive() {
    for scheme in ["ws", "http"] {
        let (near, _far) = pair_over(scheme);
        let session = near.session("far").await;
        let text = "x".repeat(3 << 20);
        let turn = near.turn(&session, &format!("echo {text}")).await;
        assert_eq!(turn["status"], "completed", "{}", turn["error"]);
        let events = near.all_events(&session).await;
        assert_eq!(agent_text(&events).len(), text.len());
        assert_eq!(one(&events, "prompt.completed")["stopReason"], "end_turn");
    }
}

#[tokio::test]
async fn files_of_a_remote_session_are_not_served_by_the_gateway() {
    let (near, far) = pair();
    let session = near.session("far").await;
    let path = format!("/v1/sessions/{session}/files");
    near.call(reqwest::Method::GET, &path)
        .await
        .problem(403, "forbidden");
    let changes = format!("/v1/sessions/{session}/changes");
    near.call(reqwest::Method::GET, &changes)
        .await
        .problem(403, "forbidden");
    let inside = far.path("data").join("workspaces").join("a");
    std::fs::create_dir_all(&inside).expect("the folder is ours");
    for (cwd, status) in [
        (inside.to_str().expect("UTF-8"), 201),
        ("/etc", 403),
        ("a", 403),
    ] {
        let body = json!({ "agent": "far", "cwd": cwd });
        assert_eq!(
            near.posted("/v1/sessions", &[], &body)
                .await
                .status
                .as_u16(),
            status,
            "{cwd}"
        );
    }
}
