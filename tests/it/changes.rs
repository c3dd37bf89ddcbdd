//! The changes of a session's folder since its start.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqwest::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Setup, eventually};

/// A session in a folder with files.
struct Ground {
    gateway: Gateway,
    session: String,
    cwd: PathBuf,
}

/// Writes files below a folder.
fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is ours");
    std::fs::write(path, bytes).expect("the folder is ours");
}

/// A folder below the root for new sessions.
fn project(gateway: &Gateway) -> PathBuf {
    let cwd = gateway
        .path("data/workspaces")
        .canonicalize()
        .expect("the root is there")
        .join("project");
    std::fs::create_dir_all(&cwd).expect("the folder is ours");
    cwd
}

async fn begin(gateway: &Gateway, cwd: &Path) -> String {
    let (status, session) = gateway
        .post("/v1/sessions", &json!({ "agent": "fake", "cwd": cwd }))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    session["sessionId"].as_str().expect("a text").to_owned()
}

impl Ground {
    /// The session has had its first turn.
    async fn new(files: &[(&str, &str)]) -> Self {
        Self::with(Setup::fake(&[]), files).await
    }

    async fn with(setup: Setup, files: &[(&str, &str)]) -> Self {
        let gateway = setup.start();
        let cwd = project(&gateway);
        for (name, text) in files {
            write(&cwd, name, text);
        }
        let session = begin(&gateway, &cwd).await;
        let ground = Self {
            gateway,
            session,
            cwd,
        };
        ground.gateway.turn(&ground.session, "hello").await;
        ground
    }

    fn url(&self, path: &str) -> String {
        format!("/v1/sessions/{}/changes{path}", self.session)
    }

    async fn get(&self, path: &str) -> Answer {
        self.gateway.call(Method::GET, &self.url(path)).await
    }

    async fn list(&self) -> Value {
        let answer = self.get("").await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        answer.body
    }

    /// The changed paths with their kinds.
    async fn kinds(&self) -> BTreeMap<String, String> {
        kinds(&self.list().await)
    }

    async fn revert(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.gateway.request(Method::DELETE, &self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request).await
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        write(&self.cwd, name, bytes);
    }

    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.cwd.join(name)).ok()
    }

    /// The number of files that the gateway stores for baselines.
    fn stored(&self) -> usize {
        let folders = std::fs::read_dir(self.gateway.path("data/private/changes"))
            .into_iter()
            .flatten();
        folders
            .map(|folder| {
                std::fs::read_dir(folder.expect("an entry").path())
                    .expect("a folder")
                    .count()
            })
            .sum()
    }
}

fn kinds(list: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let files = list["files"].as_array().expect("files");
    let paths: Vec<String> = files.iter().map(|file| text(&file["path"])).collect();
    assert!(paths.is_sorted(), "{list}");
    files
        .iter()
        .map(|file| (text(&file["path"]), text(&file["kind"])))
        .collect()
}

fn expected(kinds: &[(&str, &str)]) -> BTreeMap<String, String> {
    kinds
        .iter()
        .map(|(path, kind)| ((*path).to_owned(), (*kind).to_owned()))
        .collect()
}

