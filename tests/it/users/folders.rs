//! Folders of sessions: that of another user's session is a folder that does not exist.

use std::path::{Path, PathBuf};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::acp::Socket;
use super::{LIMITS, User};
use crate::route_walk::operations::UNKNOWN;
use crate::support::{Answer, Gateway, Setup};

/// A gateway whose agent supports additional folders.
fn gateway() -> Gateway {
    Setup::fake(&["--directories"]).settings(LIMITS).start()
}

/// The status, the fields and the texts of a rejection, with `ID` for this name in paths.
fn rejection(answer: Answer, name: &str) -> (StatusCode, String) {
    let Answer {
        status, mut body, ..
    } = answer;
    body["instance"] = Value::Null;
    (status, body.to_string().replace(name, "ID"))
}

/// The root of the folders that the gateway creates.
fn root(gateway: &Gateway) -> PathBuf {
    let root = gateway.path("data/workspaces");
    root.canonicalize().expect("the root is there")
}

/// Fills the folder of a session with an entry of each kind.
fn fill(folder: &Path) {
    std::fs::create_dir_all(folder.join("src/deep")).expect("the folder is ours");
    std::fs::write(folder.join("notes"), "text").expect("the folder is ours");
    for (name, target) in [("link", "src"), ("project", "../project"), ("outside", "/")] {
        let link = folder.join(name);
        std::os::unix::fs::symlink(target, link).expect("the folder is ours");
    }
}

/// The folder of a session, and the folders in it.
const FOLDERS: [&str; 6] = ["", "/", "/src", "/src/deep", "/link", "/link/deep"];
/// Entries of a folder of a session that are no folders in it, and a name without an entry.
const OTHERS: [&str; 5] = ["/notes", "/notes/x", "/project", "/outside", "/missing"];

/// The paths of these entries of the folder with this name.
fn paths(root: &Path, name: &str, entries: &[&str]) -> Vec<String> {
    let absolute = root.join(name);
    let absolute = absolute.to_str().expect("UTF-8").to_owned();
    let starts = [name.to_owned(), format!("./{name}"), absolute];
    let paths = starts
        .iter()
        .flat_map(|start| entries.iter().map(move |entry| format!("{start}{entry}")));
    paths.collect()
}

/// Checks that a new session in a folder of bob has the error of a missing folder.
async fn assert_no_session_in(entries: &[&str]) {
    let gateway = gateway();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = bob.session().await;
    let root = root(&gateway);
    std::fs::create_dir(root.join("project")).expect("the root is ours");
    fill(&root.join(&theirs));
    let foreign = paths(&root, &theirs, entries).into_iter();
    for (foreign, missing) in foreign.zip(paths(&root, UNKNOWN, entries)) {
        for (foreign, missing) in bodies(&foreign).iter().zip(&bodies(&missing)) {
            let refused = alice.post("/v1/sessions", foreign).await;
            let refused = rejection(refused, &theirs);
            let expected = rejection(alice.post("/v1/sessions", missing).await, UNKNOWN);
            assert_eq!(expected.0, StatusCode::UNPROCESSABLE_ENTITY, "{missing}");
            assert_eq!(refused, expected, "{foreign}");
        }
    }
    assert_eq!(alice.sessions("").await, [""; 0]);
    // The user of the session may use the same folders, and a project folder is for all users.
    let inside = format!("{theirs}/src");
    for path in [&*theirs, &inside, "project"] {
        for body in &bodies(path)[..2] {
            bob.created("/v1/sessions", body, "sessionId").await;
        }
    }
    let body = json!({ "agent": "fake", "cwd": "project" });
    alice.created("/v1/sessions", &body, "sessionId").await;
}

/// Checks that a list of the folders in a folder of bob has the error of a missing folder.
async fn assert_not_listed(entries: &[&str]) {
    let gateway = gateway();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = bob.session().await;
    let root = root(&gateway);
    std::fs::create_dir(root.join("project")).expect("the root is ours");
    fill(&root.join(&theirs));
    let get = |user: &User<'_>, path: &str| {
        let path = format!("/v1/workspaces?path={path}");
        Answer::of(user.request(Method::GET, &path))
    };
    let foreign = paths(&root, &theirs, entries).into_iter();
    for (foreign, missing) in foreign.zip(paths(&root, UNKNOWN, entries)) {
        let refused = rejection(get(&alice, &foreign).await, &theirs);
        let expected = rejection(get(&alice, &missing).await, UNKNOWN);
        assert_eq!(expected.0, StatusCode::NOT_FOUND, "{missing}");
        assert_eq!(refused, expected, "{foreign}");
    }
    let own = get(&bob, &theirs).await;
    assert_eq!(own.body["folders"][0]["name"], "src", "{own:?}");
    let top = get(&alice, ".").await;
    assert_eq!(top.body["folders"][0]["name"], "project", "{top:?}");
    assert!(!top.body.to_string().contains(&theirs), "{top:?}");
}

