//! One broken history for each thing that may go wrong.

use super::*;

/// Changes the event of this seq, in the log and wherever it was seen.
fn everywhere(history: &mut History, seq: usize, change: impl Fn(&str) -> String) {
    let events = &mut history.logs.get_mut(SESSION).expect("it is there").events;
    let before = events[seq - 1].clone();
    let after: Box<str> = change(&before).into();
    events[seq - 1].clone_from(&after);
    for frame in history
        .readers
        .iter_mut()
        .flat_map(|reader| &mut reader.frames)
    {
        if let Frame::Event { text, .. } = frame
            && *text == before
        {
            text.clone_from(&after);
        }
    }
}

/// Appends to the log and to the reader's record.
fn append(history: &mut History, event: &str) {
    history
        .logs
        .get_mut(SESSION)
        .expect("it is there")
        .events
        .push(event.into());
    history.readers[0].frames.push(frame(event));
    let id = Some("k3-g99".into());
    history.readers[1].frames.push(Frame::Event {
        id,
        text: event.into(),
    });
}

fn journal_has(history: &mut History, lines: &str) {
    let text = format!("{}{lines}\n", journal());
    history.journals = vec![Journal::new("7.1", &text)];
}

#[test]
fn a_gap() {
    breaks(
        |history| drop(history.readers[0].frames.remove(3)),
        &[Rule::Gap],
    );
    breaks(
        |history| drop(history.readers[1].frames.remove(3)),
        &[Rule::Gap],
    );
}

#[test]
fn a_duplicate() {
    breaks(
        |history| {
            let frames = &mut history.readers[0].frames;
            frames.insert(4, frames[3].clone());
        },
        &[Rule::Duplicate],
    );
    // Events from before the start arrive again.
    breaks(
        |history| {
            history.readers[0].sessions.insert(SESSION.to_owned(), 2);
            drop(history.readers[0].frames.drain(..2));
        },
        &[Rule::Duplicate],
    );
}

#[test]
fn another_order() {
    breaks(
        |history| history.readers[0].frames.swap(2, 3),
        &[Rule::Gap, Rule::Reordered],
    );
    // Places in the whole store rise, too.
    breaks(
        |history| history.readers[1].frames.swap(2, 3),
        &[Rule::Gap, Rule::Reordered, Rule::Id],
    );
}

#[test]
fn an_end_that_was_never_seen() {
    breaks(
        |history| drop(history.readers[0].frames.pop()),
        &[Rule::Lost],
    );
    breaks(
        |history| {
            history.readers[0].frames.pop();
            history.readers[0].stopped = true;
        },
        &[],
    );
}

