//! One client with one session: turns of every kind, independent of the state of the gateway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::Random;
use crate::support::history::{PromptAnswer, RequestAnswer};

/// The deadline for every action of the gateway.
const PATIENCE: Duration = Duration::from_mins(2);
/// The interval between two attempts without a response.
const AGAIN: Duration = Duration::from_millis(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A prompt whose turn ends without a cancel.
    Plain(&'static str),
    Permission,
    Terminal,
    /// Goes on until it is cancelled.
    Cancelled,
    /// A second prompt waits behind the first.
    Queued,
}

const KINDS: [Kind; 10] = [
    Kind::Plain("flood n=400"),
    Kind::Plain("flood n=60 batch=1"),
    Kind::Plain("slow chunks=20 ms=10"),
    Kind::Plain("slow chunks=8 ms=50"),
    Kind::Plain("fork; slow chunks=10 ms=10"),
    Kind::Plain("tool; usage; plan; title text=Again; stream n=20"),
    Kind::Permission,
    Kind::Terminal,
    Kind::Cancelled,
    Kind::Queued,
];
/// Ends its agent in the middle.
const CRASH: Kind = Kind::Plain("crash signal=KILL chunks=20");

/// The responses to clients.
#[derive(Debug, Default)]
pub(super) struct Responses {
    pub(super) prompts: Vec<PromptAnswer>,
    pub(super) answers: Vec<RequestAnswer>,
}

#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) http: reqwest::Client,
    pub(super) url: String,
    pub(super) key: String,
    pub(super) session: String,
    pub(super) responses: Arc<Mutex<Responses>>,
    pub(super) stop: Arc<AtomicBool>,
    /// Agents end in turns, too.
    pub(super) crashes: bool,
}

impl Person {
    /// Runs turns until the stop. No turn stays open.
    pub(super) async fn work(self, mut random: Random) {
        let mut turn = 0;
        while !self.stop.load(Ordering::Relaxed) {
            turn += 1;
            let kind = if self.crashes && random.below(20) == 0 {
                CRASH
            } else {
                *random.one_of(&KINDS)
            };
            self.turn(&format!("{}.{turn}", self.session), kind, &mut random)
                .await;
        }
    }

    async fn turn(&self, mark: &str, kind: Kind, random: &mut Random) {
        let text = match kind {
            Kind::Plain(commands) => {
                let (first, rest) = commands.split_once(';').unwrap_or((commands, ""));
                format!("{first} mark={mark};{rest}")
                    .trim_end_matches(';')
                    .to_owned()
            }
            Kind::Permission => format!("permission mark={mark}; slow chunks=5 ms=10"),
            Kind::Terminal => {
                let script = format!("echo {mark}; sleep 0.1; echo done");
                let create = json!({ "create": { "command": "sh", "args": ["-c", script] } });
                format!("terminal {}", json!([create, "wait", "output", "release"]))
            }
            Kind::Cancelled => format!("stream n=5 mark={mark}; hang"),
            Kind::Queued => format!("slow chunks=10 ms=10 mark={mark}"),
        };
        let body = json!({ "prompt": text });
        // Two tabs send the same prompt at the same time.
        let twice = random.below(4) == 0;
        let first = self.submit(mark, &body);
        let turn = if twice {
            tokio::join!(first, self.submit(mark, &body)).0
        } else {
            first.await
        };
        match kind {
            Kind::Permission => self.answer(&turn, random).await,
            Kind::Cancelled => tokio::time::sleep(Duration::from_millis(random.below(150))).await,
            Kind::Queued => {
                let mut behind = Vec::new();
                for index in 0..3 {
                    let key = format!("{mark}.behind{index}");
                    let body = json!({ "prompt": format!("stream n=5 mark={key}"), "queue": true });
                    behind.push(self.submit(&key, &body).await);
                }
                for turn in behind {
                    self.over(&turn, false).await;
                }
            }
            Kind::Plain(_) | Kind::Terminal => {}
        }
        self.over(&turn, kind == Kind::Cancelled).await;
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/v1/sessions/{}{path}", self.url, self.session);
        self.http.request(method, url).bearer_auth(&self.key)
    }

