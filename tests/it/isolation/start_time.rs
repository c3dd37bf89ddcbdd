//! The time from a spawn to the start of the program.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acp_gateway::process::{AgentUsers, ChildIsolation, ChildSpec, Sandbox, Spawner};
use acp_gateway::shutdown::Shutdown;
use acp_gateway::types::{Isolation, IsolationPolicy, Limits};

use super::ground::User;

const SPAWNS: usize = 40;
const BINARY: &str = env!("CARGO_BIN_EXE_acp-gateway");

/// The limit of a release build. A debug build starts more slowly: each stage executes a large file.
const GROWTH: Duration = Duration::from_millis(if cfg!(debug_assertions) { 20 } else { 10 });

#[tokio::test]
async fn isolation_adds_at_most_ten_milliseconds_to_a_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let home = path("data/homes/agent");
    for folder in [&home, &path("data/workspaces")] {
        std::fs::create_dir_all(folder).expect("the folder is ours");
    }
    let policy = IsolationPolicy { required: true, allow_root: true, ..IsolationPolicy::default() };
    let sandbox = Sandbox::probe(BINARY.as_ref(), vec![path("data")], path("data/tmp"), policy);
    let spawner =
        Spawner::new(PathBuf::from(BINARY), path("run"), Shutdown::new(), Arc::new(Limits::default()));
    let spawner_of = |users| spawner.clone().with_sandbox(sandbox.clone().with_users(users));
    let mut columns = vec![(Isolation::Off, spawner_of(None)), (Isolation::Private, spawner_of(None))];
    if let Some(range) = User::all().into_iter().find_map(User::range) {
        let range = range.parse().expect("a range");
        let users = AgentUsers::open(range, &path("data"), path("data/homes"), path("data/workspaces"));
        columns.push((Isolation::Private, spawner_of(Some(users.expect("this process is root")))));
    }
    let mut times = vec![Vec::new(); columns.len()];
    for _ in 0..SPAWNS {
        for ((level, spawner), times) in columns.iter().zip(&mut times) {
            let level = *level;
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
    for times in &mut times {
        times.sort();
    }
    let medians: Vec<Duration> = times.iter().map(|times| times[times.len() / 2]).collect();
    println!("median start: {medians:?} without isolation, with isolation, as another user");
    let (without, isolated) = medians.split_first().expect("three columns");
    // As another user, a further process writes the id map.
    for (with, growth) in isolated.iter().zip([GROWTH, GROWTH * 2]) {
        assert!(*with < *without + growth, "{with:?} instead of {without:?}");
    }
}
