//! The roots of a member: the folders in which its sessions may work.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::{Member, PATIENCE, address, session};
use crate::support::gateway::KEY;
use crate::support::{Gateway, Setup, eventually};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Creates a session in a folder. Returns the status and the body.
async fn create(gateway: &Gateway, cwd: &Path) -> (u16, Value) {
    let body = json!({ "agent": "laptop", "cwd": cwd });
    let (status, body) = gateway.post("/v1/sessions", &body).await;
    (status.as_u16(), body)
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_work_below_the_roots_of_the_member() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = dir.path().canonicalize().expect("it exists");
    let first = base.join("first");
    let second = base.join("second");
    let other = base.join("other");
    for folder in [&first.join("sub"), &second, &other] {
        std::fs::create_dir_all(folder).expect("the folder is ours");
    }
    std::os::unix::fs::symlink(&other, first.join("out")).expect("the folder is ours");
    let mut gateway = Setup::fake(&[]).start();
    let roots = ["--root", text(&first), "--root", text(&second)];
    let member = Member::start(&address(&gateway), "laptop", KEY, &roots);
    let default = session(&gateway, &member, "laptop").await;
    let record = gateway.get_session(&default).await;
    assert_eq!(record["cwd"], text(&first), "{record}");
    assert_eq!(
        gateway.get("/v1/fleet").await["members"][0]["roots"],
        json!([first, second])
    );

    for (cwd, status) in [
        (first.join("sub"), 201),
        (second.clone(), 201),
        (other.clone(), 403),
        (base.clone(), 403),
        (first.join("../other"), 403),
        // The folders of the gateway are not those of the member.
        (gateway.path("data").join("workspaces"), 403),
    ] {
        let (created, body) = create(&gateway, &cwd).await;
        assert_eq!(created, status, "{}: {body}", cwd.display());
    }
    let files = format!("/v1/sessions/{default}/files");
    gateway
        .call(Method::GET, &files)
        .await
        .problem(403, "forbidden");

    // The gateway cannot see that a link leaves the roots. The member can.
    for unreachable in [first.join("out"), first.join("missing")] {
        let (created, body) = create(&gateway, &unreachable).await;
        assert!(created >= 400, "{body}");
        let detail = body.to_string();
        assert!(
            detail.contains("roots of the member") || detail.contains("no such folder"),
            "{body}"
        );
    }
    assert!(
        member.log().contains("rejected a request of the gateway"),
        "{}",
        member.log()
    );

    // The gateway remembers the roots of a member that is not connected.
    gateway.kill();
    drop(member);
    gateway.start();
    let listed = gateway.get("/v1/fleet").await;
    assert_eq!(
        listed["members"][0]["roots"],
        json!([first, second]),
        "{listed}"
    );
    assert_eq!(create(&gateway, &other).await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_is_not_restored_after_its_root_is_withdrawn() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = dir.path().canonicalize().expect("it exists");
    let first = base.join("first");
    let second = base.join("second");
    for folder in [&first, &second] {
        std::fs::create_dir(folder).expect("the folder is ours");
    }
    let gateway = Setup::fake(&[])
        .settings("testing.member_return_timeout = \"500ms\"")
        .start();
    let member = Member::start(&address(&gateway), "laptop", KEY, &["--root", text(&first)]);
    let session_of_first = session(&gateway, &member, "laptop").await;
    assert_eq!(
        gateway.turn(&session_of_first, "echo before").await["status"],
        "completed"
    );
    drop(member);
    eventually("the member is gone", PATIENCE, || async {
        let members = gateway.get("/v1/fleet").await;
        (members["members"][0]["state"] == "disconnected").then_some(())
    })
    .await;
    let member = Member::start(
        &address(&gateway),
        "laptop",
        KEY,
        &["--root", text(&second)],
    );
    eventually("the member has another root", PATIENCE, || async {
        let members = gateway.get("/v1/fleet").await;
        (members["members"][0]["roots"] == json!([second])).then_some(())
    })
    .await;
    let turn = gateway.turn(&session_of_first, "echo after").await;
    assert_eq!(turn["status"], "failed", "{turn}\n{}", member.log());
    assert!(turn.to_string().contains("roots of the member"), "{turn}");
}

#[tokio::test]
async fn unusable_root_is_an_error_of_the_command() {
    let gateway = Setup::fake(&[]).start();
    let mut member = Member::start(
        &address(&gateway),
        "laptop",
        KEY,
        &["--root", "/missing/root"],
    );
    assert_eq!(
        member.child.wait().expect("the process is ours").code(),
        Some(1),
        "{}",
        member.log()
    );
    assert!(
        member
            .log()
            .contains("could not open the root /missing/root"),
        "{}",
        member.log()
    );
}
