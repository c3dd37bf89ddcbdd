//! The time from a spawn to the start of the program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::shutdown::Shutdown;
use base::types::Isolation;
use children::{
    AgentUsers, ChildIsolation, ChildSpec, ControlGroups, HostIsolation, IsolationPolicy, Limits,
    Sandbox, Spawner,
};
use rustix::process::geteuid;

use super::ALONE;
use crate::support::figure;
use crate::support::gateway::{binary, is_other_binary};

const SPAWNS: usize = 40;

/// The limits of a build, for the growth of the median.
struct Most {
    /// Isolation without control groups and own users.
    isolation: Duration,
    /// Another user, in addition: a further process writes the id map.
    user: Duration,
    /// Control groups, in addition. The write to `cgroup.procs` needs 5 to 15 ms: it waits for a grace period of the
    /// kernel, which is longer while the processors are busy. The other steps need less than 1 ms.
    group: Duration,
}

/// The limits for `scripts/test`, which measures a release build.
const RELEASE: Most = Most {
    isolation: Duration::from_millis(10),
    user: Duration::from_millis(10),
    group: Duration::from_millis(30),
};

/// A debug build starts more slowly: each stage executes a large file.
const DEBUG: Most = Most {
    isolation: Duration::from_millis(20),
    user: Duration::from_millis(20),
    group: Duration::from_millis(60),
};

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
    let policy = IsolationPolicy {
        required: true,
        allow_root: true,
        ..IsolationPolicy::default()
    };
    let sandbox = Sandbox::probe(
        &binary(),
        vec![path("data")],
        None,
        path("data/tmp"),
        policy,
    );
    let spawner = Spawner::new(
        binary(),
        path("run"),
        Shutdown::new(),
        Arc::new(Limits::default()),
    );
    let groups = ControlGroups::open(&path("control-groups"));
    println!("control groups: {groups}");
    let grouping = HostIsolation::new(sandbox.clone(), groups);
    let isolating = |users| {
        let sandbox = sandbox.clone().with_users(users);
        spawner
            .clone()
            .with_isolation(HostIsolation::new(sandbox, ControlGroups::default()))
    };
    let mut variants = vec![
        (Isolation::Off, isolating(None)),
        (Isolation::Private, isolating(None)),
        (
            Isolation::Private,
            spawner.clone().with_isolation(grouping.clone()),
        ),
    ];
    if geteuid().is_root() {
        let range = USERS.parse().expect("a range");
        let users = AgentUsers::open(
            range,
            &path("data"),
            path("data/homes"),
            path("data/workspaces"),
        );
        variants.push((
            Isolation::Private,
            isolating(Some(users.expect("this process is root"))),
        ));
    }
    let mut times = vec![Vec::new(); variants.len()];
    for _ in 0..SPAWNS {
        for ((level, spawner), times) in variants.iter().zip(&mut times) {
            let spec = ChildSpec {
                // It ends with its stdin.
                program: "/bin/cat".into(),
                args: Vec::new(),
                env: Vec::new(),
                home: home.clone(),
                cwd: None,
                secrets: Vec::new(),
                isolation: ChildIsolation {
                    level: *level,
                    ..ChildIsolation::default()
                },
            };
            let began = Instant::now();
            let child = spawner.spawn(spec).await.expect("it starts");
            times.push(began.elapsed());
            child.stop().await;
        }
    }
    grouping.groups().close();
    for times in &mut times {
        times.sort();
    }
    let medians: Vec<Duration> = times.iter().map(|times| times[times.len() / 2]).collect();
    figure(&format!(
        "median start: {medians:?} without isolation, with it, in control groups, as another user"
    ));
    let without = medians[0];
    let with = medians[1];
    let most = if cfg!(debug_assertions) && !is_other_binary() {
        DEBUG
    } else {
        RELEASE
    };
    assert!(
        with < without + most.isolation,
        "{with:?} instead of {without:?}"
    );
    assert!(
        medians[2] < with + most.group,
        "{:?} instead of {with:?}",
        medians[2]
    );
    assert!(
        medians[3..]
            .iter()
            .all(|user| *user < without + most.isolation + most.user),
        "{medians:?}"
    );
}
