//! The folders that a session grants to a running process.

use serde_json::json;

use super::ground::{Machine, User, agents, open, order, setup, start};
use crate::support::eventually;
use crate::support::wait::LONGEST;

#[tokio::test]
async fn idle_process_sees_only_the_folder_of_its_session() {
    let user = User::all()[0];
    let idle = "pool = { max_size = 4, min_idle = 1 }\n";
    let roots = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let [first, second] = ["first", "second"].map(|name| roots.path().join(name));
    for folder in [&first, &second] {
        std::fs::create_dir(folder).expect("the folder is ours");
        std::fs::write(folder.join("content"), "x").expect("the folder is ours");
    }
    user.own(roots.path());
    let setup = setup(user, Machine::Namespaces, "private", idle);
    let gateway = start(setup.settings(&format!("workspaces.allow = [{:?}]", roots.path())), user);
    eventually("an idle process", LONGEST, || async { agents(&gateway, "hostile").first().copied() }).await;
    for (own, other) in [(&first, &second), (&second, &first)] {
        let idle = agents(&gateway, "hostile");
        let session = open(&gateway, &json!({ "agent": "hostile", "cwd": own })).await;
        assert_eq!(session.json["isolation"], json!({ "level": "private", "mechanism": "namespaces" }));
        let look = json!({ "act": "look", "paths": [own, other, roots.path()] });
        let found = order(&gateway, &session, &look, "looked.json").await;
        let path = |path: &std::path::Path| found[path.to_str().expect("a path")].clone();
        assert_eq!(path(own), json!(["content"]), "{found}");
        assert_eq!(path(other), json!(null), "the folder of the other session is invisible");
        let name = own.file_name().expect("a name").to_str().expect("text");
        assert_eq!(path(roots.path()), json!([name]), "the root shows only the granted folder");
        // The session got a process that ran before.
        assert!(agents(&gateway, "hostile").iter().any(|pid| idle.contains(pid)), "no idle process");
        eventually("the next idle process", LONGEST, || async {
            (agents(&gateway, "hostile").iter().any(|pid| !idle.contains(pid))).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn home_of_the_operator_keeps_the_private_folder_closed() {
    for (machine, mechanism) in [(Machine::Namespaces, "namespaces"), (Machine::LandlockOnly, "partial")] {
        let user = User::all()[0];
        let gateway = start(setup(user, machine, "private", "home = \"user\"\n"), user);
        let session = open(&gateway, &json!({ "agent": "hostile" })).await;
        assert_eq!(session.json["isolation"]["mechanism"], mechanism);
        if mechanism == "namespaces" {
            let private = gateway.path("data").join("private");
            let look =
                json!({ "act": "look", "paths": [private, gateway.path("bin"), gateway.path("data")] });
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
