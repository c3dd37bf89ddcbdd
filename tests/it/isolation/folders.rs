//! The folders that a session grants to a running process.

use reqwest::Method;
use serde_json::json;

use super::ground::{Machine, User, agents, open, order, outside_tmp, setup, start};
use crate::support::wait::LONGEST;
use crate::support::{Gateway, eventually};

#[tokio::test]
async fn idle_process_sees_only_the_folder_of_its_session() {
    let user = User::all()[0];
    let idle = "pool = { max_size = 4, min_idle = 1 }\n";
    let roots = tempfile::tempdir_in(outside_tmp()).expect("a folder");
    let [first, second] = ["first", "second"].map(|name| roots.path().join(name));
    for folder in [&first, &second] {
        std::fs::create_dir(folder).expect("the folder is ours");
        std::fs::write(folder.join("content"), "x").expect("the folder is ours");
    }
    user.own(roots.path());
    let setup = setup(user, Machine::Namespaces, "private", idle);
    let gateway = start(
        setup.settings(&format!("workspaces.allow = [{:?}]", roots.path())),
        user,
    );
    eventually("an idle process", LONGEST, || async {
        agents(&gateway, "hostile").first().copied()
    })
    .await;
    for (own, other) in [(&first, &second), (&second, &first)] {
        let idle = agents(&gateway, "hostile");
        let session = open(&gateway, &json!({ "agent": "hostile", "cwd": own })).await;
        assert_eq!(
            session.json["isolation"],
            json!({ "level": "private", "mechanism": "namespaces" })
        );
        let look = json!({ "act": "look", "paths": [own, other, roots.path()] });
        let found = order(&gateway, &session, &look, "looked.json").await;
        let path = |path: &std::path::Path| found[path.to_str().expect("a path")].clone();
        assert_eq!(path(own), json!(["content"]), "{found}");
        assert_eq!(
            path(other),
            json!(null),
            "the folder of the other session is invisible"
        );
        let name = own.file_name().expect("a name").to_str().expect("text");
        assert_eq!(
            path(roots.path()),
            json!([name]),
            "the root shows only the granted folder"
        );
        // The session got a process that ran before.
        assert!(
            agents(&gateway, "hostile")
                .iter()
                .any(|pid| idle.contains(pid)),
            "no idle process"
        );
        eventually("the next idle process", LONGEST, || async {
            (agents(&gateway, "hostile")
                .iter()
                .any(|pid| !idle.contains(pid)))
            .then_some(())
        })
        .await;
    }
}

/// The folders of idle processes, and of sessions.
fn workspaces(gateway: &Gateway) -> [Vec<String>; 2] {
    let entries = gateway
        .path("data")
        .join("workspaces")
        .read_dir()
        .expect("the folder is ours");
    let names = entries.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a text")
    });
    let (idle, of_sessions): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with(".idle-"));
    [idle, of_sessions]
}

/// Waits for an idle process. Both agents have one, each with its folder.
async fn idle_process(gateway: &Gateway, but: &[u32]) -> u32 {
    eventually("an idle process", LONGEST, || async {
        let agents = agents(gateway, "hostile");
        let ready = workspaces(gateway)[0].len() == 2;
        let stats = gateway.get("/v1/agents/hostile").await;
        let idle = stats["pool"]["idle"].as_u64() == Some(1);
        agents
            .into_iter()
            .find(|pid| !but.contains(pid))
            .filter(|_| ready && idle)
    })
    .await
}

