//! The command line of the driver.

use std::path::PathBuf;

use crate::Outcome;
use crate::measure::Test;
use crate::targets::DEFAULT_ISOLATION;

pub(crate) const USAGE: &str = "scripts/bench [OPTION...]
  --quick            a fifth of everything, three rounds; writes no document
  --rounds N         so many rounds (5)
  --tests A,B        only these: single, fan, paced, latency, prompt, many, idle, cold, replay, stalled, strict,
                     growth
  --targets A,B      only these: raw-epoll, acp-gateway, acp-http, durable-streams, nchan, sandbox-agent, supergateway
  --sessions A,B     growth: look at so many sessions (1000,10000)
  --events A,B       growth: and at a session with so many events (10000,100000,1000000)
  --gateway PATH     another build of the gateway
  --previous BUILD   also measure an earlier build, a commit or the path of a program, and print the ratios
  --isolation LEVEL  the level of isolation of the gateway's agents (private); off compares with a build without isolation
  --write            write docs/internals/performance.md also when targets or tests were left out
  --results FILE     make the document from earlier results and measure nothing
  --must             fail when the gateway misses a goal, or costs 5 % more than the previous build in any figure
  --gate             for the CI: only what noise cannot move, in a minute; fails beyond its bounds
  --peers            install what the gateway is compared with, as far as that is possible";

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) rounds: Option<usize>,
    pub(crate) tests: Vec<Test>,
    /// All targets if empty.
    pub(crate) targets: Vec<String>,
    pub(crate) sessions: Vec<usize>,
    pub(crate) events: Vec<u64>,
    pub(crate) write: bool,
    pub(crate) results: Option<PathBuf>,
    pub(crate) must: bool,
    pub(crate) gate: bool,
    pub(crate) root: PathBuf,
    pub(crate) gateway: PathBuf,
    /// The program of an earlier build.
    pub(crate) previous: Option<PathBuf>,
    /// The level of isolation of the agents of every build that isolates.
    pub(crate) isolation: String,
}

impl Options {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut options = Self {
            quick: false,
            rounds: None,
            tests: Vec::new(),
            targets: Vec::new(),
            sessions: vec![1000, 10_000],
            events: vec![10_000, 100_000, 1_000_000],
            write: false,
            results: None,
            must: false,
            gate: false,
            root: PathBuf::from("."),
            gateway: PathBuf::from("target/dist/acp-gateway"),
            previous: None,
            isolation: DEFAULT_ISOLATION.to_owned(),
        };
        while let Some(arg) = args.next() {
            let mut value = || {
                args.next()
                    .ok_or_else(|| format!("{arg} needs a value\n{USAGE}"))
            };
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--write" => options.write = true,
                "--must" => options.must = true,
                "--gate" => options.gate = true,
                "--rounds" => options.rounds = Some(value()?.parse()?),
                "--tests" => {
                    options.tests = value()?.split(',').map(test).collect::<Outcome<_>>()?;
                }
                "--targets" => options.targets = value()?.split(',').map(str::to_owned).collect(),
                "--sessions" => options.sessions = numbers(&value()?)?,
                "--events" => options.events = numbers(&value()?)?,
                "--results" => options.results = Some(value()?.into()),
                "--root" => options.root = value()?.into(),
                "--gateway" => options.gateway = value()?.into(),
                "--isolation" => options.isolation = value()?,
                "--previous" => options.previous = Some(value()?.into()),
                _ => return Err(format!("there is no {arg}\n{USAGE}").into()),
            }
        }
        // Growth is slow, so it runs only on request.
        if options.tests.is_empty() {
            options.tests = Test::ALL
                .into_iter()
                .filter(|&test| test != Test::Growth)
                .collect();
        } else {
            options.tests.sort_unstable();
        }
        Ok(options)
    }

    /// The number of rounds, with its default.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds
            .unwrap_or(if self.quick || self.gate { 3 } else { 5 })
    }

    /// Whether the document is written by default.
    pub(crate) fn whole(&self) -> bool {
        !self.quick
            && self.isolation == DEFAULT_ISOLATION
            && self.targets.is_empty()
            && self.tests.len() >= Test::ALL.len() - 1
    }
}

fn test(name: &str) -> Outcome<Test> {
    let found = Test::ALL.into_iter().find(|test| test.name() == name);
    found.ok_or_else(|| format!("there is no test {name}\n{USAGE}").into())
}

fn numbers<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    list: &str,
) -> Outcome<Vec<T>> {
    Ok(list.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parsed(args: &str) -> Outcome<Options> {
        Options::parse(args.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn default_measures_everything_except_growth() {
        let options = parsed("").unwrap();
        assert_eq!(
            (options.rounds(), options.tests.len(), options.whole()),
            (5, 12, true)
        );
        assert!(!options.tests.contains(&Test::Growth));
        let options = parsed("--quick --tests idle,single --rounds 7 --events 5,6").unwrap();
        assert_eq!((options.rounds(), options.whole()), (7, false));
        assert_eq!(options.tests, [Test::Single, Test::Idle]);
        assert_eq!(options.events, [5, 6]);
        assert_eq!(
            parsed("--previous a/b").unwrap().previous.as_deref(),
            Some(Path::new("a/b"))
        );
    }

    #[test]
    fn invalid_arguments_are_reported() {
        let isolated = parsed("--isolation off").unwrap();
        assert_eq!((&*isolated.isolation, isolated.whole()), ("off", false));
        for args in [
            "--tests nothing",
            "--rounds",
            "--rounds x",
            "--previous",
            "--fast",
        ] {
            assert!(parsed(args).is_err(), "{args}");
        }
    }
}
