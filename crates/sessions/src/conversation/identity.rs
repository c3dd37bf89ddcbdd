//! Which turn a request of a chat client means.
//!
//! Chat clients have no turn ids. A client sends its whole history with each new message, the newest message after a lost
//! connection, and an old message after an edit. [`decide`] distinguishes these cases by the evidence in the request. It uses
//! no clock, and compares texts alone only without other evidence. Only the messages of the user are compared, because clients
//! change the messages of the assistant: they cut reasoning and add sources.

use super::record::{Conversation, Digest, MAX_TURNS, Turn, UserMessage};

#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The messages of the user, at least one.
    pub messages: &'a [UserMessage],
    /// The client's id of the request: a header `Idempotency-Key`, or the id of a run.
    pub request: Option<Digest>,
    /// The client declares that it repeats a request that failed.
    pub is_retry: bool,
    /// The client asks for another answer to a message that it sends again.
    pub asks_again: bool,
    /// The new messages, if the client names a session. Its turns may come from others.
    pub in_session: Option<NewMessages>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewMessages {
    /// The last one. Those before it are the history of the client.
    Last,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The request is a repetition. Its turn is the one at this index. It is not certain if the only evidence is a count of
    /// repetitions and the text.
    Existing { turn: usize, certain: bool },
    /// The messages from this one on are new. Usually it is the last one.
    Next {
        first_new: usize,
        /// `false`: the request may also be an edit of an earlier message.
        certain: bool,
    },
    /// The last message is sent again: its newest turn has no answer.
    Again,
    /// The messages differ from the turns after the first `kept` turns.
    Changed { kept: usize },
}

/// The state of a turn whose message a client sends again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnState {
    Running {
        /// A client reads the response with the turn, so no connection was lost.
        is_read: bool,
    },
    /// The turn has no answer: the gateway cancelled it because its client had disconnected, or it failed before the agent saw it.
    Abandoned,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Decided(Decision),
    SentAgain(SentAgain),
}

/// The message of a turn is sent again. The state of the turn decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentAgain {
    pub turn: usize,
    /// Only the newest turn can be replaced by another one with the same message.
    is_newest: bool,
    /// The meaning if a client reads the running turn.
    read: Decision,
    ended: Decision,
}

impl SentAgain {
    pub const fn in_state(&self, state: TurnState) -> Decision {
        match state {
            TurnState::Running { is_read: false } => Decision::Existing {
                turn: self.turn,
                certain: true,
            },
            TurnState::Running { is_read: true } => self.read,
            TurnState::Abandoned if self.is_newest => Decision::Again,
            TurnState::Abandoned | TurnState::Ended => self.ended,
        }
    }
}

/// Decides what the request means. The rules are those of `docs/reference/chat-protocols.md`, in the same order.
pub fn decide(conversation: &Conversation, evidence: &Evidence<'_>) -> Meaning {
    let turns = &conversation.turns[..];
    let last = evidence.messages.len() - 1;
    let message = &evidence.messages[last];
    let existing = |turn| Decision::Existing {
        turn,
        certain: true,
    };
    let next = |certain| Decision::Next {
        first_new: match evidence.in_session {
            Some(NewMessages::All) => 0,
            Some(NewMessages::Last) | None => last,
        },
        certain,
    };
    let Some(newest) = turns.len().checked_sub(1) else {
        return Meaning::Decided(next(true));
    };
    let sent_again = |turn, read, ended| {
        Meaning::SentAgain(SentAgain {
            turn,
            is_newest: turn == newest,
            read,
            ended,
        })
    };
    // 1. The id of the request.
    if let Some(request) = evidence.request
        && let Some(at) = turns
            .iter()
            .rposition(|turn| turn.run == Some(request) && turn.message == message.content)
    {
        return sent_again(at, existing(at), existing(at));
    }
    // 2. A count of repetitions.
    let has_history = last > 0 && evidence.in_session.is_none();
    if evidence.is_retry {
        let is_same = if has_history {
            matches!(compare(turns, evidence.messages), Compared::Continued { first_new, .. } if first_new > last)
        } else {
            turns[newest].message == message.content
        };
        if is_same {
            let ended = Decision::Existing {
                turn: newest,
                certain: has_history,
            };
            return sent_again(newest, existing(newest), ended);
        }
    }
    // 3. The id of the message. A session that the client names is not replaced by another one.
    if let Some(id) = message.id
        && let Some(at) = turns.iter().rposition(|turn| turn.has_id(id))
    {
        let changed = if evidence.in_session.is_some() {
            next(false)
        } else {
            Decision::Changed { kept: at }
        };
        // A message that was joined with the next one in one prompt has no separate answer.
        let is_joined = turns
            .get(at + 1)
            .is_some_and(|after| after.prompt == turns[at].prompt);
        if turns[at].message != message.content || is_joined {
            return Meaning::Decided(changed);
        }
        let ended = if evidence.asks_again {
            changed
        } else {
            existing(at)
        };
        return sent_again(at, existing(at), ended);
    }
    // 4. The session.
    if evidence.in_session.is_some() {
        return Meaning::Decided(next(true));
    }
    // 5. A message without the ones before it.
    if !has_history {
        let next = next(conversation.sends_newest_only);
        if message.id.is_some() || turns[newest].message != message.content {
            return Meaning::Decided(next);
        }
        return sent_again(newest, next, next);
    }
    // 6. The history. A message with an unknown id is new, even if a turn has the same text.
    let is_new = message.id.is_some();
    match compare(turns, &evidence.messages[..last + usize::from(!is_new)]) {
        Compared::Continued { first_new, certain } if is_new || first_new <= last => {
            Meaning::Decided(Decision::Next { first_new, certain })
        }
        Compared::Continued { .. } => {
            let ended = Decision::Changed { kept: newest };
            sent_again(newest, existing(newest), ended)
        }
        Compared::Changed { kept } => Meaning::Decided(Decision::Changed { kept }),
    }
}

