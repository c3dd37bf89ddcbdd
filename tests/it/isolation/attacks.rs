//! All actions of the hostile agent at all levels, with all mechanisms, as root and unprivileged.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::ground::{Ground, Machine, SECRET, User, order};
use super::table;
use crate::support::figure;
use crate::support::places::open_parent;

/// The outcome of each action.
pub(super) type Outcomes = BTreeMap<String, String>;

/// Actions that the level `private` allows with namespaces.
const ALLOWED: [&str; 4] = [
    // The level isolates sessions from each other. It does not make the machine read-only.
    "read another folder of the same user",
    "create a file in another folder of the same user",
    "connect to a socket file in another folder",
    // The program has the rights of every program of the agent.
    "execute a file without a name (memfd)",
];

/// Further actions that Landlock cannot deny: metadata, notifications, command lines, sockets with a path, and
/// the scheduling of processes.
const OPEN_WITH_LANDLOCK: [&str; 11] = [
    "mark a private file as readable for all (chmod)",
    "change the times of a private file",
    "read the size of a private file (stat)",
    "watch the private folder (inotify)",
    "connect to a socket file in /tmp",
    "read the command line of the gateway",
    "read the command line of another agent",
    "read the command line of the own supervisor",
    "change the priority of another process",
    "change the processors of another process",
    "see the sockets of system services in /run",
];

/// The actions that only `workspace` denies.
const DENIED_AT_WORKSPACE: [&str; 1] = ["create a file in another folder of the same user"];

#[tokio::test]
async fn hostile_agent_cannot_leave_its_isolation() {
    let mut columns = Vec::new();
    let mut has_groups = true;
    for user in User::all() {
        for (level, machine) in table::COLUMNS {
            let (outcomes, group) = attack(user, machine, level).await;
            has_groups &= group;
            check(level, machine, &outcomes);
            columns.push(((user, level, machine), outcomes));
        }
    }
    if open_parent().is_some() {
        table::compare(&columns, has_groups);
    } else {
        figure("the table needs a folder that each level shows");
    }
}

/// Runs all actions in a new gateway. Returns their outcomes, corrected by the effects outside of the agent, and whether
/// the gateway has control groups.
pub(super) async fn attack(user: User, machine: Machine, level: &str) -> (Outcomes, bool) {
    let ground = Ground::new(user, machine, level).await;
    let applied = expected_mechanism(user, level, machine);
    assert_eq!(
        ground.hostile.json["isolation"],
        json!({ "level": level, "mechanism": applied })
    );
    let attack = json!({ "act": "attack", "targets": ground.targets });
    let results = order(&ground.gateway, &ground.hostile, &attack, "results.json").await;
    let mut outcomes = Outcomes::new();
    for (name, result) in results.as_object().expect("an object") {
        let outcome = result[0].as_str().expect("an outcome");
        assert_ne!(outcome, "broken", "{name}: {result}");
        outcomes.insert(name.clone(), outcome.to_owned());
    }
    observe(&ground, &mut outcomes).await;
    (outcomes, ground.group.is_some())
}

pub(super) fn expected_mechanism(user: User, level: &str, machine: Machine) -> &'static str {
    match (level, machine) {
        ("off", _) => "none",
        ("strict", _) => "command",
        (_, Machine::Namespaces | Machine::Any) => "namespaces",
        (_, Machine::LandlockOnly) if user.has_service() => "partial",
        (_, Machine::NamespacesOnly) => "partial",
        (_, Machine::LandlockOnly) => "landlock",
        (_, Machine::Bare) => "none",
    }
}

