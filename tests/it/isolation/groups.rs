//! The control groups of agents. On a machine without them, the tests check that the gateway reports the reason.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::control_group::{DelegatedGroup, folder_of};
use super::ground::{
    Machine, User, agents, at_home_of_agents, open, order, port, setup_in, start, supervisor_of,
};
use crate::support::control_groups::below;
use crate::support::procfs::is_stopped;
use crate::support::{Gateway, eventually};

/// The levels and machines without a PID namespace.
const WITHOUT_NAMESPACES: [(&str, Machine); 2] =
    [("off", Machine::Any), ("private", Machine::LandlockOnly)];

const SOON: Duration = Duration::from_secs(10);

/// A gateway in a group of the test, if the machine permits one.
fn start_in_group(
    user: User,
    machine: Machine,
    level: &str,
    more: &str,
) -> (Gateway, Option<DelegatedGroup>) {
    let group = DelegatedGroup::create(user);
    let gateway = start(setup_in(group.as_ref(), user, machine, level, more), user);
    (gateway, group)
}

/// The report of the start. It states a reason if the gateway uses no groups.
async fn report(gateway: &Gateway, group: Option<&DelegatedGroup>) -> String {
    let report = eventually("the record of the start", SOON, || async {
        let log = gateway.log();
        let records = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records
            .filter_map(|record| record.get("control_groups")?.as_str().map(str::to_owned))
            .next_back()
    })
    .await;
    let expected = if group.is_some() {
        "used "
    } else {
        "not used: "
    };
    assert!(
        report.starts_with(expected) && report.len() > expected.len(),
        "{report}"
    );
    report
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a pid"), signal).expect("it runs");
}

/// Starts a daemon that has left its agent and its session. Returns the supervisor of the agent.
async fn start_daemon(gateway: &Gateway) -> u32 {
    let session = open(gateway, &json!({ "agent": "hostile" })).await;
    let targets = json!({ "port": port(gateway), "daemonFile": session.cwd.join("daemon") });
    let daemon = json!({ "act": "daemon", "targets": targets, "cwd": session.cwd });
    let turn = gateway.turn(&session.id, &daemon.to_string()).await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    assert!(at_home_of_agents(gateway).len() > 1, "the daemon runs");
    supervisor_of(
        gateway,
        *agents(gateway, "hostile").first().expect("the agent runs"),
    )
}

async fn no_survivors(gateway: &Gateway) {
    eventually("the end of all processes of the agent", SOON, || async {
        at_home_of_agents(gateway).is_empty().then_some(())
    })
    .await;
}

/// The groups of the gateway's children.
fn trees(group: &DelegatedGroup) -> Vec<PathBuf> {
    let named = |path: &PathBuf| path.to_string_lossy().contains("/acp-gateway-");
    group
        .starts()
        .iter()
        .flat_map(|start| below(start))
        .filter(named)
        .collect()
}

#[tokio::test]
async fn each_agent_has_its_own_control_group_and_none_remains() {
    for user in User::all() {
        for machine in [Machine::Namespaces, Machine::LandlockOnly] {
            let (mut gateway, group) = start_in_group(user, machine, "private", "");
            let report = report(&gateway, group.as_ref()).await;
            for agent in ["hostile", "sibling"] {
                open(&gateway, &json!({ "agent": agent })).await;
            }
            let of = |pid: u32| folder_of(&pid.to_string()).expect("it runs");
            let [hostile, sibling] = ["hostile", "sibling"].map(|name| agents(&gateway, name)[0]);
            let Some(group) = group else {
                assert_eq!(of(hostile), of(gateway.pid()), "{report}");
                continue;
            };
            let [tree] = trees(&group).try_into().expect("one tree");
            assert!(
                of(hostile).starts_with(&tree) && of(hostile).ends_with("program"),
                "{:?}",
                of(hostile)
            );
            assert_ne!(of(hostile), of(sibling));
            let supervisor = of(supervisor_of(&gateway, hostile));
            assert!(
                !supervisor.starts_with(of(hostile).parent().expect("a parent")),
                "{supervisor:?}"
            );
            gateway.stop();
            assert!(trees(&group).is_empty(), "{:?}", trees(&group));
            assert!(!gateway.path("data/private/control-groups").exists());
        }
    }
}

