//! The time from a spawn to the start of the program.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acp_gateway::process::{ChildIsolation, ChildSpec, ControlGroups, Sandbox, Spawner};
use acp_gateway::shutdown::Shutdown;
use acp_gateway::types::{Isolation, IsolationPolicy, Limits};

const SPAWNS: usize = 40;
const BINARY: &str = env!("CARGO_BIN_EXE_acp-gateway");

/// The limit of a release build. A debug build starts more slowly: each stage executes a large file.
const GROWTH: Duration = Duration::from_millis(if cfg!(debug_assertions) { 20 } else { 10 });

/// A process enters a control group after a grace period of the kernel, which is longer while the processors are busy.
const GROUP_GROWTH: Duration = Duration::from_millis(60);

#[tokio::test]
async fn isolation_adds_at_most_ten_milliseconds_to_a_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let home = path("data/homes/agent");
    std::fs::create_dir_all(&home).expect("the folder is ours");
    let policy = IsolationPolicy { required: true, allow_root: true };
    let sandbox = Sandbox::probe(BINARY.as_ref(), vec![path("data")], path("data/tmp"), policy);
    let spawner =
        Spawner::new(PathBuf::from(BINARY), path("run"), Shutdown::new(), Arc::new(Limits::default()));
    let spawner = spawner.with_sandbox(sandbox);
    let groups = Arc::new(ControlGroups::open(&path("control-groups")));
    println!("control groups: {groups}");
    let grouping = spawner.clone().with_control_groups(Arc::clone(&groups));
    let variants =
        [(Isolation::Off, &spawner), (Isolation::Private, &spawner), (Isolation::Private, &grouping)];
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..SPAWNS {
        for ((level, spawner), times) in variants.into_iter().zip(&mut times) {
            let spec = ChildSpec {
                // It ends with its stdin.
                program: PathBuf::from("/bin/cat"),
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
    let [without, with, grouped] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    println!("median start: {without:?} without isolation, {with:?} with it, {grouped:?} in control groups");
    assert!(with < without + GROWTH, "{with:?} instead of {without:?}");
    assert!(grouped < with + GROUP_GROWTH, "{grouped:?} instead of {with:?}");
}
