//! Random histories of chat clients, and a model of what a request means.
//!
//! The gate plays 12 histories for each protocol. More of them, or those of a seed that failed:
//! `ROUNDS=100 cargo test --test it chat::identity::random` and `SEED=7 cargo test --test it chat::identity::random`.

use std::collections::HashMap;

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::{AG_UI, AI_SDK, COMPLETIONS, RESPONSES, frames, text};
use crate::support::figures::figure;
use crate::support::random::{Random, rounds};
use crate::support::{Gateway, Setup};

const PROTOCOLS: [&str; 4] = [AI_SDK, AG_UI, COMPLETIONS, RESPONSES];
/// The gateway is replaced after so many histories, so that its store stays small.
const HISTORIES_OF_A_GATEWAY: usize = 50;

/// A message of the user, and its id where the protocol has one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sent {
    word: String,
    id: String,
}

/// The next action of a client.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Its whole history and a new message.
    Send,
    /// The same. The client loses the connection during the answer, and its library repeats the request.
    Lose,
    /// A new message alone.
    SendAlone,
    /// The end of its history and a new message.
    Trim,
    /// The last request again, with what the library adds to a repetition.
    Retry,
    /// Another answer to the last message.
    Again,
    /// Another text for a message. Those after it are gone.
    Edit,
}

/// A session with a history.
#[derive(Debug, Clone)]
struct Copied {
    session: String,
    answer: String,
    /// The answer before it. A new session has received it as a part of a text.
    before: Option<String>,
}

/// A chat client with its history, and the model of its conversation.
struct Client<'a> {
    gateway: &'a Gateway,
    protocol: &'static str,
    chat: String,
    /// The messages of the user that the client shows.
    history: Vec<Sent>,
    /// The words of the turns that the gateway knows.
    turns: Vec<String>,
    was_alone: bool,
    /// The last request.
    last: Option<(Vec<Sent>, String)>,
    /// The notices in the response to the last request.
    told: Vec<&'static str>,
    session: String,
    /// The prompts of each session.
    prompts: HashMap<String, usize>,
    /// The sessions with a history, the newest last, if only the history names the conversation.
    copies: HashMap<Vec<Sent>, Vec<Copied>>,
    /// The history of each session.
    histories: HashMap<String, Vec<Sent>>,
    /// The answer to each message, by its id.
    answers: HashMap<String, String>,
    number: usize,
}

