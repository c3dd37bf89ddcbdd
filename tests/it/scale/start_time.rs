//! The time from a spawn to the start of the program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acp_gateway::process::{AgentUsers, ChildIsolation, ChildSpec, ControlGroups, Sandbox, Spawner};
use acp_gateway::shutdown::Shutdown;
use acp_gateway::types::{Isolation, IsolationPolicy, Limits};
use rustix::process::geteuid;

use super::ALONE;
use crate::support::figure;
use crate::support::gateway::{binary, is_other_binary};

const SPAWNS: usize = 40;

/// The limit of a release build.
const GROWTH: Duration = Duration::from_millis(10);
/// The limit of a debug build, which starts more slowly: each stage executes a large file.
const DEBUG_GROWTH: Duration = Duration::from_millis(20);

/// A process enters a control group after a grace period of the kernel, which is longer while the processors are busy.
const GROUP_GROWTH: Duration = Duration::from_millis(60);

/// Users that no other program of the machine has.
const USERS: &str = "1900000000-1900000015";

#[tokio::test]
async fn isolation_adds_at_most_ten_milliseconds_to_a_start() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let home = path("data/homes/agent");
    for folder in [&home, &path("data/workspaces")] {
        std::fs::create_dir_all(folder).expect("the folder is ours");
    }
    let policy = IsolationPolicy { required: true, allow_root: true, ..IsolationPolicy::default() };
    let sandbox = Sandbox::probe(&binary(), (vec![path("data")], None), path("data/tmp"), policy);
    let spawner = Spawner::new(binary(), path("run"), Shutdown::new(), Arc::new(Limits::default()));
    let groups = Arc::new(ControlGroups::open(&path("control-groups")));
    println!("control groups: {groups}");
    let isolating = |users| spawner.clone().with_sandbox(sandbox.clone().with_users(users));
    let grouping = isolating(None).with_control_groups(Arc::clone(&groups));
    let mut variants = vec![
        (Isolation::Off, isolating(None)),
        (Isolation::Private, isolating(None)),
        (Isolation::Private, grouping),
    ];
    if geteuid().is_root() {
        let range = USERS.parse().expect("a range");
        let users = AgentUsers::open(range, &path("data"), path("data/homes"), path("data/workspaces"));
        variants.push((Isolation::Private, isolating(Some(users.expect("this process is root")))));
    }
    let mut times = vec![Vec::new(); variants.len()];
    for _ in 0..SPAWNS {
        for ((level, spawner), times) in variants.iter().zip(&mut times) {
            let spec = ChildSpec {
                // It ends with its stdin.
                program: "/bin/cat".into(),
                args: Vec::new(),
                env: Vec::new(),
                cwd: home.clone(),
                secrets: Vec::new(),
                isolation: ChildIsolation { level: *level, ..ChildIsolation::default() },
            };
            let began = Instant::now();
            let child = spawner.spawn(spec).await.expect("it starts");
            times.push(began.elapsed());
            child.stop().await;
        }
    }
    groups.close();
    for times in &mut times {
        times.sort();
    }
    let medians: Vec<Duration> = times.iter().map(|times| times[times.len() / 2]).collect();
    figure(&format!(
        "median start: {medians:?} without isolation, with it, in control groups, as another user"
    ));
    let (without, with) = (medians[0], medians[1]);
    let most = if cfg!(debug_assertions) && !is_other_binary() { DEBUG_GROWTH } else { GROWTH };
    assert!(with < without + most, "{with:?} instead of {without:?}");
    assert!(medians[2] < with + GROUP_GROWTH, "{:?} instead of {with:?}", medians[2]);
    // As another user, a further process writes the id map.
    assert!(medians[3..].iter().all(|user| *user < without + most * 2), "{medians:?}");
}
