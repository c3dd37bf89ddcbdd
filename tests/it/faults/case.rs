//! A gateway with a fault, and the conditions after the fault.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::history::{Alive, MemoryUse, OUTLIVE, PromptAnswer, RequestAnswer};
use crate::support::{Answer, Follower, Gateway, History, Setup, eventually, procfs};

/// The flags of the agents in every case.
const JOURNAL: [&str; 2] = ["--journal", "journal"];
/// How much a gateway may grow by one fault, in KiB.
const BUDGET: u64 = 48 << 10;

/// A gateway whose sessions are followed from their first event. The clients record all responses.
pub(super) struct Case {
    gateway: Gateway,
    /// The sessions, in the order in which they were made.
    sessions: Vec<String>,
    followers: Vec<Follower>,
    /// The responses to clients.
    responses: Mutex<History>,
    /// The memory at the start in KiB, and the maximum growth.
    idle: u64,
    budget: u64,
}

impl Case {
    /// Limits that allow an immediate repetition of a fault and any number of requests.
    pub(super) const LIMITS: &str = "testing.min_backoff = \"10ms\"\ntesting.max_breaker_crashes = 1000\n\
                                     limits.per_key.max_requests_per_minute = 1000000\nlimits.per_key.max_prompts_per_minute = 1000000\n\
                                     testing.stop_stdin_timeout = \"200ms\"\ntesting.session_close_timeout = \"200ms\"\ntesting.stop_term_timeout = \"200ms\"\n";

    /// The scripted agent with these arguments, lines of its entry, and further settings.
    pub(super) fn with(args: &[&str], entry: &str, limits: &str) -> Self {
        let args = [args, &JOURNAL].concat();
        let gateway = Setup::fake_with(&args, entry)
            .settings(&format!("{}{limits}", Self::LIMITS))
            .start();
        let idle = procfs::resident(gateway.pid());
        let sessions = Vec::new();
        let followers = Vec::new();
        let responses = Mutex::default();
        Self {
            gateway,
            sessions,
            followers,
            responses,
            idle,
            budget: BUDGET,
        }
    }

    /// The same with one session.
    pub(super) async fn fake_with(args: &[&str], entry: &str, limits: &str) -> (Self, String) {
        let mut case = Self::with(args, entry, limits);
        let session = case.session().await;
        (case, session)
    }

    pub(super) async fn fake(args: &[&str]) -> (Self, String) {
        Self::fake_with(args, "", "").await
    }

    /// One more session.
    pub(super) async fn session(&mut self) -> String {
        let session = self.gateway.session("fake").await;
        self.follow(&session);
        session
    }

    /// A session that another client has created.
    pub(super) fn follow(&mut self, session: &str) {
        self.followers.push(Follower::start(&self.gateway, session));
        self.sessions.push(session.to_owned());
    }

    /// Starts a turn. Returns the prompt.
    pub(super) async fn prompt(&self, session: &str, text: &str) -> Value {
        let path = format!("/v1/sessions/{session}/prompts");
        let answer = self.posted(&path, &[], &json!({ "prompt": text })).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.body
    }

