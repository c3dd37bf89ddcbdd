//! The driver. Each round runs every target in every test, so that changes of the machine affect all targets.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::document::{self, Context};
use crate::goals::{GOALS, Verdict, digits};
use crate::measure::{Sample, Scale, measure};
use crate::options::{Options, USAGE};
use crate::results::{Line, Results};
use crate::server::Scratch;
use crate::targets::{self, GATEWAY, Gateway, Places, Target};
use crate::{Outcome, compare, gate};

pub fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let mut args = args.peekable();
    if args.peek().is_some_and(|arg| arg == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Options::parse(args).and_then(|options| bench(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all results are acceptable.
fn bench(options: &Options) -> Outcome<bool> {
    let root = options.root.canonicalize()?;
    let below = root.join("target/bench");
    std::fs::create_dir_all(&below)?;
    let scratch = Scratch::new(&below, "scratch")?;
    let places = Places {
        gateway: root.join(&options.gateway),
        // The build places all programs of the harness in one directory.
        programs: std::env::current_exe()?
            .parent()
            .ok_or("a program without a folder")?
            .to_owned(),
        peers: below.join("peers"),
        scratch: scratch.path().to_owned(),
        isolation: options.isolation.clone(),
    };
    let targets = targets::all(&places);
    let previous = options
        .previous
        .as_ref()
        .map(|program| Gateway::previous(&root.join(program), &places));
    let results = if let Some(file) = &options.results {
        Results::read(file)?
    } else {
        raise_files()?;
        let results = Results::create(&below.join("results.jsonl"))?;
        rounds(
            options,
            &chosen(options, &targets, previous.as_ref())?,
            &places,
            results,
        )?
    };
    report(
        options,
        &root,
        &Context {
            results: &results,
            targets: &targets,
            machine: machine(&results),
        },
    )
}

fn machine(results: &Results) -> String {
    document::describe_machine(
        results
            .lines
            .iter()
            .map(|line| line.round + 1)
            .max()
            .unwrap_or_default(),
    )
}

/// A thousand readers and ten thousand idle streams need as many descriptors.
fn raise_files() -> Outcome {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )?)
}

fn rounds(
    options: &Options,
    chosen: &[&dyn Target],
    places: &Places,
    mut results: Results,
) -> Outcome<Results> {
    let scale = if options.gate {
        gate::scale()
    } else {
        Scale {
            divisor: if options.quick { 5 } else { 1 },
            fan: 1000,
            idle: if options.quick { 2000 } else { 10_000 },
            sessions: options.sessions.clone(),
            events: options.events.clone(),
        }
    };
    let tests = if options.gate {
        gate::TESTS.to_vec()
    } else {
        options.tests.clone()
    };
    for round in 0..options.rounds() {
        for &test in &tests {
            for index in 0..chosen.len() {
                // The order of targets changes from round to round.
                let target = chosen[(index + round) % chosen.len()];
                let folder = places.scratch.join(target.name());
                // A failed measurement counts as an incomplete reader. Its directory must not be used again.
                let sample =
                    measure(test, target, &scale, round, &folder).unwrap_or_else(|error| {
                        drop(std::fs::remove_dir_all(&folder));
                        Some(Sample {
                            readers: 1,
                            complaint: Some(error.to_string()),
                            ..Sample::default()
                        })
                    });
                if let Some(sample) = sample {
                    let line = Line {
                        round,
                        test,
                        target: target.name().to_owned(),
                        sample,
                    };
                    say(&line);
                    results.push(line)?;
                }
            }
        }
    }
    Ok(results)
}

/// The selected targets that are installed. The previous build is next to the current one, so that both are measured
/// at nearly the same time.
fn chosen<'a>(
    options: &Options,
    targets: &'a [Box<dyn Target>],
    previous: Option<&'a Gateway>,
) -> Outcome<Vec<&'a dyn Target>> {
    let names: Vec<&str> = if options.gate {
        gate::TARGETS.to_vec()
    } else {
        options.targets.iter().map(String::as_str).collect()
    };
    if let Some(unknown) = names
        .iter()
        .find(|name| !targets.iter().any(|target| target.name() == **name))
    {
        return Err(format!("there is no target {unknown}").into());
    }
    let mut chosen: Vec<&dyn Target> = Vec::new();
    for target in targets
        .iter()
        .filter(|target| names.is_empty() || names.contains(&target.name()))
    {
        match target.missing() {
            None => chosen.push(target.as_ref()),
            Some(why) if target.gateway().is_some() => {
                return Err(format!("the gateway is {why}").into());
            }
            Some(why) => eprintln!("{}: {why}", target.title()),
        }
    }
    if let Some(previous) = previous {
        if let Some(why) = previous.missing() {
            return Err(format!(
                "{} is {why}: {}",
                previous.title(),
                previous.program().display()
            )
            .into());
        }
        let current = chosen.iter().position(|target| target.name() == GATEWAY);
        let current = current.ok_or(
            "nothing to compare with the previous build: acp-gateway is not among the targets",
        )?;
        chosen.insert(current + 1, previous);
    }
    Ok(chosen)
}

fn say(line: &Line) {
    let Line {
        round,
        test,
        target,
        sample,
    } = line;
    let figures: Vec<String> = sample
        .figures
        .iter()
        .map(|(name, figure)| format!("{name} {}", digits(*figure)))
        .collect();
    let complaint = sample
        .complaint
        .as_ref()
        .map_or(String::new(), |complaint| format!(" - {complaint}"));
    let complete = sample.complete;
    let readers = sample.readers;
    println!(
        "{round} {:<11} {target:<15} {complete}/{readers} {}{complaint}",
        test.name(),
        figures.join(", ")
    );
}

fn report(options: &Options, root: &Path, context: &Context<'_>) -> Outcome<bool> {
    if options.gate {
        let wrong = gate::judge(context.results);
        for wrong in &wrong {
            eprintln!("{wrong}");
        }
        print_comparison(context.results);
        return Ok(wrong.is_empty());
    }
    println!(
        "\n{}\n{}",
        document::goals(context.results),
        document::targets(context)
    );
    for part in [
        document::gateway(context.results),
        document::growth(context.results),
    ]
    .into_iter()
    .flatten()
    {
        println!("{part}");
    }
    let regressed = print_comparison(context.results);
    if options.write || options.results.is_some() || options.whole() {
        let path: PathBuf = root.join("docs/internals/performance.md");
        document::write(&path, context)?;
        println!("docs/internals/performance.md is written.");
    }
    let (readers, complete) = context.results.completeness(None, GATEWAY);
    let missed = GOALS
        .iter()
        .any(|goal| goal.verdict(context.results) == Verdict::Missed);
    Ok(readers == complete && !(options.must && (missed || regressed)))
}

/// Prints the ratios to the previous build, if it was measured. Returns whether any figure is worse.
fn print_comparison(results: &Results) -> bool {
    let comparisons = compare::compare(results);
    if !comparisons.is_empty() {
        println!("{}", compare::table(&comparisons));
    }
    comparisons
        .iter()
        .any(|comparison| comparison.verdict() == compare::Verdict::Worse)
}