impl Client<'_> {
    fn has_ids(&self) -> bool {
        matches!(self.protocol, AI_SDK | AG_UI)
    }

    /// A new message: of few words, so that many are equal, where equal words have one meaning. Without ids, they have it if
    /// the client has sent its whole history each time.
    fn message(&mut self, random: &mut Random) -> Sent {
        self.number += 1;
        let may_be_equal = self.has_ids() || (self.protocol == COMPLETIONS && self.is_whole());
        let word = if may_be_equal {
            (*random.one_of(&["yes", "no", "more"])).to_owned()
        } else {
            format!("{}-{}", self.chat, self.number)
        };
        Sent {
            word,
            id: format!("{}-m{}", self.chat, self.number),
        }
    }

    /// Whether the turns of the conversation are exactly the history of the client.
    fn is_whole(&self) -> bool {
        self.turns
            .iter()
            .eq(self.history.iter().map(|sent| &sent.word))
    }

    /// The turn with which messages without ids begin, if they continue the conversation: the most messages are equal.
    fn continues_from(&self, messages: &[Sent]) -> Option<usize> {
        let equal = |from: usize| {
            let pairs = self.turns[from..].iter().zip(messages);
            pairs.take_while(|(turn, sent)| **turn == sent.word).count()
        };
        let most = (0..self.turns.len()).map(equal).max()?;
        (0..self.turns.len()).find(|from| equal(*from) == most && from + most == self.turns.len())
    }

    /// Whether messages without ids may begin at two turns.
    fn fits_twice(&self, messages: &[Sent]) -> bool {
        let same = self.turns.iter().filter(|turn| **turn == messages[0].word);
        let from = self.continues_from(messages);
        from.is_some_and(|from| from > 0) && same.count() > 1
    }

    /// The session that these messages continue if only they name it, and otherwise what the client is told. Of several with
    /// the same messages and the same last answer, one that has nothing after it is right.
    fn found_by_history(&self, messages: &[Sent]) -> (Option<String>, Option<&'static str>) {
        let whole = &messages[..messages.len() - 1];
        let Some(last) = whole.last() else {
            return (None, None);
        };
        let Some(copies) = self.copies.get(whole) else {
            return (None, Some("seeded"));
        };
        let mut sessions = copies
            .iter()
            .filter(|copy| copies.len() == 1 || copy.answer == self.answers[&last.id])
            .map(|copy| &copy.session);
        let newest = sessions
            .clone()
            .rfind(|session| self.histories[*session] == whole);
        let Some(session) = newest.or_else(|| sessions.next_back()) else {
            return (None, Some("seeded"));
        };
        if self.histories[session] == whole {
            (Some(session.clone()), None)
        } else {
            (None, Some("branched"))
        }
    }

    /// Whether another session than the newest one may have these messages with the same answer before the last one, or
    /// whether the newest one has no such answer of its own.
    fn is_copied(&self, messages: &[Sent]) -> bool {
        let copies = &self.copies[messages];
        let newest = &copies[copies.len() - 1].before;
        let likely = copies
            .iter()
            .filter(|copy| copy.before.is_none() || copy.before == *newest);
        newest.is_none() || likely.count() > 1
    }

    fn request(
        &self,
        messages: &[Sent],
        run: &str,
        asks_again: bool,
        retries: u32,
    ) -> RequestBuilder {
        let text = |sent: &Sent| format!("echo {}", sent.word);
        let part = |text: &str| json!([{ "type": "text", "text": text }]);
        let mut all = Vec::new();
        for (at, sent) in messages.iter().enumerate() {
            let answer = format!("{}-answer", sent.id);
            let is_last = at + 1 == messages.len();
            let said = self.answers.get(&sent.id).map_or("", String::as_str);
            let (user, assistant) = match self.protocol {
                AI_SDK => (
                    json!({ "id": sent.id, "role": "user", "parts": part(&text(sent)) }),
                    json!({ "id": answer, "role": "assistant", "parts": part(said) }),
                ),
                _ => (
                    json!({ "id": sent.id, "role": "user", "content": text(sent) }),
                    json!({ "id": answer, "role": "assistant", "content": said }),
                ),
            };
            all.push(user);
            if !is_last {
                all.push(assistant);
            }
        }
        let body = match self.protocol {
            AI_SDK => {
                let trigger = if asks_again {
                    "regenerate-message"
                } else {
                    "submit-message"
                };
                json!({ "id": self.chat, "messages": all, "trigger": trigger })
            }
            AG_UI => {
                json!({ "threadId": self.chat, "runId": run, "messages": all, "tools": [], "context": [] })
            }
            COMPLETIONS => json!({ "model": "fake", "messages": all, "stream": true }),
            _ => json!({ "model": "fake", "input": all, "stream": true }),
        };
        let request = self
            .gateway
            .request(Method::POST, self.protocol)
            .json(&body);
        if self.has_ids() {
            return request;
        }
        let request = request.header("x-stainless-retry-count", retries);
        if self.protocol == COMPLETIONS {
            request.header("x-conversation-id", &self.chat)
        } else {
            request
        }
    }

    async fn act(&mut self, act: Act, random: &mut Random) {
        let mut messages = self.history.clone();
        let mut run = format!("{}-run{}", self.chat, self.number);
        let by_history = self.protocol == RESPONSES;
        let is_first = self.history.is_empty();
        // Whether the request continues the session, and what the client is told.
        let mut same = true;
        let mut told = Vec::new();
        match act {
            Act::Send | Act::Lose => {
                messages.push(self.message(random));
                same = !is_first;
            }
            Act::SendAlone => {
                messages = vec![self.message(random)];
                same = !is_first;
            }
            Act::Trim => {
                let kept = 1 + usize::try_from(random.below(messages.len() as u64)).expect("few");
                let is_cut = kept < messages.len();
                messages.drain(..messages.len() - kept);
                let mut new = self.message(random);
                if !self.has_ids() && is_cut {
                    // Otherwise, the end of the history could be the same again.
                    new.word = format!("{}-{}", self.chat, self.number);
                }
                messages.push(new);
            }
            Act::Retry => {
                let (last, of) = self.last.clone().expect("there was a request");
                messages = last;
                run = of;
                // The same words alone may be those of another request.
                let is_unsure = !self.has_ids() && messages.len() == 1;
                if is_unsure || by_history && self.is_copied(&messages) {
                    told.push("repeated");
                }
                told.extend(&self.told);
            }
            Act::Again => {
                self.number += 1;
                run = format!("{}-again{}", self.chat, self.number);
                same = self.protocol == COMPLETIONS && messages.len() == 1;
            }
            Act::Edit => {
                let at = usize::try_from(random.below(messages.len() as u64)).expect("few");
                messages.truncate(at + 1);
                let edited = self.message(random);
                messages[at].word = format!("{}-edited{}", edited.word, self.number);
                if self.protocol != AI_SDK {
                    messages[at].id = edited.id;
                }
                same = at == 0 && matches!(self.protocol, COMPLETIONS | AG_UI);
                same |= self.protocol == COMPLETIONS && self.continues_from(&messages).is_some();
            }
        }
        let is_alone = messages.len() == 1 && !is_first;
        let is_new = !matches!(act, Act::Retry);
        let mut expected = same.then(|| self.session.clone());
        let is_unsure =
            self.protocol == COMPLETIONS && messages.len() > 1 && self.fits_twice(&messages);
        if is_new && by_history {
            let (session, notice) = self.found_by_history(&messages);
            expected = session;
            told.extend(notice);
        } else if is_new && !same && !is_first {
            told.push("branched");
        } else if is_new && same && (is_alone && !self.was_alone || is_unsure) {
            told.push("continued");
        }
        let asks_again = matches!(act, Act::Again);
        let request = self.request(&messages, &run, asks_again, u32::from(!is_new));
        let mut response = request.send().await.expect("an answer");
        // Without an id, the first turn of a new session can be that of another chat, so a repetition after its end is reported.
        if matches!(act, Act::Lose) && (!by_history || expected.is_some()) {
            drop(response);
            let repeated = self.request(&messages, &run, asks_again, 1);
            response = repeated.send().await.expect("an answer");
        }
        let header = |name: &str| -> Vec<String> {
            let values = response.headers().get_all(name).into_iter();
            values
                .map(|value| value.to_str().expect("ASCII").to_owned())
                .collect()
        };
        let at = format!("{} {act:?} {messages:?} told {told:?}", self.protocol);
        assert_eq!(response.status(), 200, "{at}");
        assert_eq!(header("x-acp-history"), told, "{at}");
        let session = header("x-acp-session-id").remove(0);
        let known = self.prompts.contains_key(&session);
        assert_eq!(known.then(|| session.clone()), expected, "{at}");
        let shown = text(&frames(&response.text().await.expect("a body")));
        let word = &messages.last().expect("a message").word;
        // The agent does what the first block says. In a new session, this is the history.
        let has_history =
            messages.len() > 1 && (told.contains(&"branched") || told.contains(&"seeded"));
        let heard = if has_history {
            "The conversation so far:"
        } else {
            word
        };
        assert!(shown.starts_with(heard), "{at}: {shown}");
        let prompts = self.prompts.entry(session.clone()).or_default();
        *prompts += usize::from(is_new);
        let path = format!("/v1/sessions/{session}/prompts?limit=200");
        let listed = self.gateway.get(&path).await;
        let listed = listed["prompts"].as_array().expect("a list");
        assert_eq!(listed.len(), *prompts, "{at}");
        assert_eq!(listed[0]["text"], json!(shown), "{at}");
        let transcript = format!("/v1/sessions/{session}/transcript");
        let transcript = self.gateway.get(&transcript).await;
        let turns = transcript["turns"].as_array().expect("turns").iter();
        let newest = turns.max_by_key(|turn| turn["promptId"].as_str().map(|id| (id.len(), id)));
        let blocks = newest.expect("a turn")["prompt"]
            .as_array()
            .expect("blocks");
        assert_eq!(blocks.len(), 1 + usize::from(has_history), "{at}");
        let received = &blocks[blocks.len() - 1]["text"];
        assert_eq!(*received, json!(format!("echo {word}")), "{at}");
        let newest = messages.last().expect("a message");
        let before = messages.iter().rev().nth(1);
        let answered = before.and_then(|sent| self.answers.get(&sent.id).cloned());
        self.answers.insert(newest.id.clone(), shown.clone());
        if is_new {
            self.was_alone = is_alone && same;
            if same && !is_first {
                self.turns.push(word.clone());
            } else {
                self.turns = messages.iter().map(|sent| sent.word.clone()).collect();
            }
            let copies = self.copies.entry(messages.clone()).or_default();
            copies.push(Copied {
                session: session.clone(),
                answer: shown,
                before: if expected.is_some() { answered } else { None },
            });
            self.histories.insert(session.clone(), messages.clone());
            self.last = Some((messages.clone(), run));
            self.told = told;
            self.session = session;
            match act {
                // The client shows its message below the others.
                Act::SendAlone if !by_history => self.history.extend(messages),
                _ => self.history = messages,
            }
        }
    }
}