    /// Sends a prompt until it is admitted and returns its turn. Without a response, the client repeats it with the
    /// same key.
    async fn submit(&self, key: &str, body: &Value) -> String {
        let began = Instant::now();
        loop {
            let request = self
                .request(Method::POST, "/prompts")
                .header("Idempotency-Key", key)
                .json(body);
            if let Some((status, answer)) = sent(request).await {
                let prompt = answer["promptId"].as_str().map(str::to_owned);
                let session = self.session.clone();
                let key = Some(key.to_owned());
                let answered = PromptAnswer {
                    session,
                    key,
                    status,
                    prompt: prompt.clone(),
                };
                self.responses
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .prompts
                    .push(answered);
                match status {
                    200..300 => return prompt.expect("an admitted prompt has an id"),
                    // It drains, or has no process for it now; or the other tab's is on its way.
                    409 | 429 | 503 | 504 => {}
                    _ => panic!("{status}: {answer}"),
                }
                assert!(
                    began.elapsed() < PATIENCE,
                    "not admitted: {status} {answer}: {body}"
                );
            }
            assert!(began.elapsed() < PATIENCE, "the gateway does not answer");
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Two tabs answer the permission of a turn, as long as it is asked for.
    async fn answer(&self, turn: &str, random: &mut Random) {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some((200, open)) = sent(self.request(Method::GET, "/requests")).await
                && let Some(request) = open["requests"][0]["requestId"].as_str()
            {
                if random.below(3) == 0 {
                    tokio::time::sleep(Duration::from_millis(random.below(100))).await;
                }
                let tabs = (
                    self.choose(request, "allow"),
                    self.choose(request, "reject"),
                );
                let answers = tokio::join!(tabs.0, tabs.1);
                if answers.0 || answers.1 {
                    return;
                }
            }
            if self.ended(turn, 0).await {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
        panic!("the permission of {turn} is neither asked for nor over");
    }

    /// One answer; whether there was an answer to it.
    async fn choose(&self, request: &str, option: &str) -> bool {
        let path = format!("/permissions/{request}");
        let sending = self
            .request(Method::POST, &path)
            .json(&json!({ "optionId": option }));
        let Some((status, _)) = sent(sending).await else {
            return false;
        };
        let answer = RequestAnswer {
            session: self.session.clone(),
            request: request.to_owned(),
            status,
            option: Some(option.to_owned()),
        };
        self.responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .answers
            .push(answer);
        status == 204
    }

    /// Waits for a turn's end, and cancels it if it needs a cancel.
    async fn over(&self, turn: &str, cancel: bool) {
        let began = Instant::now();
        loop {
            if cancel {
                drop(sent(self.request(Method::POST, "/cancel").json(&json!({}))).await);
            }
            if self.ended(turn, 5).await {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{turn} of {} does not end",
                self.session
            );
        }
    }

    /// Whether a turn is over, or becomes so in some seconds.
    async fn ended(&self, turn: &str, seconds: u64) -> bool {
        let request = self.request(Method::GET, &format!("/prompts/{turn}"));
        match sent(request.header("Prefer", format!("wait={seconds}"))).await {
            Some((200, prompt)) => prompt["endedAt"].is_string(),
            // The gateway acknowledged the turn, but it does not exist. The history checks the log.
            Some((404, _)) => true,
            _ => {
                tokio::time::sleep(AGAIN).await;
                false
            }
        }
    }
}

/// The whole response. `None` if the gateway ended before.
async fn sent(request: RequestBuilder) -> Option<(u16, Value)> {
    let response = request.timeout(Duration::from_secs(30)).send().await.ok()?;
    let status = response.status().as_u16();
    let text = response.text().await.ok()?;
    Some((
        status,
        if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).ok()?
        },
    ))
}