#[tokio::test]
async fn landlock_session_gets_an_idle_process_with_its_folder() {
    let user = User::all()[0];
    let idle = "pool = { max_size = 4, min_idle = 1 }\n";
    let mut gateway = start(setup(user, Machine::LandlockOnly, "workspace", idle), user);
    let first = idle_process(&gateway, &[]).await;
    let session = open(&gateway, &json!({ "agent": "hostile" })).await;
    assert_eq!(
        session.cwd.file_name().and_then(|name| name.to_str()),
        Some(&*session.id)
    );
    // The agent and its terminals can write there. The process also found no other folder.
    let script = "echo $PPID; echo x >\"$0/written\"; ls \"$0\"";
    let run = json!({ "act": "run", "command": ["sh", "-c", script, session.cwd] });
    let ran = order(&gateway, &session, &run, "ran.json").await;
    assert_eq!(ran[1], json!(format!("{first}\nwritten\n")), "{ran}");
    let terminal =
        json!({ "act": "terminal", "command": ["cat", session.cwd.join("written")], "env": [] });
    let shown = order(&gateway, &session, &terminal, "terminal.json").await;
    assert_eq!(shown["output"], json!("x\n"));

    // A session with its own folder starts a process. The idle one stays.
    let second = idle_process(&gateway, &[first]).await;
    std::fs::create_dir(gateway.path("data").join("workspaces/named")).expect("the folder is ours");
    user.own(&gateway.path("data").join("workspaces/named"));
    let named = open(&gateway, &json!({ "agent": "hostile", "cwd": "named" })).await;
    let run = json!({ "act": "run", "command": ["sh", "-c", "echo $PPID"] });
    let third = order(&gateway, &named, &run, "ran.json").await[1]
        .as_str()
        .expect("a pid")
        .trim()
        .to_owned();
    assert!(
        ![first, second].map(|pid| pid.to_string()).contains(&third),
        "{third}"
    );

    // The deletion of a session removes its folder.
    let path = format!("/v1/sessions/{}", session.id);
    let (status, problem) = gateway.send(Method::DELETE, &path, &json!(null)).await;
    assert!(status.is_success(), "{problem}");
    eventually("the end of the folder", LONGEST, || async {
        (!session.cwd.exists()).then_some(())
    })
    .await;

    // A start removes the folder of a process that died with the gateway, and a stop that of its own.
    let [left, _] = workspaces(&gateway);
    gateway.kill();
    assert_eq!(workspaces(&gateway)[0], left);
    gateway.start();
    idle_process(&gateway, &[]).await;
    assert!(
        !workspaces(&gateway)[0]
            .iter()
            .any(|name| left.contains(name)),
        "{left:?}"
    );
    gateway.stop();
    assert_eq!(workspaces(&gateway), [Vec::new(), vec!["named".to_owned()]]);
}

#[tokio::test]
async fn home_of_the_operator_keeps_the_private_folder_closed() {
    for (machine, mechanism) in [
        (Machine::Namespaces, "namespaces"),
        (Machine::LandlockOnly, "partial"),
    ] {
        let user = User::all()[0];
        let gateway = start(setup(user, machine, "private", "home = \"user\"\n"), user);
        let session = open(&gateway, &json!({ "agent": "hostile" })).await;
        assert_eq!(session.json["isolation"]["mechanism"], mechanism);
        if mechanism == "namespaces" {
            let private = gateway.path("data").join("private");
            let look = json!({ "act": "look", "paths": [private, gateway.path("bin"), gateway.path("data")] });
            let found = order(&gateway, &session, &look, "looked.json").await;
            assert_eq!(found[private.to_str().expect("a path")], json!(null));
            assert_eq!(
                found[gateway.path("bin").to_str().expect("a path")],
                json!([]),
                "the home is visible"
            );
        }
    }
}

/// An idle process gets the folder after its start.
#[tokio::test]
async fn granted_folder_keeps_the_data_folder_below_it_closed() {
    for user in User::all()
        .into_iter()
        .filter(|user| user.range().is_none())
    {
        for level in ["private", "workspace"] {
            let root = tempfile::tempdir_in(outside_tmp()).expect("a folder");
            let parent = root.path().join("parent");
            std::fs::create_dir(&parent).expect("the folder is ours");
            user.own(root.path());
            let idle = "pool = { max_size = 4, min_idle = 1 }\n";
            let setup = setup(user, Machine::Namespaces, level, idle);
            let allow = format!("workspaces.allow = {}", json!([root.path()]));
            let gateway = start(setup.below(&parent).settings(&allow), user);
            let before = eventually("an idle process", LONGEST, || async {
                agents(&gateway, "hostile").first().copied()
            })
            .await;
            let cwd = json!({ "agent": "hostile", "cwd": root.path() });
            let session = open(&gateway, &cwd).await;
            let data = gateway.path("data");
            let private = data.join("private");
            let look = json!({ "act": "look", "paths": [private, data] });
            let found = order(&gateway, &session, &look, "looked.json").await;
            let seen = |path: &std::path::Path| found[path.to_str().expect("a path")].clone();
            assert_eq!(seen(&private), json!(null), "{user:?} {level} {found}");
            assert!(
                !found.to_string().contains("log.sqlite"),
                "{user:?} {level} {found}"
            );
            let script = "mv \"$0\" \"$0.moved\" 2>/dev/null || echo kept";
            let run = json!({ "act": "run", "command": ["sh", "-c", script, parent] });
            let ran = order(&gateway, &session, &run, "ran.json").await;
            assert_eq!(ran[1], "kept\n", "{user:?} {level} {ran}");
            // The session got the process that ran before.
            assert!(
                agents(&gateway, "hostile").contains(&before),
                "{user:?} {level}"
            );
        }
    }
}