#[tokio::test]
async fn edits_by_commands_are_listed() {
    let ground = Ground::new(&[
        ("edited", "one\ntwo\n"),
        ("gone", "x\n"),
        ("moved", "y\n"),
        ("same", "z\n"),
        (".gitignore", "*.log\nbuild/\n"),
    ])
    .await;
    assert_eq!(ground.kinds().await, expected(&[]));
    ground.write("edited", "one\n2\nthree\n");
    ground.write("folder/new", "n\n");
    ground.write("binary", b"\x00\xff");
    ground.write("large", vec![b'x'; (1 << 20) + 1]);
    ground.write("debug.log", "ignored\n");
    ground.write("build/out", "ignored\n");
    std::fs::remove_file(ground.cwd.join("gone")).expect("it is ours");
    std::fs::rename(ground.cwd.join("moved"), ground.cwd.join("renamed")).expect("it is ours");
    let list = ground.list().await;
    let changed = [
        ("binary", "added"),
        ("edited", "modified"),
        ("folder/new", "added"),
        ("gone", "deleted"),
        ("large", "added"),
        ("moved", "deleted"),
        ("renamed", "added"),
    ];
    assert_eq!(kinds(&list), expected(&changed), "{list}");
    let created = ground.gateway.get_session(&ground.session).await["createdAt"].clone();
    assert!(list["since"].as_str() >= created.as_str(), "{list}");
    assert_eq!(
        (&list["complete"], &list["reason"], &list["more"]),
        (&json!(true), &Value::Null, &json!(false))
    );
    let change = |path: &str| {
        list["files"]
            .as_array()
            .expect("files")
            .iter()
            .find(|file| file["path"] == path)
            .cloned()
    };
    let shown = |path: &str| {
        let file = change(path).expect("the file is listed");
        (
            file["additions"].as_u64(),
            file["deletions"].as_u64(),
            file["binary"] == true,
            file["tooLarge"] == true,
        )
    };
    assert_eq!(shown("edited"), (Some(2), Some(1), false, false));
    assert_eq!(shown("gone"), (Some(0), Some(1), false, false));
    assert_eq!(shown("binary"), (None, None, true, false));
    assert_eq!(shown("large"), (None, None, false, true));
}

#[tokio::test]
async fn texts_of_a_change_are_those_of_the_start_and_now() {
    let ground = Ground::new(&[("edited", "one\ntwo\n"), ("gone", "x\n"), ("same", "z\n")]).await;
    ground.write("edited", "one\n2\nthree\n");
    ground.write("folder/new", "n\n");
    ground.write("binary", b"\x00\xff");
    ground.write("large", vec![b'x'; (1 << 20) + 1]);
    std::fs::remove_file(ground.cwd.join("gone")).expect("it is ours");
    let edited = ground.get("/edited").await.body;
    let old = json!("one\ntwo\n");
    let new = json!("one\n2\nthree\n");
    assert_eq!(
        (&edited["kind"], &edited["oldText"], &edited["newText"]),
        (&json!("modified"), &old, &new)
    );
    let file = format!("/v1/sessions/{}/files/edited", ground.session);
    let file = ground
        .gateway
        .request(Method::GET, &file)
        .send()
        .await
        .expect("an answer");
    assert_eq!(
        file.headers()[ETAG].to_str().expect("ASCII"),
        edited["etag"],
        "the tag is that of the file routes"
    );
    let gone = ground.get("/gone").await.body;
    assert_eq!(
        (&gone["oldText"], &gone["newText"], &gone["etag"]),
        (&json!("x\n"), &Value::Null, &Value::Null)
    );
    let new = ground.get("/folder/new").await.body;
    assert_eq!(
        (&new["oldText"], &new["newText"]),
        (&Value::Null, &json!("n\n"))
    );
    ground.get("/binary").await.problem(422, "invalid");
    ground.get("/large").await.problem(413, "too_large");
    ground.get("/same").await.problem(404, "not_found");
    ground.get("/missing").await.problem(404, "not_found");
    ground.get("/..%2Fadmin-key").await.problem(422, "invalid");
}

