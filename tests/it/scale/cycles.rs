//! The gateway is killed repeatedly while twenty sessions work: nothing is lost, runs twice or stays behind.

use std::time::{Duration, Instant};

use super::ALONE;
use crate::support::{Random, figure};

mod figures;
mod load;
mod world;

pub(crate) use figures::Figures;
use world::SESSIONS;
pub(crate) use world::{End, World};

/// The memory limit of a gateway during a life, in KiB.
const BUDGET: u64 = 128 << 10;
/// How long a life may last, however few events there were.
const LIFE: Duration = Duration::from_secs(5);
/// Agents crash, and processes start often.
const FAULTS: &str = "testing.max_queue_places = 200\ntesting.max_breaker_crashes = 100000\ntesting.min_backoff = \"10ms\"\ntesting.max_backoff = \"20ms\"\n";
/// Cycles until all that happened is checked, and new sessions begin.
const WINDOW: usize = 25;

/// How a run is to go.
struct Plan {
    /// Whether there is another cycle, after so many and so long.
    goes_on: Box<dyn Fn(usize, Duration) -> bool>,
    /// How many events a life lasts at most.
    life: u64,
    /// Gateways that drain and agents that are killed are among the faults.
    mixed: bool,
}

async fn run(plan: Plan) -> Figures {
    let _alone = ALONE.lock().await;
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let mut world = World::new(|setup| setup.settings(FAULTS));
    let mut figures = Figures::new();
    let began = Instant::now();
    let mut failed = Vec::new();
    while (plan.goes_on)(figures.cycles, began.elapsed()) && failed.is_empty() {
        let window = world.open(&mut random, plan.mixed).await;
        for _ in 0..WINDOW {
            if !(plan.goes_on)(figures.cycles, began.elapsed()) {
                break;
            }
            window.shows(1 + random.below(plan.life), LIFE).await;
            let how = match random.below(20) {
                0 | 1 => End::KillTwice,
                2..=5 if plan.mixed => End::Term,
                6 if plan.mixed => {
                    world.kill_agent(&mut random);
                    continue;
                }
                _ => End::Kill,
            };
            world.cycle(how, &mut random, &mut figures);
        }
        let mut history = world.close(window, &mut figures).await;
        history.memory_budget = Some(BUDGET);
        let found = history.check();
        figures.broken(&found);
        failed.extend(found);
        figure(&format!(
            "{} cycles, {} turns, {} events",
            figures.cycles, figures.turns, figures.events
        ));
    }
    let found = world.end().await.check();
    figures.broken(&found);
    failed.extend(found);
    figure(&figures.summary());
    let shown: Vec<String> = failed.iter().take(40).map(ToString::to_string).collect();
    assert!(
        failed.is_empty(),
        "{} violations:\n{}",
        failed.len(),
        shown.join("\n")
    );
    figures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_kills_under_load_lose_and_duplicate_nothing() {
    const CYCLES: usize = 50;
    let goes_on = Box::new(|cycles, _| cycles < CYCLES);
    let figures = run(Plan {
        goes_on,
        life: 2000,
        mixed: false,
    })
    .await;
    // The kills were worth their name.
    assert_eq!(figures.cycles, CYCLES);
    assert!(
        figures.interrupted >= CYCLES * 4,
        "{} turns were hit",
        figures.interrupted
    );
    assert!(
        figures.completed >= CYCLES * 4,
        "{} turns came to their end",
        figures.completed
    );
    assert!(
        figures.prompts >= CYCLES * 8,
        "agents got {} prompts",
        figures.prompts
    );
    assert!(
        figures.answers >= CYCLES / 2,
        "agents got {} answers",
        figures.answers
    );
    assert_eq!(
        figures.left_at_start, 0,
        "no process of an earlier life is alive when the next one starts"
    );
    assert!(
        figures.reconnects >= CYCLES * SESSIONS / 2,
        "{} reconnects",
        figures.reconnects
    );
}

/// Runs until the limit in `SOAK_MINUTES` or `SOAK_CYCLES`. `scripts/soak` runs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "its duration is configurable; scripts/soak runs it"]
#[expect(
    clippy::disallowed_methods,
    reason = "the test reads its own length, and no configuration"
)]
async fn soak() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u32>().expect("a number"))
    };
    let minutes = number("SOAK_MINUTES").map(|minutes| Duration::from_mins(minutes.into()));
    let cycles = number("SOAK_CYCLES").map(|cycles| usize::try_from(cycles).expect("it fits"));
    assert!(
        minutes.is_some() || cycles.is_some(),
        "SOAK_MINUTES or SOAK_CYCLES says how long it takes"
    );
    let goes_on = Box::new(move |done, took| {
        minutes.is_none_or(|minutes| took < minutes) && cycles.is_none_or(|cycles| done < cycles)
    });
    run(Plan {
        goes_on,
        life: 8000,
        mixed: true,
    })
    .await;
}