#[tokio::test]
async fn terminal_runs_in_the_group_of_its_agent() {
    let (gateway, group) = start_in_group(User::all()[0], Machine::Namespaces, "private", "");
    report(&gateway, group.as_ref()).await;
    let session = open(&gateway, &json!({ "agent": "hostile" })).await;
    let show = json!({ "act": "terminal", "command": ["cat", "/proc/self/cgroup"], "env": [] });
    let shown = order(&gateway, &session, &show, "terminal.json").await;
    let own = shown["output"]
        .as_str()
        .expect("its output")
        .lines()
        .find_map(|line| line.strip_prefix("0::"));
    let agent = folder_of(&agents(&gateway, "hostile")[0].to_string()).expect("it runs");
    assert!(
        agent.ends_with(own.expect("its group").trim_start_matches('/')),
        "{own:?} {agent:?}"
    );
    assert_eq!(group.is_some(), agent.ends_with("program"), "{agent:?}");
}

#[tokio::test]
async fn daemon_without_namespaces_does_not_survive_a_killed_supervisor() {
    for (level, machine) in WITHOUT_NAMESPACES {
        for user in User::all() {
            let (gateway, group) = start_in_group(user, machine, level, "");
            let report = report(&gateway, group.as_ref()).await;
            let supervisor = start_daemon(&gateway).await;
            signal(supervisor, Signal::KILL);
            if group.is_some() {
                no_survivors(&gateway).await;
            } else {
                assert!(
                    report.starts_with("not used: "),
                    "the daemon survives, and the start reported it: {report}"
                );
                kill_all(&gateway);
            }
        }
    }
}

/// Ends the daemon on a machine without control groups.
fn kill_all(gateway: &Gateway) {
    for pid in at_home_of_agents(gateway) {
        kill_process(
            Pid::from_raw(pid.cast_signed()).expect("a pid"),
            Signal::KILL,
        )
        .unwrap_or_default();
    }
}

#[tokio::test]
async fn start_after_a_kill_ends_the_groups_of_the_earlier_gateway() {
    for (level, machine) in WITHOUT_NAMESPACES {
        let (mut gateway, group) = start_in_group(User::all()[0], machine, level, "");
        report(&gateway, group.as_ref()).await;
        let supervisor = start_daemon(&gateway).await;
        // A gateway that runs would kill the group at the end of the supervisor.
        gateway.signal(Signal::STOP);
        eventually("the stop of the gateway", SOON, || async {
            is_stopped(gateway.pid()).then_some(())
        })
        .await;
        signal(supervisor, Signal::KILL);
        gateway.kill();
        let Some(group) = group else {
            kill_all(&gateway);
            continue;
        };
        let before = trees(&group);
        assert!(
            before.len() == 1 && !at_home_of_agents(&gateway).is_empty(),
            "the daemon runs"
        );
        gateway.start();
        assert_eq!(
            at_home_of_agents(&gateway),
            [0; 0],
            "the start came before the end of the daemon"
        );
        assert!(trees(&group).iter().all(|tree| !before.contains(tree)));
        assert!(
            gateway.log().contains("by their control groups"),
            "{}",
            gateway.log()
        );
    }
}

#[tokio::test]
async fn fork_bomb_is_limited_while_another_agent_works() {
    for user in User::all() {
        let more = "max_processes = 60\n";
        let (gateway, group) = start_in_group(user, Machine::Namespaces, "private", more);
        let report = report(&gateway, group.as_ref()).await;
        if user == User::Root && !report.starts_with("used with limits (pids") {
            // The kernel counts the processes of root only in a group with this controller.
            println!("not limited for root: {report}");
            continue;
        }
        let session = open(&gateway, &json!({ "agent": "hostile" })).await;
        let fork = json!({ "act": "fork", "count": 500 });
        let forked = order(&gateway, &session, &fork, "forked.json").await;
        let count = forked[0].as_u64().expect("a number");
        let error = forked[1].as_i64();
        assert!((1..60).contains(&count), "{count} processes");
        assert_eq!(
            error,
            Some(i64::from(rustix::io::Errno::AGAIN.raw_os_error()))
        );
        let sibling = open(&gateway, &json!({ "agent": "sibling" })).await;
        let run = json!({ "act": "run", "command": ["sh", "-c", "ls / | cat"] });
        assert_eq!(order(&gateway, &sibling, &run, "ran.json").await[0], 0);
        gateway
            .post(&format!("/v1/sessions/{}/close", session.id), &json!({}))
            .await;
        eventually("the end of the agent", SOON, || async {
            agents(&gateway, "hostile").is_empty().then_some(())
        })
        .await;
    }
}