#[tokio::test]
async fn contents_of_the_start_survive_the_deletion_of_the_repository() {
    let ground = Ground::new(&[
        (".git/HEAD", "ref: refs/heads/main\n"),
        ("src/main", "old\n"),
    ])
    .await;
    std::fs::remove_dir_all(ground.cwd.join(".git")).expect("it is ours");
    std::fs::remove_dir_all(ground.cwd.join("src")).expect("it is ours");
    assert_eq!(ground.kinds().await, expected(&[("src/main", "deleted")]));
    assert_eq!(ground.get("/src/main").await.body["oldText"], "old\n");
    ground.get("/.git/HEAD").await.problem(404, "not_found");
    assert_eq!(
        ground.revert("/src/main", &[]).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(ground.text("src/main").as_deref(), Some("old\n"));
}

#[tokio::test]
async fn revert_restores_a_file_unless_it_changed_meanwhile() {
    let ground = Ground::new(&[("edited", "old\n"), ("gone/file", "old\n")]).await;
    ground.write("edited", "new\n");
    ground.write("added", "new\n");
    std::fs::remove_dir_all(ground.cwd.join("gone")).expect("it is ours");
    let etag = async |path: &str| {
        ground.get(path).await.body["etag"]
            .as_str()
            .expect("a tag")
            .to_owned()
    };
    let stale = etag("/edited").await;
    let added = etag("/added").await;
    ground.write("edited", "newer\n");
    ground
        .revert("/edited", &[(IF_MATCH.as_str(), &stale)])
        .await
        .problem(412, "precondition_failed");
    ground
        .revert("/added", &[(IF_MATCH.as_str(), &stale)])
        .await
        .problem(412, "precondition_failed");
    ground
        .revert("/edited", &[(IF_NONE_MATCH.as_str(), "*")])
        .await
        .problem(412, "precondition_failed");
    assert_eq!(
        (
            ground.text("edited").as_deref(),
            ground.text("added").as_deref()
        ),
        (Some("newer\n"), Some("new\n"))
    );

    let fresh = etag("/edited").await;
    let reverted = ground
        .revert("/edited", &[(IF_MATCH.as_str(), &fresh)])
        .await;
    assert_eq!(reverted.status, StatusCode::NO_CONTENT, "{reverted:?}");
    let file = format!("/v1/sessions/{}/files/edited", ground.session);
    let file = ground
        .gateway
        .request(Method::GET, &file)
        .send()
        .await
        .expect("an answer");
    assert_eq!(file.headers()[ETAG].to_str().ok(), reverted.header("etag"));
    assert_eq!(
        ground
            .revert("/added", &[(IF_MATCH.as_str(), &added)])
            .await
            .status,
        StatusCode::NO_CONTENT
    );
    let created = ground
        .revert("/gone/file", &[(IF_NONE_MATCH.as_str(), "*")])
        .await;
    assert_eq!(created.status, StatusCode::NO_CONTENT, "{created:?}");
    assert_eq!(
        (ground.text("edited").as_deref(), ground.text("added")),
        (Some("old\n"), None)
    );
    assert_eq!(ground.text("gone/file").as_deref(), Some("old\n"));
    assert_eq!(ground.kinds().await, expected(&[]));
    ground.revert("/added", &[]).await.problem(404, "not_found");
}

#[tokio::test]
async fn files_behind_links_are_never_read_or_written() {
    let ground = Ground::new(&[("file", "old\n"), ("folder/file", "old\n")]).await;
    let outside = ground.gateway.path("outside");
    write(&outside, "secret", "secret\n");
    write(&outside, "file", "outside\n");
    std::fs::remove_file(ground.cwd.join("file")).expect("it is ours");
    std::fs::remove_dir_all(ground.cwd.join("folder")).expect("it is ours");
    for (target, name) in [
        (outside.join("secret"), "file"),
        (outside.clone(), "folder"),
        (outside.join("secret"), "new"),
    ] {
        symlink(target, ground.cwd.join(name)).expect("the folder is ours");
    }
    let list = ground.list().await;
    assert_eq!(
        kinds(&list),
        expected(&[("file", "deleted"), ("folder/file", "deleted")]),
        "{list}"
    );
    for path in ["/file", "/folder/file", "/folder/secret", "/new"] {
        let answer = ground.get(path).await;
        assert!(!answer.body.to_string().contains("secret\\n"), "{answer:?}");
        assert!(
            !answer.body.to_string().contains("outside\\n"),
            "{answer:?}"
        );
    }
    ground
        .revert("/folder/file", &[])
        .await
        .problem(422, "invalid");
    assert_eq!(
        ground.revert("/file", &[]).await.status,
        StatusCode::NO_CONTENT
    );
    assert!(
        !ground
            .cwd
            .join("file")
            .symlink_metadata()
            .expect("it is there")
            .is_symlink()
    );
    assert_eq!(
        std::fs::read_to_string(outside.join("secret")).expect("it is there"),
        "secret\n"
    );
    assert_eq!(
        std::fs::read_to_string(outside.join("file")).expect("it is there"),
        "outside\n"
    );
    // The folder itself is replaced by a link.
    std::fs::rename(&ground.cwd, ground.gateway.path("away")).expect("it is ours");
    symlink(&outside, &ground.cwd).expect("the root is ours");
    for path in ["", "/file", "/secret"] {
        let changes = ground.get(path).await;
        let files = format!("/v1/sessions/{}/files{path}", ground.session);
        let files = ground.gateway.call(Method::GET, &files).await;
        assert_eq!(
            (changes.status, &changes.body["code"]),
            (files.status, &files.body["code"]),
            "{path}"
        );
        changes.problem(404, "not_found");
    }
    ground
        .revert("/secret", &[])
        .await
        .problem(404, "not_found");
    assert!(outside.join("secret").exists());
}

#[tokio::test]
async fn baseline_survives_a_restart_and_ends_with_its_session() {
    let mut ground = Ground::new(&[("file", "old\n"), ("other", "old\n")]).await;
    let since = ground.list().await["since"].clone();
    ground.write("file", "new\n");
    let second = begin(&ground.gateway, &ground.cwd).await;
    ground.gateway.turn(&second, "hello").await;
    ground.write("other", "new\n");
    ground.gateway.kill();
    ground.gateway.start();
    let list = ground.list().await;
    assert_eq!(
        (kinds(&list), &list["since"]),
        (
            expected(&[("file", "modified"), ("other", "modified")]),
            &since
        )
    );
    assert_eq!(ground.get("/file").await.body["oldText"], "old\n");

    let path = format!("/v1/sessions/{}", ground.session);
    assert_eq!(
        ground.gateway.call(Method::DELETE, &path).await.status,
        StatusCode::NO_CONTENT
    );
    ground.get("").await.problem(404, "not_found");
    ground.session = second;
    let both = ground.stored();
    eventually(
        "the baseline is removed",
        Duration::from_secs(20),
        async || {
            (std::fs::read_dir(ground.gateway.path("data/private/changes"))
                .expect("a folder")
                .count()
                == 1)
                .then_some(())
        },
    )
    .await;
    assert!(ground.stored() <= both);
    // The other session has its contents still.
    assert_eq!(ground.kinds().await, expected(&[("other", "modified")]));
    assert_eq!(ground.get("/other").await.body["oldText"], "old\n");
    let path = format!("/v1/sessions/{}", ground.session);
    assert_eq!(
        ground.gateway.call(Method::DELETE, &path).await.status,
        StatusCode::NO_CONTENT
    );
    eventually(
        "the contents are removed",
        Duration::from_secs(20),
        async || (ground.stored() == 0).then_some(()),
    )
    .await;
}

#[tokio::test]
async fn baseline_of_a_session_that_is_gone_is_removed_at_the_next_start() {
    let mut ground = Ground::new(&[("file", "old\n")]).await;
    let changes = ground.gateway.path("data/private/changes");
    ground.gateway.stop();
    let orphan = changes.join("01938c5e-7a3b-7c4d-8e5f-0123456789ab");
    std::fs::rename(changes.join(&ground.session), &orphan).expect("the folder is ours");
    ground.gateway.start();
    eventually(
        "the orphan is removed",
        Duration::from_secs(20),
        async || (!orphan.exists()).then_some(()),
    )
    .await;
    // The session has no start any more, so it begins now.
    ground.write("file", "new\n");
    assert_eq!(ground.kinds().await, expected(&[]));
    ground.write("file", "newer\n");
    assert_eq!(ground.get("/file").await.body["oldText"], "new\n");
}

#[tokio::test]
async fn first_prompt_waits_for_the_baseline_of_a_large_folder() {
    const FILES: usize = 10_000;
    let gateway = Setup::fake_with(&[], "files = \"gateway\"").start();
    let cwd = project(&gateway);
    for number in 0..FILES {
        write(
            &cwd,
            &format!("d{}/f{number}", number % 100),
            format!("file {number}\n"),
        );
    }
    let began = Instant::now();
    let session = begin(&gateway, &cwd).await;
    let created = began.elapsed();
    // The agent changes the last file of the walk at once.
    let file = cwd.join("d99/f9999");
    gateway
        .turn(
            &session,
            &format!("write path={} text=changed", file.display()),
        )
        .await;
    let turn = began.elapsed();
    let ground = Ground {
        gateway,
        session,
        cwd,
    };
    let began = Instant::now();
    let list = ground.list().await;
    assert_eq!(
        (kinds(&list), &list["complete"]),
        (expected(&[("d99/f9999", "modified")]), &json!(true)),
        "{list}"
    );
    assert_eq!(
        ground.get("/d99/f9999").await.body["oldText"],
        "file 9999\n"
    );
    let compared = began.elapsed();
    println!("created after {created:?}, first turn after {turn:?}, compared in {compared:?}");
    assert!(
        turn < Duration::from_secs(20) && compared < Duration::from_secs(20),
        "{turn:?} {compared:?}"
    );
    std::fs::remove_dir_all(ground.cwd.join("d1")).expect("it is ours");
    for number in 0..600 {
        ground.write(&format!("new/f{number}"), "x\n");
    }
    let (one, two) = tokio::join!(ground.list(), ground.list());
    assert_eq!(
        (one["files"].as_array().map(Vec::len), &one["more"]),
        (Some(500), &json!(true))
    );
    assert_eq!(one, two);
}

#[tokio::test]
async fn fork_has_a_baseline_of_its_own() {
    let ground = Ground::with(
        Setup::fake(&["--fork", "--state", "state"]),
        &[("file", "old\n")],
    )
    .await;
    ground.write("file", "new\n");
    let (status, fork) = ground
        .gateway
        .post(&format!("/v1/sessions/{}/fork", ground.session), &json!({}))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{fork}");
    let fork = fork["sessionId"].as_str().expect("a text").to_owned();
    assert_eq!(ground.kinds().await, expected(&[("file", "modified")]));
    let ground = Ground {
        session: fork,
        ..ground
    };
    assert_eq!(ground.kinds().await, expected(&[]));
    ground.write("file", "newer\n");
    assert_eq!(ground.get("/file").await.body["oldText"], "new\n");
}

#[tokio::test]
async fn session_with_a_folder_of_its_own_starts_empty() {
    let gateway = Setup::fake(&[]).start();
    let (_, session) = gateway
        .post("/v1/sessions", &json!({ "agent": "fake" }))
        .await;
    let text = |name: &str| session[name].as_str().expect("a text").to_owned();
    let ground = Ground {
        session: text("sessionId"),
        cwd: text("cwd").into(),
        gateway,
    };
    assert_eq!(ground.kinds().await, expected(&[]));
    ground.write("a/b", "x\n");
    assert_eq!(ground.kinds().await, expected(&[("a/b", "added")]));
    // A closed session still has its changes.
    ground
        .gateway
        .post(
            &format!("/v1/sessions/{}/close", ground.session),
            &json!({}),
        )
        .await;
    assert_eq!(
        ground.revert("/a/b", &[]).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(ground.kinds().await, expected(&[]));
}
