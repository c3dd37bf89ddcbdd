//! The time from a spawn to the start of the program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use acp_gateway::process::{ChildIsolation, ChildSpec, ControlGroups, Sandbox, Spawner};
use acp_gateway::shutdown::Shutdown;
use acp_gateway::types::{Isolation, IsolationPolicy, Limits};

use super::ALONE;
use crate::support::figure;
use crate::support::gateway::{binary, is_other_binary};

const SPAWNS: usize = 40;

/// The limit of a release build.
const GROWTH: Duration = Duration::from_millis(10);
/// The limit of a debug build, which starts more slowly: each stage executes a large file.
const DEBUG_GROWTH: Duration = Duration::from_millis(20);

#[tokio::test]
async fn isolation_adds_at_most_ten_milliseconds_to_a_start() {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let home = path("data/homes/agent");
    std::fs::create_dir_all(&home).expect("the folder is ours");
    let policy = IsolationPolicy { required: true, allow_root: true };
    let sandbox = Sandbox::probe(&binary(), (vec![path("data")], None), path("data/tmp"), policy);
    let spawner = Spawner::new(binary(), path("run"), Shutdown::new(), Arc::new(Limits::default()));
    let spawner = spawner.with_sandbox(sandbox);
    let groups = Arc::new(ControlGroups::open(&path("control-groups")));
    println!("control groups: {groups}");
    let isolating = spawner.clone().with_control_groups(Arc::clone(&groups));
    let mut times = [Vec::new(), Vec::new()];
    let variants = [(Isolation::Off, &spawner), (Isolation::Private, &isolating)];
    for _ in 0..SPAWNS {
        for ((level, spawner), times) in variants.into_iter().zip(&mut times) {
            let spec = ChildSpec {
                // It ends with its stdin.
                program: "/bin/cat".into(),
                args: Vec::new(),
                env: Vec::new(),
                cwd: home.clone(),
                secrets: Vec::new(),
                isolation: ChildIsolation { level, ..ChildIsolation::default() },
            };
            let began = Instant::now();
            let child = spawner.spawn(spec).await.expect("it starts");
            times.push(began.elapsed());
            child.stop().await;
        }
    }
    groups.close();
    let [without, with] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    figure(&format!("median start: {without:?} without isolation, {with:?} with isolation"));
    let most = if cfg!(debug_assertions) && !is_other_binary() { DEBUG_GROWTH } else { GROWTH };
    assert!(with < without + most, "{with:?} instead of {without:?}");
}