/// The bodies that name a folder for a new session.
fn bodies(path: &str) -> [Value; 3] {
    [
        json!({ "agent": "fake", "cwd": path }),
        json!({ "agent": "fake", "additionalDirectories": [path] }),
        json!({ "agent": "fake", "additionalDirectories": ["project", path] }),
    ]
}

#[tokio::test]
async fn session_in_the_folder_of_a_foreign_session_has_the_error_of_a_missing_folder() {
    assert_no_session_in(&FOLDERS).await;
}

/// The error would show which names the folder has.
#[tokio::test]
async fn session_in_a_file_or_link_of_a_foreign_session_has_the_error_of_a_missing_folder() {
    assert_no_session_in(&OTHERS).await;
}

#[tokio::test]
async fn workspaces_in_the_folder_of_a_foreign_session_have_the_error_of_a_missing_folder() {
    assert_not_listed(&FOLDERS).await;
}

#[tokio::test]
async fn workspaces_in_a_file_or_link_of_a_foreign_session_have_the_error_of_a_missing_folder() {
    assert_not_listed(&OTHERS).await;
}

#[tokio::test]
async fn folders_of_the_owner_and_of_other_tenants_are_closed_too() {
    let gateway = gateway();
    let of_owner = gateway.session("fake").await;
    let bob = User::new(&gateway, "bob").await;
    let of_bob = bob.session().await;
    let elsewhere = User::with(&gateway, &["other", "--tenant", "other", "--user", "bob"]).await;
    let mine = User::with(&gateway, &["mine", "--user", "owner"]).await;
    for (user, session) in [
        (&bob, &of_owner),
        (&elsewhere, &of_owner),
        (&elsewhere, &of_bob),
        (&mine, &of_bob),
    ] {
        for path in [UNKNOWN, session] {
            let body = json!({ "agent": "fake", "cwd": path });
            let problem = user.post("/v1/sessions", &body).await;
            let problem = problem.problem(422, "invalid");
            let errors = json!([{ "pointer": "/cwd", "detail": "there is no such folder" }]);
            assert_eq!(problem["errors"], errors, "{path}");
        }
    }
    let body = json!({ "agent": "fake", "cwd": of_owner });
    mine.created("/v1/sessions", &body, "sessionId").await;
}

#[tokio::test]
async fn only_the_owner_can_work_in_the_folder_of_all_sessions() {
    let gateway = gateway();
    let bob = User::new(&gateway, "bob").await;
    let mine = User::with(&gateway, &["mine", "--user", "owner"]).await;
    let root = root(&gateway);
    let root = root.to_str().expect("UTF-8");
    for path in [root, ".", ""] {
        for body in [
            json!({ "agent": "fake", "cwd": path }),
            json!({ "agent": "fake", "additionalDirectories": [path] }),
        ] {
            let refused = bob.post("/v1/sessions", &body).await;
            refused.problem(403, "forbidden");
            mine.created("/v1/sessions", &body, "sessionId").await;
        }
    }
    assert_eq!(bob.sessions("").await, [""; 0]);
}

#[tokio::test]
async fn folder_of_a_deleted_session_stays_closed_for_other_users() {
    let gateway = gateway();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = bob.session().await;
    // A second session of the same user keeps the folder.
    let body = json!({ "agent": "fake", "cwd": theirs });
    bob.created("/v1/sessions", &body, "sessionId").await;
    let path = format!("/v1/sessions/{theirs}");
    let deleted = bob.call(Method::DELETE, &path).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{deleted:?}");
    let refused = alice.post("/v1/sessions", &body).await;
    let missing = json!({ "agent": "fake", "cwd": UNKNOWN });
    let expected = alice.post("/v1/sessions", &missing).await;
    assert_eq!(rejection(refused, &theirs), rejection(expected, UNKNOWN));
}

#[tokio::test]
async fn acp_clients_cannot_name_the_folder_of_a_foreign_session() {
    let gateway = gateway();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = bob.session().await;
    let root = root(&gateway);
    let mut socket = Socket::open(&gateway, &alice.key).await;
    let mut errors = Vec::new();
    for name in [&*theirs, UNKNOWN] {
        let folder = root.join(name);
        for (cwd, additional) in [
            (json!(folder), json!([])),
            (json!(""), json!([folder.join("")])),
        ] {
            let params =
                json!({ "cwd": cwd, "additionalDirectories": additional, "mcpServers": [] });
            let response = socket.call("session/new", params).await.pop();
            let response = response.expect("the response");
            assert!(response["error"]["code"].is_i64(), "{response}");
            errors.push(response["error"].to_string().replace(name, "ID"));
        }
    }
    assert_eq!(errors[..2], errors[2..]);
    assert_eq!(alice.sessions("").await, [""; 0]);
}
