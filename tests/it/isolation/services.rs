//! Services that would start programs for an agent outside of its isolation.

use rustix::process::geteuid;
use serde_json::json;

use super::ground::{Machine, User, open, order, run_by, script, setup, start};

const SOCKET: &str = "/var/lib/incus/unix.socket";

#[tokio::test]
async fn socket_of_a_service_outside_of_run_is_hidden() {
    if !geteuid().is_root() {
        eprintln!("this test needs root");
        return;
    }
    for user in [User::Root, User::Unprivileged]
        .into_iter()
        .filter(|user| user.can_run())
    {
        for machine in [Machine::Namespaces, Machine::LandlockOnly] {
            // The service accepts the user of the gateway.
            let id = user.id().to_string();
            let mut words = ["python3", &script("service_outside.py"), &id, "600"]
                .map(str::to_owned)
                .to_vec();
            words.extend(run_by(user, machine));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let gateway = start(setup(user, machine, "private", "").run_by(&words), user);
            let session = open(&gateway, &json!({ "agent": "hostile" })).await;
            let mechanism = session.json["isolation"]["mechanism"]
                .as_str()
                .expect("a text")
                .to_owned();
            let connect =
                format!("import socket; socket.socket(socket.AF_UNIX).connect({SOCKET:?})");
            let run = json!({ "act": "run", "command": ["python3", "-c", connect] });
            let connected = order(&gateway, &session, &run, "ran.json").await[0] == 0;
            // Old kernels have no rules for socket files. Then the gateway reports the service.
            assert!(
                !connected || mechanism == "partial",
                "{user:?} {machine:?} {mechanism}"
            );
            if machine == Machine::Namespaces {
                assert_eq!((connected, &*mechanism), (false, "namespaces"), "{user:?}");
            }
        }
    }
}

#[tokio::test]
async fn agent_of_root_has_no_supplementary_groups() {
    if !geteuid().is_root() {
        eprintln!("this test needs root");
        return;
    }
    for user in User::all()
        .into_iter()
        .filter(|user| *user != User::Unprivileged)
    {
        for machine in [Machine::Namespaces, Machine::LandlockOnly] {
            let mut words = ["setpriv", "--groups", "4242"].map(str::to_owned).to_vec();
            words.extend(run_by(user, machine));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let gateway = start(setup(user, machine, "private", "").run_by(&words), user);
            let session = open(&gateway, &json!({ "agent": "hostile" })).await;
            let run = json!({ "act": "run", "command": ["id", "-G"] });
            let groups = order(&gateway, &session, &run, "ran.json").await[1].clone();
            assert!(
                !groups.as_str().expect("a text").contains("4242"),
                "{user:?} {machine:?} {groups}"
            );
        }
    }
}
