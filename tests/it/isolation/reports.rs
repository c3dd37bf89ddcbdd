//! The reports of levels and mechanisms, and the refusals to start an agent.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;

use reqwest::StatusCode;
use rustix::process::geteuid;
use serde_json::{Value, json};

use super::attacks::expected_mechanism;
use super::ground::{Machine, User, open, order, setup, start, start_after};
use crate::support::eventually;
use crate::support::gateway::{NO_CONFIG_FILE, command};
use crate::support::log::one;
use crate::support::places::gateway_program;
use crate::support::wait::LONGEST;

/// Root with all capabilities but one that own users need.
const WITHOUT_CHOWN: [&str; 3] = ["setpriv", "--bounding-set", "-chown"];

#[tokio::test]
async fn agent_session_and_event_report_the_isolation() {
    let user = User::all()[0];
    for (level, machine) in [
        ("off", Machine::Any),
        ("private", Machine::Namespaces),
        ("private", Machine::LandlockOnly),
        ("workspace", Machine::LandlockOnly),
        ("private", Machine::Bare),
    ] {
        let expected =
            json!({ "level": level, "mechanism": expected_mechanism(user, level, machine) });
        let gateway = start(setup(user, machine, level, ""), user);
        assert_eq!(
            gateway.get("/v1/agents/hostile").await["isolation"],
            expected
        );
        let session = open(&gateway, &json!({ "agent": "hostile" })).await;
        assert_eq!(
            gateway.get(&format!("/v1/sessions/{}", session.id)).await["isolation"],
            expected
        );
        let events = gateway.all_events(&session.id).await;
        assert_eq!(one(&events, "session.attached")["isolation"], expected);
        let reported = format!(
            "\"isolation\":\"{}\"",
            expected_mechanism(user, "private", machine)
        );
        eventually("the report of the start", LONGEST, || async {
            gateway.log().contains(&reported).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn landlock_is_partial_while_a_container_engine_accepts_its_user() {
    // A service of root may trust root also on the machine that runs the tests.
    let user = *User::all().last().expect("a user");
    let report = async |gateway: &crate::support::Gateway| {
        let session = open(gateway, &json!({ "agent": "hostile" })).await;
        session.json["isolation"]["mechanism"].clone()
    };
    let mut engine = None;
    let gateway = start_after(
        setup(user, Machine::LandlockOnly, "private", ""),
        user,
        |folder| {
            std::fs::create_dir_all(folder.join(".docker/run")).expect("the folder is ours");
            engine = Some(
                UnixListener::bind(folder.join(".docker/run/docker.sock")).expect("a short path"),
            );
        },
    );
    assert_eq!(report(&gateway).await, "partial");
    assert_eq!(
        gateway.get("/v1/agents/hostile").await["isolation"]["mechanism"],
        "partial"
    );
    let named = format!(
        "agents can connect to {}",
        gateway.path(".docker/run/docker.sock").display()
    );
    assert!(gateway.log().contains(&named), "{}", gateway.log());

    // A service that starts after the gateway limits later children.
    let gateway = start(setup(user, Machine::LandlockOnly, "private", ""), user);
    assert_eq!(
        report(&gateway).await,
        expected_mechanism(user, "private", Machine::LandlockOnly)
    );
    std::fs::create_dir_all(gateway.path(".docker/run")).expect("the folder is ours");
    let later = UnixListener::bind(gateway.path(".docker/run/docker.sock")).expect("a short path");
    user.own(&gateway.path(".docker"));
    assert_eq!(report(&gateway).await, "partial");
    drop((engine, later));
}

#[tokio::test]
async fn namespaces_without_landlock_are_partial() {
    for user in User::all() {
        let gateway = start(setup(user, Machine::NamespacesOnly, "private", ""), user);
        let session = open(&gateway, &json!({ "agent": "hostile" })).await;
        assert_eq!(session.json["isolation"]["mechanism"], "partial");
        assert_eq!(
            gateway.get("/v1/agents/hostile").await["isolation"]["mechanism"],
            "partial"
        );
        assert!(
            gateway
                .log()
                .contains("abstract sockets of other processes"),
            "{}",
            gateway.log()
        );
        // The namespaces apply the rest.
        let private = gateway.path("data/private");
        let look = json!({ "act": "look", "paths": [private] });
        let found = order(&gateway, &session, &look, "looked.json").await;
        assert_eq!(found[private.to_str().expect("a path")], json!(null));
    }
    let user = User::all()[0];
    let required =
        setup(user, Machine::NamespacesOnly, "private", "").settings("isolation.required = true");
    assert!(
        refused(&start(required, user))
            .await
            .to_string()
            .contains("partial")
    );
}

async fn refused(gateway: &crate::support::Gateway) -> Value {
    let (status, problem) = gateway
        .post("/v1/sessions", &json!({ "agent": "hostile" }))
        .await;
    assert_ne!(status, StatusCode::CREATED, "{problem}");
    problem
}

#[tokio::test]
async fn required_isolation_that_the_machine_lacks_refuses_agents() {
    let user = User::all()[0];
    let strict = |machine| {
        start(
            setup(user, machine, "private", "").settings("isolation.required = true"),
            user,
        )
    };
    let problem = refused(&strict(Machine::Bare)).await;
    let text = problem.to_string();
    assert!(
        text.contains("isolation.required") && text.contains("none"),
        "{text}"
    );
    for machine in [Machine::Namespaces, Machine::LandlockOnly] {
        if expected_mechanism(user, "private", machine) == "partial" {
            assert!(
                refused(&strict(machine))
                    .await
                    .to_string()
                    .contains("partial")
            );
            continue;
        }
        open(&strict(machine), &json!({ "agent": "hostile" })).await;
    }
}

#[tokio::test]
async fn gateway_of_root_gives_each_agent_its_own_user_by_default() {
    if !geteuid().is_root() {
        eprintln!("this test needs root");
        return;
    }
    let gateway = setup(User::Root, Machine::Any, "private", "")
        .start_with(|_| vec![("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "false".into())]);
    open(&gateway, &json!({ "agent": "hostile" })).await;
    let mut owners = Vec::new();
    for agent in gateway.agents_alive() {
        let process = std::fs::metadata(format!("/proc/{agent}")).expect("it runs");
        owners.push(process.uid());
    }
    assert!(
        owners
            .iter()
            .any(|owner| (1_900_000_000..=1_900_065_535).contains(owner)),
        "{owners:?}"
    );
    assert!(
        gateway
            .log()
            .contains("\"run_as\":\"1900000000-1900065535\""),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn gateway_of_root_without_a_capability_starts_no_agents_and_says_why() {
    if !geteuid().is_root() {
        eprintln!("this test needs root");
        return;
    }
    let why = "cannot give agents users of their own";
    let idle = "pool = { max_size = 4, min_idle = 1 }\n";
    let gateway = setup(User::Root, Machine::Any, "private", idle)
        .settings("testing.min_backoff = \"10ms\"")
        .run_by(&WITHOUT_CHOWN)
        .start_with(|_| vec![("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "false".into())]);
    let problem = refused(&gateway).await.to_string();
    assert!(
        problem.contains("allow_root_agents") && problem.contains(why),
        "{problem}"
    );
    // The requests take longer than many back-offs. A start in advance that cannot succeed is not repeated.
    for _ in 0..20 {
        refused(&gateway).await;
    }
    let log = gateway.log();
    let reports = |parts: &[&str]| {
        let mut lines = log.lines().collect::<Vec<_>>();
        lines.retain(|line| parts.iter().all(|part| line.contains(part)));
        lines.len()
    };
    let failed = ["\"could not start the agent\"", "\"agent\":\"sibling\""];
    assert_eq!(reports(&failed), 1, "{log}");
    assert_eq!(reports(&["\"run_as\":\"not set"]), 1, "{log}");
    let mut check = command(WITHOUT_CHOWN[0]);
    check.args(&WITHOUT_CHOWN[1..]).arg(gateway_program());
    check
        .env("HOME", gateway.path(""))
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1);
    let checked = check.args(["check", "--data"]).arg(gateway.path("checked"));
    let checked = checked.output().expect("the binary was built");
    let text = String::from_utf8_lossy(&checked.stdout).into_owned()
        + &String::from_utf8_lossy(&checked.stderr);
    assert!(text.contains(why), "{text}");
    if !User::Unprivileged.can_run() {
        return;
    }
    let unprivileged =
        setup(User::Unprivileged, Machine::Any, "private", "").start_with(|folder| {
            User::Unprivileged.own(folder);
            vec![("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "false".into())]
        });
    open(&unprivileged, &json!({ "agent": "hostile" })).await;
}