enum Compared {
    /// The messages have all turns from one of them to the newest. Those from `first_new` on are new. It is not certain if the
    /// messages may also begin at another turn, and have an edit.
    Continued {
        first_new: usize,
        certain: bool,
    },
    Changed {
        kept: usize,
    },
}

/// Compares messages with turns. Clients with a limited context leave out the oldest messages, so the messages may begin at any
/// turn: at the one with the id of the first message, otherwise at the one from which most messages are equal. A conversation
/// that has as many turns as it can keep may have forgotten those of the first messages.
fn compare(turns: &[Turn], messages: &[UserMessage]) -> Compared {
    let forgotten = if turns.len() == MAX_TURNS {
        messages.len().saturating_sub(turns.len())
    } else {
        0
    };
    let messages = &messages[forgotten..];
    let equal = |from: usize| {
        let pairs = turns[from..].iter().zip(messages);
        pairs
            .take_while(|(turn, message)| turn.message == message.content)
            .count()
    };
    let first_id = messages.first().and_then(|message| message.id);
    let named = first_id.and_then(|id| turns.iter().rposition(|turn| turn.has_id(id)));
    // Of equal ones, a continuation is more likely than an edit.
    let from = named.unwrap_or_else(|| {
        let rank = |from: &usize| {
            let equal = equal(*from);
            (equal, from + equal == turns.len(), std::cmp::Reverse(*from))
        };
        (0..turns.len()).max_by_key(rank).unwrap_or_default()
    });
    let kept = from + equal(from);
    if kept < turns.len() {
        return Compared::Changed { kept };
    }
    let first = turns[from].message;
    let others = turns.iter().filter(|turn| turn.message == first).count() - 1;
    Compared::Continued {
        first_new: forgotten + kept - from,
        certain: from == 0 || forgotten > 0 || named.is_some() || others == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::types::SessionId;

    const ENDED: TurnState = TurnState::Ended;
    const READ: TurnState = TurnState::Running { is_read: true };
    const CUT: TurnState = TurnState::Running { is_read: false };
    const LOST: TurnState = TurnState::Abandoned;

    fn digest(text: &str) -> Digest {
        Digest::of(text, [])
    }

    /// The messages of a text: a letter each, and a digit after it as its id.
    fn messages(text: &str) -> Vec<UserMessage> {
        let mut all: Vec<UserMessage> = Vec::new();
        for letter in text.chars() {
            let value = digest(&letter.to_string());
            match all.last_mut() {
                Some(message) if letter.is_ascii_digit() => message.id = Some(value),
                _ => all.push(UserMessage {
                    content: value,
                    id: None,
                }),
            }
        }
        all
    }

    fn conversation(text: &str) -> Conversation {
        let mut known = Conversation::new(SessionId::AUDIT);
        known.extend(
            (1..)
                .zip(messages(text))
                .map(|(number, message)| Turn::new(message, number)),
        );
        known
    }

    fn decided(known: &Conversation, evidence: &Evidence<'_>, state: TurnState) -> Decision {
        match decide(known, evidence) {
            Meaning::Decided(decision) => decision,
            Meaning::SentAgain(again) => again.in_state(state),
        }
    }

    fn existing(turn: usize) -> Decision {
        Decision::Existing {
            turn,
            certain: true,
        }
    }

    fn next(first_new: usize) -> Decision {
        Decision::Next {
            first_new,
            certain: true,
        }
    }

    #[test]
    fn history_without_ids_is_compared_with_the_turns() {
        for (known, sent, state, expected) in [
            ("", "a", ENDED, next(0)),
            ("a", "ab", ENDED, next(1)),
            ("ab", "abc", READ, next(2)),
            ("ab", "abcd", ENDED, next(2)),
            ("abc", "bcd", ENDED, next(2)),
            ("aa", "aaa", ENDED, next(2)),
            ("ab", "ab", CUT, existing(1)),
            ("ab", "ab", READ, existing(1)),
            ("ab", "ab", LOST, Decision::Again),
            ("ab", "ab", ENDED, Decision::Changed { kept: 1 }),
            ("ab", "ax", ENDED, Decision::Changed { kept: 1 }),
            ("ab", "xb", ENDED, Decision::Changed { kept: 0 }),
            ("abc", "axc", ENDED, Decision::Changed { kept: 1 }),
            // An edit of the third message, and not the second one of a client that left out two.
            ("aba", "abx", ENDED, Decision::Changed { kept: 2 }),
        ] {
            let sent = messages(sent);
            let decision = decided(&conversation(known), &evidence(&sent), state);
            assert_eq!(decision, expected, "{known} {sent:?}");
        }
    }

    fn evidence(messages: &[UserMessage]) -> Evidence<'_> {
        Evidence {
            messages,
            request: None,
            is_retry: false,
            asks_again: false,
            in_session: None,
        }
    }

    #[test]
    fn history_that_begins_at_two_turns_is_not_certain() {
        // Two equal messages: the client has left out the first one, or has changed the second one.
        let sent = messages("ab");
        let decision = decided(&conversation("aa"), &evidence(&sent), ENDED);
        let uncertain = Decision::Next {
            first_new: 1,
            certain: false,
        };
        assert_eq!(decision, uncertain);
    }

    #[test]
    fn history_that_is_longer_than_the_turns_that_are_kept_continues() {
        let message = |at: usize| UserMessage {
            content: digest(&(at % 300).to_string()),
            id: None,
        };
        let mut known = Conversation::new(SessionId::AUDIT);
        let all = (0..MAX_TURNS + 20).map(message);
        known.extend(
            (1..)
                .zip(all)
                .map(|(number, message)| Turn::new(message, number)),
        );
        let mut sent: Vec<UserMessage> = (0..=MAX_TURNS + 20).map(message).collect();
        let decision = decided(&known, &evidence(&sent), ENDED);
        assert_eq!(decision, next(MAX_TURNS + 20));
        sent.pop();
        let decision = decided(&known, &evidence(&sent), CUT);
        assert_eq!(decision, existing(MAX_TURNS - 1));
        sent[MAX_TURNS].content = digest("changed");
        let decision = decided(&known, &evidence(&sent), ENDED);
        let kept = MAX_TURNS - 20;
        assert_eq!(decision, Decision::Changed { kept });
    }

    #[test]
    fn messages_of_one_prompt_have_one_answer() {
        // The second and the third message were sent together.
        let mut known = conversation("a1b2c3");
        known.turns[2].prompt = known.turns[1].prompt;
        for (sent, names_session, expected) in [
            ("a1b2c3", false, existing(2)),
            ("a1b2", false, Decision::Changed { kept: 1 }),
            ("a1", false, existing(0)),
            (
                "b2",
                true,
                Decision::Next {
                    first_new: 0,
                    certain: false,
                },
            ),
        ] {
            let messages = messages(sent);
            let evidence = Evidence {
                in_session: names_session.then_some(NewMessages::Last),
                ..evidence(&messages)
            };
            assert_eq!(decided(&known, &evidence, ENDED), expected, "{sent}");
        }
        let messages = messages("xy");
        let evidence = Evidence {
            in_session: Some(NewMessages::All),
            ..evidence(&messages)
        };
        for known in [&known, &conversation("")] {
            assert_eq!(decided(known, &evidence, ENDED), next(0));
        }
    }

    #[test]
    fn ids_of_messages_decide_before_texts() {
        for (known, sent, asks_again, state, expected) in [
            // The same words again, and the same message again.
            ("a1", "a1a2", false, ENDED, next(1)),
            ("a1b2", "a1b2", false, ENDED, existing(1)),
            ("a1b2", "a1b2", true, ENDED, Decision::Changed { kept: 1 }),
            ("a1b2", "a1b2", true, CUT, existing(1)),
            ("a1b2", "a1b2", true, LOST, Decision::Again),
            // An edit keeps the id or has another one.
            ("a1b2", "a1x2", false, ENDED, Decision::Changed { kept: 1 }),
            ("a1b2", "a1x3", false, ENDED, Decision::Changed { kept: 1 }),
            ("a1b2c3", "x1", false, ENDED, Decision::Changed { kept: 0 }),
            // Two equal messages, and a change of the second one.
            ("a1a2", "a1b3", false, ENDED, Decision::Changed { kept: 1 }),
            ("a1a2", "a2b3", false, ENDED, next(1)),
            // An old message that arrives again.
            ("a1b2", "a1", false, ENDED, existing(0)),
            ("a1b2", "a1", true, ENDED, Decision::Changed { kept: 0 }),
            // The client has new ids for old messages.
            ("a1b2", "a7b8c9", false, ENDED, next(2)),
        ] {
            let messages = messages(sent);
            let evidence = Evidence {
                asks_again,
                ..evidence(&messages)
            };
            let decision = decided(&conversation(known), &evidence, state);
            assert_eq!(decision, expected, "{known} {sent}");
        }
    }

    #[test]
    fn message_without_history_continues() {
        for (known, sent, state, expected) in [
            ("a", "b", ENDED, false),
            ("ab", "c", READ, false),
            // The same words again.
            ("a", "a", ENDED, false),
            ("a", "a", READ, false),
            ("a1", "a2", CUT, false),
        ]
        .map(|(known, sent, state, certain)| {
            let expected = Decision::Next {
                first_new: 0,
                certain,
            };
            (known, sent, state, expected)
        })
        .into_iter()
        .chain([
            ("ab", "b", CUT, existing(1)),
            ("ab", "b", LOST, Decision::Again),
        ]) {
            let messages = messages(sent);
            let mut known = conversation(known);
            let decision = decided(&known, &evidence(&messages), state);
            assert_eq!(decision, expected, "{known:?} {sent}");
            known.sends_newest_only = true;
            if let Decision::Next { first_new, .. } = expected {
                let decision = decided(&known, &evidence(&messages), state);
                assert_eq!(decision, next(first_new));
            }
        }
    }

    #[test]
    fn repetition_is_known_by_its_request_and_its_count() {
        let mut known = conversation("ab");
        known.turns[0].run = Some(digest("first"));
        let sent = messages("a");
        let repeated = Evidence {
            request: Some(digest("first")),
            ..evidence(&sent)
        };
        assert_eq!(decided(&known, &repeated, ENDED), existing(0));
        let mut failed = conversation("a");
        failed.turns[0].run = known.turns[0].run;
        assert_eq!(decided(&failed, &repeated, LOST), Decision::Again);
        let unsure = Decision::Existing {
            turn: 1,
            certain: false,
        };
        for (sent, state, names_session, expected) in [
            ("ab", ENDED, false, existing(1)),
            ("b", CUT, false, existing(1)),
            ("b", ENDED, false, unsure),
            ("b", ENDED, true, unsure),
            ("ab", LOST, false, Decision::Again),
            // The first request did not arrive.
            ("abc", ENDED, false, next(2)),
            ("abb", ENDED, false, next(2)),
            ("abb", CUT, false, next(2)),
        ] {
            let sent = messages(sent);
            let retried = Evidence {
                is_retry: true,
                in_session: names_session.then_some(NewMessages::Last),
                ..evidence(&sent)
            };
            assert_eq!(decided(&known, &retried, state), expected, "{sent:?}");
        }
        // A client with one id for all of its requests.
        let sent = messages("c");
        let constant = Evidence {
            request: Some(digest("first")),
            ..evidence(&sent)
        };
        assert!(matches!(
            decided(&known, &constant, ENDED),
            Decision::Next { .. }
        ));
        let sent = messages("b");
        let named = Evidence {
            in_session: Some(NewMessages::Last),
            ..evidence(&sent)
        };
        assert_eq!(decided(&known, &named, CUT), next(0), "the words alone");
    }
}