/// Corrects outcomes by the state outside of the agent: a file in the agent's own file system harms nothing.
async fn observe(ground: &Ground, outcomes: &mut Outcomes) {
    let mut set = |name: &str, happened: bool| {
        let outcome = outcomes
            .get_mut(name)
            .unwrap_or_else(|| panic!("no action {name}"));
        (if happened { "allowed" } else { "denied" }).clone_into(outcome);
    };
    for (name, folder) in [
        ("create a file in the private folder", "private"),
        ("create a file in the home of another agent", "siblingHome"),
        (
            "create a file in the workspace of another session",
            "siblingWorkspace",
        ),
        ("create a file in the home of the operator", "operatorHome"),
        ("create a file in the shared /tmp", "tmp"),
        ("create a file in the shared /dev/shm", "shm"),
        ("change a program of the operator's PATH", "programs"),
        (
            "create a file in another folder of the same user",
            "elsewhere",
        ),
    ] {
        let planted = ground
            .path(folder)
            .join(format!("planted-{}", ground.gateway.pid()));
        set(name, planted.exists());
        drop(std::fs::remove_file(planted));
    }
    let content = |target: &str| std::fs::read_to_string(ground.path(target)).unwrap_or_default();
    set("truncate a private file", content("truncated") != SECRET);
    set("rename a private file", !ground.path("renamed").exists());
    set("delete a private file", !ground.path("deleted").exists());
    let [first, second] = ground.victim.running();
    set("kill another process of the same user", !first);
    set(
        "kill another process by an event of a descriptor (F_SETOWN)",
        !second,
    );
    // The gateway follows no link of the agent out of its folder.
    let hostile = &ground.hostile;
    let link = hostile.cwd.join("planted-link");
    std::os::unix::fs::symlink(ground.path("privateFile"), link).expect("the folder is ours");
    let path = format!("/v1/sessions/{}/files/planted-link", hostile.id);
    let response = ground
        .gateway
        .request(reqwest::Method::GET, &path)
        .send()
        .await
        .expect("an answer");
    let leaked = response.text().await.expect("a body").contains(SECRET);
    let outcome = if leaked { "allowed" } else { "denied" };
    outcomes.insert(
        "read a private file through a planted link and a file route".to_owned(),
        outcome.to_owned(),
    );
}

/// The guarantees of `private` and `workspace`, independent of the table in the documentation.
fn check(level: &str, machine: Machine, outcomes: &Outcomes) {
    if matches!(level, "off" | "strict") {
        return;
    }
    let exempt = |name: &str| {
        let open = ALLOWED.contains(&name)
            && !(level == "workspace" && DENIED_AT_WORKSPACE.contains(&name));
        open || machine == Machine::LandlockOnly && OPEN_WITH_LANDLOCK.contains(&name)
    };
    let escapes: Vec<&String> = outcomes
        .iter()
        .filter(|(name, outcome)| *outcome == "allowed" && !exempt(name))
        .map(|(name, _)| name)
        .collect();
    assert!(
        escapes.is_empty(),
        "{level} with {machine:?} allows {escapes:#?}"
    );
    assert!(outcomes.len() >= 100, "{} actions", outcomes.len());
}

#[tokio::test]
async fn level_off_shows_that_the_actions_do_harm() {
    let user = User::all()[0];
    let (outcomes, has_groups) = attack(user, Machine::Any, "off").await;
    let in_groups: &[&str] = if has_groups { &table::NEED_GROUPS } else { &[] };
    for name in [
        "read a private file",
        "write to the database",
        "delete a private file",
        "read the environment of another agent",
        "write to the stdin of another agent (/proc/PID/fd)",
        "trace another agent (ptrace)",
        "kill another process of the same user",
        "kill another process by an event of a descriptor (F_SETOWN)",
        "create a file in the shared /tmp",
        "connect to an abstract socket of another process",
        "write to the terminal of another process (/dev/pts)",
        "read a message of another process (mq_open)",
        "delete a message queue of another process (mq_unlink)",
    ]
    .iter()
    .chain(in_groups)
    {
        assert_eq!(outcomes[*name], "allowed", "{name}");
    }
}

#[tokio::test]
async fn strict_command_gets_the_folders_of_the_session() {
    let user = User::all()[0];
    let more = "isolation_command = [\"env\", \"FOLDER={cwd}\", \"OWN={home}\"]\n";
    let gateway = super::ground::start(
        super::ground::setup(user, Machine::Any, "strict", more),
        user,
    );
    let session = super::ground::open(&gateway, &json!({ "agent": "hostile" })).await;
    let run =
        json!({ "act": "run", "command": ["sh", "-c", "echo $FOLDER; echo $OWN; echo $HOME"] });
    let ran: Value = order(&gateway, &session, &run, "ran.json").await;
    let text = ran[1].as_str().expect("its output");
    let [folder, own, home] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{ran}")
    };
    assert_eq!(Path::new(folder), session.cwd);
    assert_eq!(own, home);
}