#[test]
fn an_event_that_was_visible_and_not_durable() {
    let ghost = event(8, "session.detached", r#""reason":"idle""#);
    breaks(
        |history| history.readers[0].frames.push(frame(&ghost)),
        &[Rule::Lost],
    );
}

#[test]
fn other_bytes() {
    breaks(
        |history| {
            let Frame::Event { text, .. } = &mut history.readers[0].frames[3] else {
                unreachable!("an event")
            };
            *text = text.replace(r#""text":"one""#, r#""text": "one""#).into();
        },
        &[Rule::Changed],
    );
    breaks(
        |history| history.readers[0].frames.push(frame(r#"{"id":"k3-8""#)),
        &[Rule::Changed],
    );
}

#[test]
fn wrong_ids() {
    breaks(
        |history| {
            let Frame::Event { id, .. } = &mut history.readers[0].frames[3] else {
                unreachable!("an event")
            };
            *id = Some("k3-4".into());
        },
        &[Rule::Id],
    );
    breaks(
        |history| everywhere(history, 3, |text| text.replace("k3-3", "k3-4")),
        &[Rule::Id],
    );
    // Another epoch in the middle.
    breaks(
        |history| everywhere(history, 3, |text| text.replace("k3-3", "k4-3")),
        &[Rule::Id],
    );
    // An event of a session that the reader did not ask for.
    breaks(
        |history| {
            let foreign = update(8, "x").replace(SESSION, "s2");
            history.readers[0].frames.push(frame(&foreign));
        },
        &[Rule::Id],
    );
}

#[test]
fn a_reset() {
    let reset = || Frame::Reset(r#"{"type":"reset","reason":"pruned"}"#.into());
    breaks(
        |history| history.readers[0].frames.insert(5, reset()),
        &[Rule::Reset],
    );
    // Where it may happen, the log follows from anywhere, and without a hole from there.
    breaks(
        |history| {
            history.resets = true;
            history.readers[0].frames.insert(5, reset());
            drop(history.readers[0].frames.remove(7));
        },
        &[],
    );
    breaks(
        |history| {
            history.resets = true;
            history.readers[0].frames.insert(5, reset());
            drop(history.readers[0].frames.remove(8));
        },
        &[Rule::Gap],
    );
}

#[test]
fn holes_and_doubles_of_the_log_itself() {
    let events = |history: &mut History, change: fn(&mut Vec<Box<str>>)| {
        history.readers.clear();
        history.plain_words = false;
        change(&mut history.logs.get_mut(SESSION).expect("it is there").events);
    };
    breaks(
        |history| events(history, |log| drop(log.remove(2))),
        &[Rule::Gap],
    );
    breaks(
        |history| events(history, |log| log.insert(2, log[1].clone())),
        &[Rule::Duplicate],
    );
    breaks(
        |history| events(history, |log| log.swap(2, 5)),
        &[Rule::Gap, Rule::Reordered],
    );
}

#[test]
fn a_key_with_two_turns() {
    let second = event(
        8,
        "prompt.started",
        r#""promptId":"p2","prompt":[],"idempotencyKey":"once""#,
    );
    let end = event(
        9,
        "prompt.completed",
        r#""promptId":"p2","stopReason":"end_turn","result":{}"#,
    );
    breaks(
        |history| {
            history.readers.clear();
            let events = &mut history.logs.get_mut(SESSION).expect("it is there").events;
            events.extend([second.into(), end.into()]);
        },
        &[Rule::Twice],
    );
}

#[test]
fn answers_to_a_key_that_name_different_turns() {
    breaks(
        |history| history.prompts[1].prompt = Some("p2".to_owned()),
        // There is no such turn, either.
        &[Rule::Twice, Rule::Lost],
    );
    breaks(
        |history| history.prompts[0].key = Some("other".to_owned()),
        &[Rule::Twice],
    );
}

#[test]
fn a_prompt_that_an_agent_got_twice() {
    let again = format!(
        r#"< {{"id":4,"method":"session/prompt","params":{{"sessionId":"b","prompt":{BLOCKS}}}}}"#
    );
    breaks(|history| journal_has(history, &again), &[Rule::Twice]);
    // By another process, which a later life of the gateway started.
    breaks(
        |history| {
            history
                .journals
                .push(Journal::new("8.1", &format!("{again}\n")));
        },
        &[Rule::Twice],
    );
}

#[test]
fn prompt_before_its_commit_is_not_sent() {
    let other = r#"< {"id":4,"method":"session/prompt","params":{"sessionId":"b","prompt":[]}}"#;
    breaks(|history| journal_has(history, other), &[Rule::Twice]);
}

#[test]
fn a_queued_prompt_that_a_stop_ends() {
    let queued = event(8, "prompt.queued", r#""promptId":"p2","prompt":[]"#);
    for (code, rules) in [
        ("draining", &[Rule::Lost][..]),
        ("interrupted", &[Rule::Lost]),
        ("agent_exited", &[]),
    ] {
        let members = format!(r#""promptId":"p2","problem":{{"code":"{code}"}}"#);
        let failed = event(9, "prompt.failed", &members);
        breaks(
            |history| {
                history.readers.clear();
                let events = &mut history.logs.get_mut(SESSION).expect("it is there").events;
                events.extend([queued.clone().into(), failed.clone().into()]);
            },
            rules,
        );
    }
}

#[test]
fn queued_prompts_that_start_in_another_order() {
    breaks(
        |history| {
            history.readers.clear();
            let events = &mut history.logs.get_mut(SESSION).expect("it is there").events;
            for (seq, kind, prompt) in [
                (8, "queued", 2),
                (9, "queued", 3),
                (10, "started", 3),
                (11, "completed", 3),
                (12, "started", 2),
                (13, "completed", 2),
            ] {
                let kind = format!("prompt.{kind}");
                events.push(
                    event(
                        seq,
                        &kind,
                        &format!(r#""promptId":"p{prompt}","prompt":[]"#),
                    )
                    .into(),
                );
            }
        },
        &[Rule::Reordered],
    );
}

#[test]
fn moved_prompts_start_in_the_order_of_the_queue() {
    let ran = |moves: &[(u32, &'static str)], order: [u32; 2], late: Option<u32>| {
        let mut kinds: Vec<(&str, u32, &'static str)> = vec![("queued", 2, ""), ("queued", 3, "")];
        kinds.extend(
            moves
                .iter()
                .map(|(prompt, before)| ("changed", *prompt, *before)),
        );
        for prompt in order {
            kinds.push(("started", prompt, ""));
            kinds.extend(
                late.filter(|late| *late == prompt)
                    .map(|late| ("changed", late, "")),
            );
            kinds.push(("completed", prompt, ""));
        }
        move |history: &mut History| {
            history.readers.clear();
            let events = &mut history.logs.get_mut(SESSION).expect("it is there").events;
            for (seq, (kind, prompt, members)) in (8..).zip(&kinds) {
                let members = format!(r#""promptId":"p{prompt}","prompt":[]{members}"#);
                events.push(event(seq, &format!("prompt.{kind}"), &members).into());
            }
        }
    };
    let front = r#","before":"p2""#;
    let end = r#","before":null"#;
    breaks(ran(&[(3, front)], [3, 2], None), &[]);
    breaks(ran(&[(2, end)], [3, 2], None), &[]);
    breaks(ran(&[(3, front), (3, end)], [2, 3], None), &[]);
    breaks(ran(&[(3, front)], [2, 3], None), &[Rule::Reordered]);
    breaks(ran(&[(2, "")], [3, 2], None), &[Rule::Reordered]);
    breaks(ran(&[], [2, 3], Some(2)), &[Rule::Reordered]);
}

#[test]
fn turns_without_one_end() {
    let second = event(8, "prompt.failed", r#""promptId":"p1","problem":{}"#);
    breaks(|history| append(history, &second), &[Rule::End]);
    let other = |text: &str| text.replace("prompt.completed", "session.changed");
    breaks(|history| everywhere(history, 7, other), &[Rule::End]);
    breaks(
        |history| {
            history.unfinished = true;
            everywhere(history, 7, other);
        },
        &[],
    );
    // An end before the start, and a start after the end.
    let ghost = event(8, "prompt.failed", r#""promptId":"p2","problem":{}"#);
    breaks(|history| append(history, &ghost), &[Rule::End]);
    let again = event(8, "prompt.started", r#""promptId":"p1""#);
    breaks(|history| append(history, &again), &[Rule::Twice, Rule::End]);
}

#[test]
fn requests_with_two_answers() {
    let resolved = |history: &History| history.logs[SESSION].events[4].replace("k3-5", "k3-8");
    breaks(
        |history| {
            let second = resolved(history).replace(r#""seq":5"#, r#""seq":8"#);
            append(history, &second);
        },
        &[Rule::Answer],
    );
    breaks(|history| history.answers[1].status = 204, &[Rule::Answer]);
    let again = r#"< {"id":1,"result":{"outcome":{"outcome":"cancelled"}}}"#;
    breaks(|history| journal_has(history, again), &[Rule::Answer]);
    // Nobody asked for this one.
    breaks(
        |history| journal_has(history, r#"< {"id":2,"result":{}}"#),
        &[Rule::Answer],
    );
}

#[test]
fn requests_with_a_wrong_or_missing_answer_are_detected() {
    breaks(
        |history| history.answers[0].option = Some("reject".to_owned()),
        &[Rule::Answer],
    );
    breaks(
        |history| history.answers[0].request = "r2".to_owned(),
        &[Rule::Lost],
    );
    breaks(
        |history| {
            everywhere(history, 5, |text| {
                text.replace(r#""answered""#, r#""withdrawn""#)
            });
        },
        &[Rule::Answer],
    );
    // Open when its turn is over; answered and never asked.
    let other = |text: &str| text.replace("request.resolved", "session.changed");
    breaks(
        |history| {
            history.answers.clear();
            everywhere(history, 5, other);
        },
        &[Rule::Answer],
    );
    breaks(
        |history| {
            everywhere(history, 4, |text| {
                text.replace("request.created", "session.changed")
            });
        },
        &[Rule::Answer],
    );
}

#[test]
fn a_promise_that_was_lost() {
    breaks(
        |history| {
            let lost = PromptAnswer {
                key: None,
                prompt: Some("p9".to_owned()),
                ..history.prompts[0].clone()
            };
            history.prompts.push(lost);
        },
        &[Rule::Lost],
    );
}

#[test]
fn output_missing_in_the_log_is_detected() {
    let journals = |from: &str, to: &str| vec![Journal::new("7.1", &journal().replace(from, to))];
    breaks(
        |history| history.journals = journals("one", "eins"),
        &[Rule::Words],
    );
    // The log has one chunk less than the agent sent in a turn that it ended itself.
    let line = |text: &str| {
        format!(
            "> {{\"method\":\"session/update\",\"params\":{{\"sessionId\":\"a\",\"update\":{}}}}}\n",
            chunk(text)
        )
    };
    breaks(
        |history| history.journals = journals(&line("two"), &line("two").repeat(2)),
        &[Rule::Words],
    );
    breaks(
        |history| history.journals = journals(&line("two"), ""),
        &[Rule::Words],
    );
}

#[test]
fn survivors() {
    breaks(
        |history| history.alive[0].after = Duration::from_secs(10),
        &[Rule::Survivor],
    );
}

#[test]
fn more_memory_than_there_is() {
    breaks(|history| history.memory[0].kib = 101, &[Rule::Memory]);
}