    /// Runs a turn. Returns the prompt at its end.
    pub(super) async fn turn(&self, session: &str, text: &str) -> Value {
        let path = format!("/v1/sessions/{session}/prompts");
        let answer = self
            .posted(&path, &[("Prefer", "wait=60")], &json!({ "prompt": text }))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}\n{}", self.log());
        answer.body
    }

    pub(super) async fn posted(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let answer = self.gateway.posted(path, headers, body).await;
        let key = headers
            .iter()
            .find(|(name, _)| *name == "Idempotency-Key")
            .map(|(_, key)| *key);
        self.answered(path, key, body, &answer);
        answer
    }

    /// Records the response to a prompt, or to a client's answer.
    pub(super) fn answered(&self, path: &str, key: Option<&str>, body: &Value, answer: &Answer) {
        let words: Vec<&str> = path
            .trim_start_matches("/v1/sessions/")
            .split('/')
            .collect();
        let status = answer.status.as_u16();
        let mut responses = self.responses();
        match words[..] {
            [session, "prompts"] => responses.prompts.push(PromptAnswer {
                session: session.to_owned(),
                key: key.map(str::to_owned),
                status,
                prompt: answer.body["promptId"].as_str().map(str::to_owned),
            }),
            [session, "permissions" | "requests", request] => {
                let option = body["optionId"]
                    .as_str()
                    .or(body["result"]["outcome"]["optionId"].as_str());
                responses.answers.push(RequestAnswer {
                    session: session.to_owned(),
                    request: request.to_owned(),
                    status,
                    option: option.map(str::to_owned),
                });
            }
            _ => {}
        }
    }

    fn responses(&self) -> MutexGuard<'_, History> {
        self.responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The maximum growth of the gateway's memory, in KiB.
    pub(super) const fn budget(&mut self, kib: u64) {
        self.budget = kib;
    }

    /// The maximum growth of the gateway's memory since its start, in KiB.
    pub(super) fn grown(&self) -> u64 {
        procfs::highest(self.gateway.pid()).saturating_sub(self.idle)
    }

    fn journals(&self) -> PathBuf {
        self.gateway.path("data/homes/default/fake/journal")
    }

    /// The number of lines with these words that agents received.
    pub(super) fn received(&self, words: &str) -> usize {
        let Ok(files) = std::fs::read_dir(self.journals()) else {
            return 0;
        };
        let lines = |text: Vec<u8>| {
            let text = String::from_utf8_lossy(&text).into_owned();
            text.lines()
                .filter(|line| line.starts_with("< ") && line.contains(words))
                .count()
        };
        files
            .map(|file| {
                lines(std::fs::read(file.expect("a file").path()).expect("it is the test's"))
            })
            .sum()
    }

    /// Waits until agents received this number of such lines.
    pub(super) async fn until_received(&self, words: &str, times: usize) {
        eventually(
            &format!("{words} reaches the agent"),
            Duration::from_secs(30),
            async || (self.received(words) == times).then_some(()),
        )
        .await;
    }

    /// The end of the case: all that was promised holds. Gives the log of its only session.
    pub(super) async fn holds(self) -> Vec<Value> {
        let mut logs = self.hold().await;
        assert_eq!(logs.len(), 1, "a case of one session");
        logs.remove(0)
    }

    /// The same with the logs of all sessions, in the order in which they were made.
    pub(super) async fn hold(mut self) -> Vec<Vec<Value>> {
        let mut logs = Vec::new();
        for session in &self.sessions {
            logs.push(self.gateway.lawful(session).await);
        }
        let followers = std::mem::take(&mut self.followers);
        let mut history = History::of(&self.gateway, followers)
            .await
            .with_agents(&self.journals());
        let responses = std::mem::take(&mut *self.responses());
        (history.prompts, history.answers) = (responses.prompts, responses.answers);
        history.memory.push(MemoryUse {
            by: "the fault".to_owned(),
            kib: self.grown(),
        });
        history.memory_budget = Some(self.budget);
        for session in &self.sessions {
            let deleted = self
                .call(Method::DELETE, &format!("/v1/sessions/{session}"))
                .await;
            assert_eq!(deleted.status, 204, "{deleted:?}");
        }
        history.alive.extend(self.outlive("its session").await);
        assert_eq!(self.gateway.stop(), Some(0), "{}", self.gateway.log());
        history.alive.extend(self.outlive("the gateway").await);
        history
            .with_left(&self.gateway, "the gateway")
            .await
            .assert_holds();
        logs
    }

    /// The processes of agents that are still alive `OUTLIVE` after the end of their owner.
    async fn outlive(&self, owner: &str) -> Vec<Alive> {
        let ended = Instant::now();
        loop {
            let after = ended.elapsed();
            let left = self.agents_alive();
            if left.is_empty() || after >= OUTLIVE {
                let what = "of an agent".to_owned();
                let alive = |pid| Alive {
                    pid,
                    what: what.clone(),
                    owner: owner.to_owned(),
                    after,
                };
                return left.into_iter().map(alive).collect();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Deref for Case {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}