/// Plays histories, and prints the seed of one that differs from the model.
async fn play(protocol: &'static str) {
    let histories = rounds(12);
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed} for {protocol}"));
    let settings = "limits.per_key.max_requests_per_minute = 1000000\nlimits.per_key.max_prompts_per_minute = 1000000\nlimits.per_key.max_live_sessions = 1000";
    let mut gateway = Setup::fake(&[]).settings(settings).start();
    for history in 0..histories {
        if history > 0 && history % HISTORIES_OF_A_GATEWAY == 0 {
            gateway = Setup::fake(&[]).settings(settings).start();
        }
        let mut client = Client {
            gateway: &gateway,
            protocol,
            chat: format!("c{history}"),
            history: Vec::new(),
            turns: Vec::new(),
            was_alone: false,
            last: None,
            told: Vec::new(),
            session: String::new(),
            prompts: HashMap::new(),
            copies: HashMap::new(),
            histories: HashMap::new(),
            answers: HashMap::new(),
            number: 0,
        };
        client.act(Act::Send, &mut random).await;
        for _ in 0..=random.below(6) {
            let acts = [
                Act::Send,
                Act::Lose,
                Act::SendAlone,
                Act::Trim,
                Act::Retry,
                Act::Again,
                Act::Edit,
            ];
            client.act(*random.one_of(&acts), &mut random).await;
        }
    }
}

#[tokio::test]
async fn random_histories_of_the_ai_sdk_follow_the_model() {
    play(PROTOCOLS[0]).await;
}

#[tokio::test]
async fn random_histories_of_ag_ui_follow_the_model() {
    play(PROTOCOLS[1]).await;
}

#[tokio::test]
async fn random_histories_of_completions_follow_the_model() {
    play(PROTOCOLS[2]).await;
}

#[tokio::test]
async fn random_histories_of_responses_follow_the_model() {
    play(PROTOCOLS[3]).await;
}
