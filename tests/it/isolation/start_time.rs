//! The time from a spawn to the start of the program.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acp_gateway::process::{ChildIsolation, ChildSpec, Sandbox, Spawner};
use acp_gateway::shutdown::Shutdown;
use acp_gateway::types::{Isolation, IsolationPolicy, Limits};

const SPAWNS: usize = 40;
const BINARY: &str = env!("CARGO_BIN_EXE_acp-gateway");

/// The limit of a release build. A debug build starts more slowly: each stage executes a large file.
const GROWTH: Duration = Duration::from_millis(if cfg!(debug_assertions) { 20 } else { 10 });

#[tokio::test]
async fn isolation_adds_at_most_ten_milliseconds_to_a_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let home = path("data/homes/agent");
    std::fs::create_dir_all(&home).expect("the folder is ours");
    let policy = IsolationPolicy { required: true, allow_root: true, ..IsolationPolicy::default() };
    let sandbox = Sandbox::probe(BINARY.as_ref(), vec![path("data")], path("data/tmp"), policy);
    let spawner =
        Spawner::new(PathBuf::from(BINARY), path("run"), Shutdown::new(), Arc::new(Limits::default()));
    let spawner = spawner.with_sandbox(sandbox);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..SPAWNS {
        for (level, times) in [Isolation::Off, Isolation::Private].into_iter().zip(&mut times) {
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
    let [without, with] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    println!("median start: {without:?} without isolation, {with:?} with isolation");
    assert!(with < without + GROWTH, "{with:?} instead of {without:?}");
}
